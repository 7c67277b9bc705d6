package tokenizer

import (
	"slices"
	"strings"
	"testing"
)

// A token is no cut if a neighbour may take a part of it.
func TestCutsBesideGreedyTokens(t *testing.T) {
	const b = `[{"id":1496,"content":"<b>","normalized":false,"rstrip":true},`
	for _, tc := range []struct{ added, text string }{
		{b + `{"id":1497,"content":"\n","normalized":false}]`, "<b>\na"},
		{b + `{"id":1497,"content":"(a<b>>","normalized":true}]`, "x (a<b>>a"},
		{b + `{"id":1497,"content":"(a<","normalized":true}]`, "x (a<b>>a"},
		{`[{"id":1496,"content":"<b>","normalized":false,"lstrip":true},{"id":1497,"content":"(\n","normalized":true}]`, "x (\n<b>"},
	} {
		tok, err := parse(edit(t, map[string]string{"added_tokens": tc.added, "post_processor": "null"}), nil)
		if err != nil {
			t.Fatal(err)
		}
		cuts, want := tok.NewCuts(), tok.Encode(nil, tc.text)
		for at := cuts.Next(tc.text, 1, len(tc.text), nil); at < len(tc.text); at = cuts.Next(tc.text, at+1, len(tc.text), nil) {
			if got := tok.Encode(tok.Encode(nil, tc.text[:at]), tc.text[at:]); !slices.Equal(got, want) {
				t.Errorf("%q cut at %d: %v, want %v", tc.text, at, got, want)
			}
		}
	}
}

func TestCutsOfLongTokens(t *testing.T) {
	for n, want := range map[int]int{5000: 1, 6000: len("a<b>")} {
		added := `[{"id":1496,"content":"<b>","normalized":false},{"id":1497,"content":"` + strings.Repeat("!", n) + `"}]`
		tok, err := parse(edit(t, map[string]string{"added_tokens": added, "post_processor": "null"}), nil)
		if err != nil {
			t.Fatal(err)
		}
		if at := tok.NewCuts().Next("a<b>", 1, 4, nil); at != want {
			t.Errorf("with a token of %d bytes, a<b> is cut at %d, want %d", n, at, want)
		}
	}
}
