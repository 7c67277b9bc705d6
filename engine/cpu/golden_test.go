package cpu

import (
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

// golden is testdata/golden/expected.json: the values that transformers computes in float64,
// written by testdata/golden.py.
type golden struct {
	Python       string
	Torch        string
	Transformers string
	Models       []goldenModel
}

type goldenModel struct {
	Name string
	// Generated is the SHA-256 of the weights of a generated preset, which is not
	// stored; Files are those of a stored model, by name.
	Generated string            `json:"generated_sha256"`
	Files     map[string]string `json:"sha256"`
	InvFreq   []float32         `json:"inv_freq"` // of the rotary embedding
	Prompts   []goldenPrompt
}

// goldenPrompt has the logits after the prompt and its greedy continuation. At each token the
// second best logit is at least 2e-3 lower, so rounding does not change the choice.
type goldenPrompt struct {
	Tokens []kv.Token
	Logits []float64
	Greedy []kv.Token
	// States are the residual stream at the last token, after the embedding and
	// after each layer.
	States [][]float64
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
	return g
}

func (g *golden) model(t *testing.T, name string) *goldenModel {
	t.Helper()
	i := slices.IndexFunc(g.Models, func(m goldenModel) bool { return m.Name == name })
	if i < 0 {
		t.Fatalf("no model %s", name)
	}
	return &g.Models[i]
}

// dir returns the model's directory: nanoDir, or a copy of the stored files together with the
// nano preset's tokenizer. It checks that the files have the hashes for which the expected
// values were computed.
func (g *goldenModel) dir(t *testing.T) string {
	t.Helper()
	is := func(path, want string) {
		sum := sha256.Sum256(readFile(t, path))
		if got := hex.EncodeToString(sum[:]); got != want {
			t.Fatalf("%s is %s, the expected logits are of %s: run testdata/golden.py", path, got, want)
		}
	}
	if g.Generated != "" {
		is(filepath.Join(nanoDir, "model.safetensors"), g.Generated)
		return nanoDir
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata/golden", g.Name))); err != nil {
		t.Fatal(err)
	}
	if len(g.Files) < 2 {
		t.Fatalf("%s: %d files", g.Name, len(g.Files))
	}
	for name, want := range g.Files {
		is(filepath.Join(dir, name), want)
	}
	writeFile(t, filepath.Join(dir, "tokenizer.json"), readFile(t, filepath.Join(nanoDir, "tokenizer.json")))
	return dir
}

// run opens the model in dir and returns the raw logits after the prompt and the greedy
// continuation. alter, if not nil, may damage the backend first.
func (p *goldenPrompt) run(t *testing.T, dir string, alter func(*step)) (logits []float32, greedy []kv.Token) {
	t.Helper()
	n := len(p.Tokens)
	b := openDir(t, dir, Config{KVTokens: n + len(p.Greedy)})
	if alter != nil {
		alter(b.step)
	}
	row := engine.Row{Tokens: p.Tokens, Pages: pageRange(0, kv.CeilPages(n, 16)), Sample: true, PromptLogprobs: true}
	batch := &engine.Batch{Binds: []engine.SlotBind{{}}}
	for range p.Greedy {
		batch.Seq++
		batch.Rows = []engine.Row{row}
		greedy = append(greedy, wait(t, b, batch).Out[0].Token)
		if logits == nil {
			logits = slices.Clone(b.step.kept[0].logits) // kept for the slot's next chunk
		}
		row = engine.Row{Start: int32(n), Deferred: true, Pages: pageRange(0, kv.CeilPages(n+1, 16)), Sample: true}
		batch.Binds, n = nil, n+1
	}
	return logits, greedy
}

// openDir opens a backend on the model in dir.
func openDir(t *testing.T, dir string, cfg Config) *Backend {
	t.Helper()
	m, err := model.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	return openTest(t, m, cfg)
}

// relL2 returns |got-want|/|want|, the largest difference of an element, and the largest
// magnitude of want.
func relL2(got []float32, want []float64) (rel, worst, largest float64) {
	var diff, norm float64
	for i, w := range want {
		d := float64(got[i]) - w
		diff += d * d
		norm += w * w
		worst, largest = max(worst, math.Abs(d)), max(largest, math.Abs(w))
	}
	return math.Sqrt(diff / norm), worst, largest
}

// check compares with the bounds of an f32 engine: relative L2 error 1e-5, each
// logit within 1e-4·(1+max|logit|), the same tokens.
func (p *goldenPrompt) check(logits []float32, greedy []kv.Token) error {
	if len(logits) != len(p.Logits) {
		return fmt.Errorf("%d logits, want %d", len(logits), len(p.Logits))
	}
	rel, worst, largest := relL2(logits, p.Logits)
	if !(rel <= 1e-5) {
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

// goldenBits pins the bits that NumericsID stands for, on every machine: XXH3 of the
// concatenated logits of a model's prompts. If they differ after a change of code, the change
// needs a new NumericsID. If they differ on one machine only, its compiler fused a product and
// a sum that must be rounded separately.
var goldenBits = map[string]uint64{
	"nano": 0xe8991b2779f20ba7, "llama3-tied-f32": 0xbc356caf86883dbd,
	"mistral-bf16": 0x22370bf85eab8803, "llama-tied-f16": 0xaae55f10773227cc,
	"llama3-d64-bf16": 0x7ab11ed78e442908, "llama-bias-f16": 0xd7a8dd9baae9ff06,
	"mistral-d64-f16": 0x4f509e4d9829ccb3, "qwen2-d16-bf16": 0x31243fdd40fe5ed2,
	"qwen2-d64-f16": 0x561de7eb7ee2d2f8, "qwen3-d16-bf16": 0xbc2bf032ed530283,
	"qwen3-d64-f16": 0x5c0b880fd876ccf1, "mistral-d32-f16": 0x69435144d7bebb4b,
	"qwen2-d32-f32": 0xf2465854a222a096, "qwen3-d32-bf16": 0x8aef1d028ea7e4f7,
	"llama3-d128-bf16": 0xf591a070b31ce1b9, "mistral-d128-bf16": 0x791c44e616058015,
	"qwen2-d128-f16": 0x0a808eac2d18b4f8, "qwen3-d128-bf16": 0x4662f21e5fe0bf21,
	"llama-d80-f16": 0x106cd6bc56703b49, "qwen3-d96-bf16": 0xb9b11fcc7f6fefbb,
}

// TestGolden compares the backend with transformers within bounds, and with its own pinned
// bits exactly. -v prints the errors.
func TestGolden(t *testing.T) {
	if NumericsID != "cpu/f32-seqk/v1" {
		t.Fatalf("NumericsID is %s: pin its bits in goldenBits", NumericsID)
	}
	g := readGolden(t)
	for i := range g.Models {
		gm := &g.Models[i]
		t.Run(gm.Name, func(t *testing.T) {
			dir, all := gm.dir(t), []float32(nil)
			for j := range gm.Prompts {
				p := &gm.Prompts[j]
				logits, greedy := p.run(t, dir, nil)
				if err := p.check(logits, greedy); err != nil {
					t.Errorf("%d tokens, against transformers %s with torch %s: %v", len(p.Tokens), g.Transformers, g.Torch, err)
				}
				rel, _, _ := relL2(logits, p.Logits)
				t.Logf("%d tokens: rel-L2 %.2g", len(p.Tokens), rel)
				all = append(all, logits...)
			}
			if got, want := digestOf(all), goldenBits[gm.Name]; got != want {
				t.Errorf("the logits' bits: %#x, want %#x", got, want)
			}
		})
	}
}

// TestGoldenLayers shows in which layer an error begins: a backend that lacks the layers from
// n on leaves the output of layer n-1 in x.
func TestGoldenLayers(t *testing.T) {
	g := readGolden(t)
	for i := range g.Models {
		gm := &g.Models[i]
		dir := gm.dir(t)
		for _, p := range gm.Prompts[:3] {
			n := len(p.Tokens)
			for layers, want := range p.States[1:] {
				b := openDir(t, dir, Config{KVTokens: n})
				b.step.w.layers = b.step.w.layers[:layers+1]
				wait(t, b, &engine.Batch{Seq: 1, Rows: []engine.Row{{Tokens: p.Tokens, Pages: pageRange(0, kv.CeilPages(n, 16))}}})
				if rel, _, _ := relL2(b.step.x[(n-1)*len(want):], want); !(rel <= 1e-5) {
					t.Errorf("%s, %d tokens, layer %d: rel-L2 %.3g, want at most 1e-5", gm.Name, n, layers, rel)
				}
			}
		}
	}
}

// TestGoldenFrequencies compares rotary frequencies. transformers computes powers in f32, so
// its last bit or two differ from the correctly rounded value. Where the head dim is no power
// of two, its exponents are rounded too, by half a bit, which theta's logarithm multiplies.
func TestGoldenFrequencies(t *testing.T) {
	g := readGolden(t)
	for i := range g.Models {
		gm := &g.Models[i]
		m, err := model.Open(gm.dir(t))
		if err != nil {
			t.Fatal(err)
		}
		c := m.Config()
		got, limit := c.RopeFrequencies(), 2
		if c.HeadDim&(c.HeadDim-1) != 0 {
			limit += int(math.Ceil(math.Log(c.RopeTheta) / 2))
		}
		m.Close()
		if len(got) != len(gm.InvFreq) {
			t.Fatalf("%s: %d frequencies, want %d", gm.Name, len(got), len(gm.InvFreq))
		}
		for j, want := range gm.InvFreq {
			if d := int(math.Float32bits(got[j])) - int(math.Float32bits(want)); d < -limit || d > limit {
				t.Errorf("%s: frequency %d is %v, want %v: %d ulp off", gm.Name, j, got[j], want, d)
			}
		}
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
