package actors

import (
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// TestSpecialText: the special tokens of Request.SpecialText have their text at their places, whole
// characters around it, others have none. Stop strings are found as if none had text.
func TestSpecialText(t *testing.T) {
	s := start(t, Config{}, cpu.Config{})
	tok := nano.Tokenizer()
	shown, _ := tok.AddedToken("<|start_header_id|>")
	other, _ := tok.AddedToken("<|end_header_id|>")
	rune3 := tok.Encode(nil, "€") // bytes of a rune, a token each
	for _, tc := range []struct {
		name, stop string
		parts      []any // text, or a token
		ends       bool  // the stop string ends the output
		want       string
	}{
		{"alone", "", []any{shown}, false, "<|start_header_id|>"},
		{"between", "", []any{"ab", shown, other, "c", shown}, false, "ab<|start_header_id|>c<|start_header_id|>"},
		{"in a rune", "", []any{rune3[0], shown, "x"}, false, "\uFFFD<|start_header_id|>x"},
		{"no stop", "zz", []any{"az", shown, "b", shown}, false, "az<|start_header_id|>b<|start_header_id|>"},
		{"held at the end", "zz", []any{"az", shown}, false, "az<|start_header_id|>"},
		{"before a stop", "zz", []any{"a", shown, "bzz"}, true, "a<|start_header_id|>b"},
		{"across a mark", "bzz", []any{shown, "ab", shown, shown, "zz"}, true, "<|start_header_id|>a"},
		{"a mark's own text", "<|start", []any{shown, "a"}, false, "<|start_header_id|>a"},
	} {
		stream := newStream(1, s, 1)
		stream.special = []kv.Token{shown}
		if tc.stop != "" {
			var err error
			if stream.stops, err = grammar.NewStops([]string{tc.stop}); err != nil {
				t.Fatal(err)
			}
		}
		var tokens []kv.Token
		for _, p := range tc.parts {
			switch p := p.(type) {
			case string:
				tokens = tok.Encode(tokens, p)
			case kv.Token:
				tokens = append(tokens, p)
			}
		}
		for i, token := range tokens {
			out := &scheduler.Output{Token: token}
			if tc.ends && i == len(tokens)-1 {
				out.Ending.StopString = tc.stop
			}
			stream.push(out)
		}
		end := &scheduler.Output{Final: true, Ending: scheduler.Ending{Reason: scheduler.Stop}}
		if tc.ends {
			end.Ending.StopString = tc.stop
		}
		stream.finish(end)
		if piece, ok, err := stream.take(); !ok || err != nil || piece.Text != tc.want {
			t.Errorf("%s: %q, %v, want %q", tc.name, piece.Text, err, tc.want)
		}
	}
}

// TestPredictionIsText: what looks like a special token in a prediction is text, as an output with that text has it.
// A prediction that is longer than a prompt can be is not used.
func TestPredictionIsText(t *testing.T) {
	s := start(t, Config{}, cpu.Config{})
	a := &tokenizerActor{sys: s, tok: nano.Tokenizer(), encoder: nano.Tokenizer().NewEncoder()}
	text := "begin <|end_of_text|><|start_header_id|>\x00 end"
	tokens := a.predicted(text)
	for _, control := range a.tok.ControlTokens() {
		if id, _ := a.tok.AddedToken(control); slices.Contains(tokens, id) {
			t.Errorf("%v has the token %s", tokens, control)
		}
	}
	if got := string(a.tok.Decode(nil, tokens, false)); got != text {
		t.Errorf("the prediction has become %q", got)
	}
	if long := a.predicted(strings.Repeat("What is light? ", 1<<16)); long != nil {
		t.Errorf("a prediction of 1 MB has %d tokens", len(long))
	}
}
