package cuda

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv/vm"
	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/gguf"
	"github.com/coppice-llm/coppice/engine/model/random"
	"github.com/coppice-llm/coppice/kv"
)

// quantised returns a small model whose matrices have that type.
func quantised(t testing.TB, preset random.Preset, of gguf.Type) *model.Model {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := random.GenerateGGUF(path, random.Spec{Preset: preset, Seed: 3, Arch: model.Qwen2}, of); err != nil {
		t.Fatal(err)
	}
	m, err := model.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// mixed returns a model as the recipe Q4_K_M of llama.cpp makes them: values, down and head are Q6_K, all
// other matrices Q4_K.
func mixed(t testing.TB) *model.Model {
	m, wider := quantised(t, random.Mini, gguf.Q4_K), quantised(t, random.Mini, gguf.Q6_K)
	for i := range m.Layers() {
		l, from := &m.Layers()[i], &wider.Layers()[i]
		*l.V, *l.Down = *from.V, *from.Down
	}
	*m.Head() = *wider.Head()
	return m
}

var prompt = []kv.Token{5, 300, 17, 17, 211, 9, 1, 88, 260, 3, 42, 7, 199}

// TestQuantisedWeights checks that weights that stay quantised give the logits of weights that are rounded
// to bf16, in every bit: for a prompt, for its tokens one by one, and with slices in blocks of their own. The
// weights must take less memory.
func TestQuantisedWeights(t *testing.T) {
	if raceDetector {
		t.Skip("one goroutine, ten times slower")
	}
	long := slices.Concat(prompt, prompt, prompt, prompt, prompt, prompt)[:70]
	driver := vm.New(ptxvm.Config{MemoryBytes: 512 << 20})
	for name, c := range map[string]struct {
		m      *model.Model
		forms  int
		tokens []kv.Token
		chunks []int
	}{
		"Q8_0":   {quantised(t, random.Nano, gguf.Q8_0), 1, long, []int{70}},
		"Q4_K_M": {mixed(t), 2, prompt[:5], []int{5, 1}},
	} {
		logits := func(chunk int, widened bool) []float32 {
			b, err := Open(c.m, Config{Driver: driver, KVTokens: 96, MaxSlots: 1, MaxRows: 2, MaxTokens: 80, BF16Weights: widened})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			return logitsAfter(t, b, c.tokens, chunk)
		}
		want := logits(c.chunks[0], true)
		for _, chunk := range c.chunks {
			if !slices.Equal(logits(chunk, false), want) {
				t.Errorf("%s, %d tokens at a time: other bits than in bf16", name, chunk)
			}
		}
		plan := func(widened bool) weightPlan {
			return (&device{model: c.m.Config(), cfg: Config{BF16Weights: widened}}).planWeights(c.m, 96)
		}
		wide, packed := plan(true), plan(false)
		if packed.bytes >= wide.bytes || len(packed.forms) != c.forms || len(wide.forms) != 0 || wide.widest != 0 {
			t.Errorf("%s: %+v; in bf16 %+v", name, packed, wide)
		}
	}
}

// cpuLogits returns the CPU engine's logits after the prompt, less a constant.
func cpuLogits(t *testing.T, m *model.Model) []float64 {
	t.Helper()
	b, err := cpu.Open(m, cpu.Config{KVTokens: 64, MaxSlots: 1, MaxRows: 1, MaxTokens: 32, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	run := func(seq uint64, row engine.Row) []engine.RowOut {
		ticket, err := b.Submit(&engine.Batch{Seq: seq, Rows: []engine.Row{row}})
		if err != nil {
			t.Fatal(err)
		}
		<-ticket.Done()
		res, err := ticket.Result()
		if err != nil {
			t.Fatal(err)
		}
		return res.Out
	}
	last := len(prompt) - 1
	run(1, engine.Row{Tokens: prompt[:last], Pages: []kv.PageID{0}})
	var all []float64
	for v := range kv.Token(m.Config().Vocab) { // the log-probability of v after the prompt
		out := run(uint64(v)+2, engine.Row{Start: int32(last), Tokens: []kv.Token{prompt[last], v}, PromptLogprobs: true})
		all = append(all, float64(out[0].Prompt[1]))
	}
	return all
}

// centred returns x less its mean.
func centred(x []float64) []float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	out := slices.Clone(x)
	for i := range out {
		out[i] -= sum / float64(len(x))
	}
	return out
}

// TestQuantisedDistance bounds the distance of the logits from those of the CPU engine, which multiplies
// quantised weights by activations in 8 bits. With -shapes and -v it prints
// the distances that docs/gpu.md has.
func TestQuantisedDistance(t *testing.T) {
	if raceDetector {
		t.Skip("one goroutine, ten times slower")
	}
	driver := vm.New(ptxvm.Config{MemoryBytes: 512 << 20})
	models := map[string]*model.Model{"Q8_0": quantised(t, random.Nano, gguf.Q8_0)}
	if *AllShapes {
		models = map[string]*model.Model{"Q8_0": quantised(t, random.Mini, gguf.Q8_0), "Q4_K": quantised(t, random.Mini, gguf.Q4_K), "Q4_K_M": mixed(t)}
	}
	for name, m := range models {
		b, err := Open(m, Config{Driver: driver, KVTokens: 96, MaxSlots: 1, MaxRows: 2, MaxTokens: 32})
		if err != nil {
			t.Fatal(err)
		}
		var got []float64
		for _, x := range logitsAfter(t, b, prompt, len(prompt)) {
			got = append(got, float64(x))
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		rel := relative(centred(got), centred(cpuLogits(t, m)))
		t.Logf("%s: rel-L2 %.3g", name, rel)
		if !(rel <= 3e-2) {
			t.Errorf("%s: rel-L2 %.3g from the CPU engine", name, rel)
		}
	}
}

// TestQuantisedMemory checks the plan of memory for the weights of Llama-3.1-8B: in Q4_K they take about 5 GB,
// and 16 GB in bf16.
func TestQuantisedMemory(t *testing.T) {
	c := &model.Config{Hidden: 4096, FFN: 14336, Layers: 32, Heads: 32, KVHeads: 8, HeadDim: 128, Vocab: 128256, MaxPositions: 8192}
	for _, x := range []struct {
		of       gguf.Type
		widened  bool
		from, to float64
	}{{gguf.Q4_K, false, 4.6, 4.8}, {gguf.Q8_0, false, 8.5, 9}, {gguf.Q4_K, true, 16, 16.5}} {
		m := random.Zeros(c, x.of)
		d := &device{model: c, cfg: Config{BF16Weights: x.widened}}
		if gb := float64(d.planWeights(m, c.MaxPositions).bytes) / 1e9; gb < x.from || gb > x.to {
			t.Errorf("%v, widened %v: %.2f GB, want %v to %v", x.of, x.widened, gb, x.from, x.to)
		}
	}
}
