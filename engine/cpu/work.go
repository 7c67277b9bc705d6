package cpu

import (
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/model"
)

// Work holds the size of a backend's work per token and per step, to compare its speed with
// Ceilings.
type Work struct {
	LayerParams int // weights that every token is multiplied by
	HeadParams  int // weights of the head, which only sampled tokens are multiplied by
	WeightBytes int // packed size of both, which every decode step reads
}

// rates holds rough speeds of one thread, in multiplications and additions per second. True
// ones depend on the machine and its load, so a scheduler corrects costs by measured times.
type rates struct {
	floats   float64 // products with float weights
	integers float64 // products with quantised weights
	attend   float64 // attention of prompts
}

var isaRates = map[ISA]rates{
	Portable:   {3e9, 9e9, 3e9},
	AVX2:       {90e9, 190e9, 70e9},
	AVXVNNI:    {90e9, 230e9, 70e9},
	AVX512:     {180e9, 190e9, 140e9}, // quantised weights take AVX2's kernels
	AVX512VNNI: {180e9, 410e9, 140e9},
	NEON:       {30e9, 9e9, 25e9}, // by the number of instructions: not measured yet, nor is NEONDot
	NEONDot:    {30e9, 9e9, 25e9},
}

const memoryBytes = 25e9 // per second, read by all threads

// stepCost estimates the cost of a step in seconds from counts of multiply-adds and bytes:
//   - Step reads all packed weights once;
//   - Token multiplies one token by the layers' weights;
//   - Pair is one score and one weighted value, for a token and a token of its context;
//   - Row is a decode row: a token and the head; Draft is the same, one row more to verify;
//   - Context is one token of a decode row's context. No other row shares the read of its KV,
//     so it costs the larger of arithmetic and memory.
func stepCost(c *model.Config, s *step, cfg Config) engine.StepCost {
	attn := 2*c.Hidden*c.Heads*c.HeadDim + 2*c.Hidden*c.KVHeads*c.HeadDim
	own, pair := attn+3*c.Hidden*c.FFN, 2*c.Heads*c.HeadDim // multiply-adds of a layer
	rate := isaRates[cfg.ISA]
	products := rate.floats
	if some, _ := s.w.quantized(); some {
		products = rate.integers
	}
	ops := func(n int, rate float64) float64 { return 2 * float64(n) / (rate * float64(cfg.Threads)) }
	work := (&Backend{step: s}).Work()
	token, attend := ops(c.Layers*own, products), ops(c.Layers*pair, rate.attend)
	context := max(attend, float64(s.arena.pageBytes()/s.arena.tokens)/memoryBytes)
	return engine.StepCost{
		Step: float64(work.WeightBytes) / memoryBytes, Row: token + ops(work.HeadParams, products),
		Token: token, Pair: attend, Context: context, Draft: token + ops(work.HeadParams, products),
	}
}

// Work returns the size of the model's work. It never changes.
func (b *Backend) Work() Work {
	w := b.step.w
	count := func(m *matrix) int {
		n := 4 * (len(m.panels) + len(m.words))
		for _, p := range m.quant {
			n += len(p.supers) + len(p.data)
		}
		return n
	}
	total := Work{HeadParams: w.head.n * w.head.k, WeightBytes: count(w.head)}
	for i := range w.layers {
		l := &w.layers[i]
		for _, m := range []*matrix{l.qkv, l.o, l.gateUp, l.down} {
			total.LayerParams += m.n * m.k
			total.WeightBytes += count(m)
		}
	}
	return total
}
