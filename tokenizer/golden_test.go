package tokenizer

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/coppice-llm/coppice/kv"
)

// trainedSpecial are special tokens as in real files: BOS, EOS, a turn's end.
var trainedSpecial = []string{"<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|eot|>"}

// trainedFile is a tokenizer.json that package trainer makes; its tests write it.
const trainedFile = "testdata/tokenizer.json"

// golden is testdata/golden.json: encodings by Hugging Face's library with the trained file and
// variants of it. See testdata/golden.py.
type golden struct {
	MadeWith struct{ Tokenizers string } `json:"made_with"`
	Texts    []string
	Variants []variant
	Decodes  []struct {
		IDs     []kv.Token
		Decoded string
	}
}

// variant is the trained file with some fields replaced. Pieces and Decoded are nil if they equal
// those of an earlier variant.
type variant struct {
	Name    string
	Patch   map[string]json.RawMessage
	Pieces  [][]int
	IDs     [][]kv.Token
	Prompt  []kv.Token
	Decoded []string
}

func readGolden(t testing.TB) (golden, []byte) {
	t.Helper()
	base, err := os.ReadFile(trainedFile)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	if len(g.Texts) < 100 || len(g.Variants) < 8 || g.MadeWith.Tokenizers == "" {
		t.Fatalf("golden.json holds too little: %d texts, %d variants", len(g.Texts), len(g.Variants))
	}
	return g, base
}

// open returns the tokenizer of base, the trained file, with v's replacements.
func (v variant) open(t testing.TB, base []byte) *Tokenizer {
	t.Helper()
	file := map[string]any{}
	if err := json.Unmarshal(base, &file); err != nil {
		t.Fatal(err)
	}
	for key, value := range v.Patch {
		if key != "model" {
			file[key] = value
			continue
		}
		model, fields := file["model"].(map[string]any), map[string]any{}
		if err := json.Unmarshal(value, &fields); err != nil {
			t.Fatal(err)
		}
		for key, value := range fields {
			if key == "merges" {
				value = rewriteMerges(model["merges"].([]any), value.(string))
			}
			model[key] = value
		}
	}
	data, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := parse(data, nil)
	if err != nil {
		t.Fatalf("%s: %v", v.Name, err)
	}
	return tok
}

// rewriteMerges returns merges, a list of "a b", in reverse order if how is "reversed", or else
// as a list of pairs.
func rewriteMerges(merges []any, how string) any {
	if how == "reversed" {
		slices.Reverse(merges)
		return merges
	}
	pairs := make([][]string, len(merges))
	for i, m := range merges {
		pairs[i] = strings.Split(m.(string), " ")
	}
	return pairs
}

func TestGoldenEncodings(t *testing.T) {
	g, base := readGolden(t)
	for _, v := range g.Variants {
		tok := v.open(t, base)
		for i, text := range g.Texts {
			if got := tok.Encode(nil, text); !slices.Equal(got, v.IDs[i]) {
				t.Errorf("%s: %q\n got %v\nwant %v", v.Name, text, got, v.IDs[i])
			}
			if v.Pieces != nil {
				if got := pieceLengths(tok, text); !slices.Equal(got, v.Pieces[i]) {
					t.Errorf("%s: %q: pieces %v, want %v", v.Name, text, got, v.Pieces[i])
				}
			}
			if v.Decoded != nil {
				if got := toValid(tok.Decode(nil, v.IDs[i], true)); got != v.Decoded[i] {
					t.Errorf("%s: %q decodes to %q, want %q", v.Name, text, got, v.Decoded[i])
				}
			}
		}
		if got := tok.EncodePrompt(nil, g.Texts[1]); !slices.Equal(got, v.Prompt) {
			t.Errorf("%s: prompt %v, want %v", v.Name, got, v.Prompt)
		}
	}
}

func TestGoldenDecodings(t *testing.T) {
	g, base := readGolden(t)
	tok := g.Variants[0].open(t, base)
	for _, d := range g.Decodes {
		if got := toValid(tok.Decode(nil, d.IDs, true)); got != d.Decoded {
			t.Errorf("%v decodes to %q, want %q", d.IDs, got, d.Decoded)
		}
		if got := stream(tok, d.IDs); got != d.Decoded {
			t.Errorf("%v streams to %q, want %q", d.IDs, got, d.Decoded)
		}
	}
}

// pieceLengths returns the lengths of the pieces that the Splits of tok make of text.
func pieceLengths(tok *Tokenizer, text string) []int {
	pieces := []string{text}
	for i := range tok.cutters {
		c := &tok.cutters[i]
		var cut []string
		for _, piece := range pieces {
			c.pieces(piece, &scratch{}, func(at span) bool {
				cut = append(cut, piece[at.lo:at.hi])
				return true
			})
		}
		pieces = cut
	}
	lengths := make([]int, len(pieces))
	for i, piece := range pieces {
		lengths[i] = len(piece)
	}
	return lengths
}

// stream decodes ids with a Detokenizer, token by token.
func stream(tok *Tokenizer, ids []kv.Token) string {
	d := tok.NewDetokenizer()
	var out []byte
	for _, id := range ids {
		out = d.Next(out, id)
	}
	return string(d.Flush(out))
}

// toValid returns b with each maximal subpart replaced by U+FFFD. It is slow and plain: a subpart
// is the longest prefix of the remaining bytes that is also a prefix of some rune.
func toValid(b []byte) string {
	var out []byte
	for len(b) > 0 {
		if r, n := utf8.DecodeRune(b); r != utf8.RuneError || n > 1 {
			out = append(out, b[:n]...)
			b = b[n:]
			continue
		}
		n := 1
		for k := 2; k <= min(3, len(b)); k++ {
			if runeBeginnings[string(b[:k])] {
				n = k
			}
		}
		out = append(out, "\uFFFD"...)
		b = b[n:]
	}
	return string(out)
}

// runeBeginnings has every proper prefix of the encoding of a rune.
var runeBeginnings = func() map[string]bool {
	set := map[string]bool{}
	for r := rune(0); r <= utf8.MaxRune; r += 0x40 { // the last byte has 6 bits
		if s := string(r); utf8.ValidRune(r) {
			for n := 1; n < len(s); n++ {
				set[s[:n]] = true
			}
		}
	}
	return set
}()
