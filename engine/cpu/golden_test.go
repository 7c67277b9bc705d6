package cpu

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/kv"
)

// golden is testdata/golden/expected.json, made by testdata/golden.py: what
// transformers computes in float64.
type golden struct {
	Torch        string
	Transformers string
	Models       []goldenModel
}

type goldenModel struct {
	Name string
	// SHA256 of the weights of a generated preset, which is not stored.
	SHA256  string `json:"generated_sha256"`
	Prompts []goldenPrompt
}

// goldenPrompt has the logits after the prompt and the best tokens from there on;
// at each of them the second best is 2e-3 or more behind.
type goldenPrompt struct {
	Tokens []kv.Token
	Logits []float64
	Greedy []kv.Token
}

func readGolden(t *testing.T) *golden {
	t.Helper()
	data, err := os.ReadFile("testdata/golden/expected.json")
	if err != nil {
		t.Fatal(err)
	}
	g := new(golden)
	if err := json.Unmarshal(data, g); err != nil {
		t.Fatal(err)
	}
	if len(g.Models) < 4 {
		t.Fatalf("%d models, want 4", len(g.Models))
	}
	return g
}

// dir is the model's directory: nanoDir, or a copy of the stored files beside the
// nano preset's tokenizer.
func (g *goldenModel) dir(t *testing.T) string {
	t.Helper()
	if g.SHA256 != "" {
		sum := sha256.Sum256(readFile(t, filepath.Join(nanoDir, "model.safetensors")))
		if got := hex.EncodeToString(sum[:]); got != g.SHA256 {
			t.Fatalf("the nano preset's weights are %s, the expected logits are of %s: run testdata/golden.py", got, g.SHA256)
		}
		return nanoDir
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata/golden", g.Name))); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "tokenizer.json"), readFile(t, filepath.Join(nanoDir, "tokenizer.json")))
	return dir
}

// run gives the raw logits after the prompt and the greedy continuation.
func (p *goldenPrompt) run(t *testing.T, dir string) (logits []float32, greedy []kv.Token) {
	t.Helper()
	m, err := model.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	n := len(p.Tokens)
	b := openTest(t, m, Config{KVTokens: n + len(p.Greedy)})
	row := engine.Row{Tokens: p.Tokens, Pages: pageRange(0, kv.CeilPages(n, 16)), Sample: true, PromptLogprobs: true}
	batch := &engine.Batch{Binds: []engine.SlotBind{{}}}
	for range p.Greedy {
		batch.Seq++
		batch.Rows = []engine.Row{row}
		greedy = append(greedy, wait(t, b, batch).Out[0].Token)
		if logits == nil {
			logits = slices.Clone(b.step.kept[0].logits) // what a next chunk would need
		}
		row = engine.Row{Start: int32(n), Deferred: true, Pages: pageRange(0, kv.CeilPages(n+1, 16)), Sample: true}
		batch.Binds, n = nil, n+1
	}
	return logits, greedy
}

// check compares with the bounds of an f32 engine: relative L2 error 1e-5, each
// logit within 1e-4·(1+max|logit|), the same tokens.
func (p *goldenPrompt) check(logits []float32, greedy []kv.Token) error {
	if len(logits) != len(p.Logits) {
		return fmt.Errorf("%d logits, want %d", len(logits), len(p.Logits))
	}
	var diff, norm, worst, largest float64
	for i, want := range p.Logits {
		d := float64(logits[i]) - want
		diff += d * d
		norm += want * want
		worst, largest = max(worst, math.Abs(d)), max(largest, math.Abs(want))
	}
	if rel := math.Sqrt(diff / norm); !(rel <= 1e-5) {
		return fmt.Errorf("logits: rel-L2 %.3g, want at most 1e-5", rel)
	}
	if limit := 1e-4 * (1 + largest); !(worst <= limit) {
		return fmt.Errorf("logits: the worst is off by %.3g, want at most %.3g", worst, limit)
	}
	if !slices.Equal(greedy, p.Greedy) {
		return fmt.Errorf("greedy tokens %v, want %v", greedy, p.Greedy)
	}
	return nil
}

// TestGolden holds the backend against transformers.
func TestGolden(t *testing.T) {
	g := readGolden(t)
	for i := range g.Models {
		gm := &g.Models[i]
		t.Run(gm.Name, func(t *testing.T) {
			dir := gm.dir(t)
			for j := range gm.Prompts {
				p := &gm.Prompts[j]
				if err := p.check(p.run(t, dir)); err != nil {
					t.Errorf("%d tokens, against transformers %s with torch %s: %v", len(p.Tokens), g.Transformers, g.Torch, err)
				}
			}
		})
	}
}

// TestGoldenBits pins the bits that NumericsID stands for, on every machine: XXH3
// of all logits of a model's prompts, one after another. Where it fails on a change
// of code, the change needs a new NumericsID; where it fails on one machine alone,
// the compiler fused what must be rounded.
func TestGoldenBits(t *testing.T) {
	if NumericsID != "cpu/f32-seqk/v1" {
		t.Fatalf("NumericsID is %s: pin its bits here", NumericsID)
	}
	want := map[string]uint64{
		"nano": 0xe8991b2779f20ba7, "llama3-tied-f32": 0xbc356caf86883dbd,
		"mistral-bf16": 0x22370bf85eab8803, "llama-tied-f16": 0xaae55f10773227cc,
	}
	g := readGolden(t)
	for i := range g.Models {
		gm := &g.Models[i]
		dir, all := gm.dir(t), []float32(nil)
		for j := range gm.Prompts {
			logits, _ := gm.Prompts[j].run(t, dir)
			all = append(all, logits...)
		}
		if got := digestOf(all); got != want[gm.Name] {
			t.Errorf("%s: %#x, want %#x", gm.Name, got, want[gm.Name])
		}
	}
}

// TestGoldenControls shows that TestGolden can fail: each change of a model's
// config.json, small as it is, must be seen in the logits.
func TestGoldenControls(t *testing.T) {
	for _, c := range []struct{ model, from, to string }{
		{"llama3-tied-f32", `"rope_type": "llama3"`, `"rope_type": "default"`},
		{"llama3-tied-f32", `"high_freq_factor": 4.0`, `"high_freq_factor": 4.01`},
		{"llama3-tied-f32", `"original_max_position_embeddings": 128`, `"original_max_position_embeddings": 129`},
		{"mistral-bf16", `"rope_theta": 10000.0`, `"rope_theta": 10010.0`},
		{"mistral-bf16", `"tie_word_embeddings": false`, `"tie_word_embeddings": true`},
		{"llama-tied-f16", `"rms_norm_eps": 1e-05`, `"rms_norm_eps": 2e-05`},
	} {
		t.Run(c.model+"/"+c.to, func(t *testing.T) {
			g := readGolden(t)
			i := slices.IndexFunc(g.Models, func(m goldenModel) bool { return m.Name == c.model })
			dir, p := g.Models[i].dir(t), &g.Models[i].Prompts[2]
			path := filepath.Join(dir, "config.json")
			before := readFile(t, path)
			after := bytes.Replace(before, []byte(c.from), []byte(c.to), 1)
			if bytes.Equal(before, after) {
				t.Fatalf("config.json has no %s", c.from)
			}
			writeFile(t, path, after)
			if p.check(p.run(t, dir)) == nil {
				t.Error("the logits are within the bounds all the same")
			}
		})
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func writeFile(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}
