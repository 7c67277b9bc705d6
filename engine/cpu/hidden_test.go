package cpu

import (
	"encoding/json"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// goldenHidden is testdata/golden/hidden.json: the final hidden states that transformers computes in
// float64, written by testdata/golden_hidden.py.
type goldenHidden struct {
	Torch        string
	Transformers string
	Models       []struct {
		Name    string
		Prompts []struct {
			Tokens     []kv.Token
			Last, Mean []float64
		}
	}
}

// TestGoldenHidden compares hidden states with those of transformers: relative L2 error 1e-5, as for the
// logits. The states before the last norm, or at another position, are far outside.
func TestGoldenHidden(t *testing.T) {
	var g goldenHidden
	if err := json.Unmarshal(readFile(t, "testdata/golden/hidden.json"), &g); err != nil {
		t.Fatal(err)
	}
	if len(g.Models) < 5 {
		t.Fatalf("%d models", len(g.Models))
	}
	models := readGolden(t)
	for _, m := range g.Models {
		b := openDir(t, models.model(t, m.Name).dir(t), Config{KVTokens: 64})
		for i, p := range m.Prompts {
			n := len(p.Tokens)
			state := func(kind engine.Hidden, seq int) []float32 {
				row := engine.Row{Tokens: p.Tokens, Pages: pageRange(0, kv.CeilPages(n, 16)), Hidden: kind}
				res := wait(t, b, &engine.Batch{Seq: uint64(2*i + seq), Binds: []engine.SlotBind{{}}, Rows: []engine.Row{row}})
				return res.Out[0].Hidden
			}
			if rel, _, _ := relL2(state(engine.HiddenLast, 1), p.Last); !(rel <= 1e-5) {
				t.Errorf("%s, %d tokens, against transformers %s with torch %s: the last state is off by %.3g", m.Name, n, g.Transformers, g.Torch, rel)
			}
			mean := state(engine.HiddenSum, 2)
			for j := range mean {
				mean[j] /= float32(n)
			}
			if rel, _, _ := relL2(mean, p.Mean); !(rel <= 1e-5) {
				t.Errorf("%s, %d tokens, against transformers %s with torch %s: the mean state is off by %.3g", m.Name, n, g.Transformers, g.Torch, rel)
			}
		}
	}
}
