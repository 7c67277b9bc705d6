package actors

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer/tokenfile"
)

// In a vocabulary with unassigned ids, masks allow no id without a token: not where any
// text may follow, and not beyond the tokenizer's ids, where a model's logits have more
// rows.
func TestMasksAllowNoUnusedID(t *testing.T) {
	data, err := os.ReadFile("../tokenizer/testdata/gaps.json")
	if err != nil {
		t.Fatal(err)
	}
	var gaps struct {
		Files []struct {
			Name string
			File json.RawMessage
		}
	}
	if err := json.Unmarshal(data, &gaps); err != nil {
		t.Fatal(err)
	}
	holes := 0
	for _, f := range gaps.Files {
		tok, err := tokenfile.Parse(f.File, nil)
		if err != nil {
			t.Fatal(err)
		}
		size := tok.VocabSize() + 100
		v := grammar.NewVocabulary(size, func(t kv.Token) []byte { return []byte(tok.Text(t)) })
		any := &grammar.Expr{Op: grammar.Repeat, Sub: []*grammar.Expr{{Op: grammar.Runes, Runes: []grammar.Range{{Lo: 0, Hi: 0x10FFFF}}}}, Max: grammar.Unlimited}
		c, err := grammar.NewCompiler(v, grammar.Rules{any}, grammar.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		for done := false; !done; {
			if done, err = c.Run(1 << 20); err != nil {
				t.Fatal(err)
			}
		}
		mask := make([]uint64, (size+63)/64)
		c.Grammar().NewMatcher().Mask(mask)
		allowed := 0
		for id := range kv.Token(size) {
			if !tok.Known(id) {
				holes++
			}
			if mask[id/64]>>(id%64)&1 == 0 {
				continue
			}
			allowed++
			if !tok.Known(id) || tok.Text(id) == "" {
				t.Errorf("%s: the mask allows %d, which stands for nothing", f.Name, id)
			}
		}
		if allowed < 100 {
			t.Errorf("%s: only %d tokens are allowed", f.Name, allowed)
		}
	}
	if holes < 1000 {
		t.Errorf("only %d holes were looked at", holes)
	}
}
