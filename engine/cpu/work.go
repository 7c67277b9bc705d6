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

// What a thread does a second, roughly: it depends on the machine and on what else runs on
// it. Whoever goes by the cost corrects it by measured times.
const (
	threadFlops = 20e9 // multiplications and additions
	memoryBytes = 10e9 // all threads
)

// stepCost counts multiply-adds and bytes: those of a token's weights, and of the scores
// and values for a token of context.
func stepCost(c *model.Config, s *step, cfg Config) engine.StepCost {
	attn := 2*c.Hidden*c.Heads*c.HeadDim + 2*c.Hidden*c.KVHeads*c.HeadDim
	own, pair := attn+3*c.Hidden*c.FFN, 2*c.Heads*c.HeadDim // multiply-adds of a layer
	second := threadFlops * float64(cfg.Threads)
	perLayer := 2 * float64(c.Layers) / second
	work := (&Backend{step: s}).Work()
	return engine.StepCost{
		Step: float64(work.WeightBytes) / memoryBytes, Row: 2 * float64(work.HeadParams) / second,
		Token: perLayer * float64(own), Pair: perLayer * float64(pair), Context: perLayer * float64(pair),
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
