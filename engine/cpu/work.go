package cpu

// Work is what a backend's model costs, to compare speeds with ceilings.
type Work struct {
	LayerParams int // weights that every token is multiplied with
	HeadParams  int // and those that a sampled one is, too
	WeightBytes int // all of them as they are packed: what a decode step reads
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
