package jsonschema

import (
	"encoding/json"
	"testing"

	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/internal/runeset"
)

// TestLengths: sums and products of lengths stop at enough, which needs care with ints of 32 bits.
func TestLengths(t *testing.T) {
	for _, got := range []int{plus(enough, enough), plus(enough-1, 2), times(enough, enough), times(2, enough-1)} {
		if got != enough {
			t.Errorf("%d, want %d", got, enough)
		}
	}
	if got := plus(enough-2, 1); got != enough-1 {
		t.Error(got)
	}
}

// TestWritten checks that each rune has one written form, which a JSON parser reads back.
func TestWritten(t *testing.T) {
	all := grammar.Rules{written(runes(grammar.Range{Lo: 0, Hi: 0x10FFFF}))}
	for r := rune(0); r < 0x300; r++ {
		text := escape(string(r))
		var back string
		if err := json.Unmarshal([]byte(`"`+text+`"`), &back); err != nil || back != string(r) {
			t.Errorf("%q is read back as %q: %v", r, back, err)
		}
		one := grammar.Rules{written(runes(grammar.Range{Lo: r, Hi: r}))}
		others := grammar.Rules{written(runes(runeset.One(r).Complement()...))}
		if !matches(all, text) || !matches(one, text) || matches(others, text) {
			t.Errorf("%q as %s: %v, %v, %v", r, text, matches(all, text), matches(one, text), matches(others, text))
		}
	}
}
