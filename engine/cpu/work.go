package cpu

import (
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/model"
)

// Work is what a backend's model costs, to compare speeds with ceilings.
type Work struct {
	LayerParams int // weights that every token is multiplied with
	HeadParams  int // and those that a sampled one is, too
	WeightBytes int // all of them as they are packed: what a decode step reads
}

// rates are roughly the multiplications and additions of a thread per second. They depend
// on the machine and its load, so a scheduler corrects the cost by measured times.
type rates struct {
	floats   float64 // of products with float weights
	integers float64 // of those with quantised weights
	attend   float64 // of prompts' attention
}

var isaRates = map[ISA]rates{
	Portable: {3e9, 3e9, 3e9},
	AVX2:     {90e9, 150e9, 70e9},
	AVX512:   {180e9, 320e9, 140e9},
}

const memoryBytes = 25e9 // per second, read by all threads

// stepCost counts multiply-adds and bytes: those of a token's weights, and of the scores
// and values for a token of context. A decode row costs a token and the head, and its
// attention shares no KV with other rows.
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
		Token: token, Pair: attend, Context: context,
	}
}

// Work is constant.
func (b *Backend) Work() Work {
	w := b.step.w
	count := func(m *matrix) int {
		n := 4 * (len(m.panels) + len(m.words))
		for _, p := range m.quant {
			n += len(p.data)
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
