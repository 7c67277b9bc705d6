package cuda

import (
	"fmt"
	"math/bits"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/cuda/kernels"
)

// How a product is stored, as in gemm.cu.
const (
	toBF16 = int32(iota)
	toF32
	addF32
	swiGLU // columns alternate: four gates, four values
)

// The bytes of an element, by how a product is stored. A product that is stored as swiGLU has one piece.
var outBytes = [...]int{toBF16: 2, toF32: 4, addF32: 4, swiGLU: 0}

// launcher queues the kernels of one plan. After an error it queues nothing.
type launcher struct {
	*device
	p   *plan
	err error
}

// moreAt returns the offset of the buffer more in the uploaded data.
func (p *plan) moreAt() int { return blocks(len(p.data), 16) * 16 }

// step queues all work of a plan whose data has been uploaded. logits is pinned memory that gets the
// logits of all samples; empty if no row asks for a digest. A plan with a graph has none: its
// logits stay on the device.
func (l *launcher) step(logits []byte) error {
	l.prepare()
	if l.p.tokens > 0 && l.err == nil && !(l.p.graph && l.graph()) {
		l.kernels(logits)
	}
	return l.err
}

// prepare binds slots, sets masks, copies pages and updates page tables.
func (l *launcher) prepare() {
	p, r, c := l.p, &l.room, l.model
	if n := p.cleared.n; n > 0 {
		l.launch("slot_clear", n, 1, 256, 0, r.last, r.counts, l.before(p.cleared), int32(0))
	}
	if n := p.clearedCounted.n; n > 0 {
		l.launch("slot_clear", n, 8, 256, 0, r.last, r.counts, l.before(p.clearedCounted), int32(c.Vocab))
	}
	if n := p.counted.n; n > 0 {
		l.launch("slot_count", blocks(n, 256), 1, 256, 0, r.counts, l.before(p.counted), int32(n), int32(c.Vocab))
	}
	for _, m := range p.masks {
		if l.err == nil {
			l.err = l.ctx.CopyWithin(l.stream, r.masks+cudrv.Ptr(l.maskBytes()*int(m.first-1)), l.before(part{at: m.at}), l.maskBytes()*m.n)
		}
	}
	slot := c.HeadDim / 8 // pieces of 16 bytes of one slot of a strip
	for _, x := range p.copies {
		l.launch("page_copy", x.n, 2*c.Layers*c.KVHeads, 128, 0, r.pool, l.before(x), uint64(l.pageElements/8), int32(l.cfg.PageTokens*slot), int32(slot))
	}
	if n := p.tables.n; n > 0 && p.tablesFirst {
		l.launch("table_write", blocks(n, 256), 1, 256, 0, r.table, l.before(p.tables), int32(n), int32(l.perSlot), cudrv.Ptr(0))
	}
}

// before returns the device address of a part of the plan's buffer more.
func (l *launcher) before(x part) cudrv.Ptr { return l.meta + cudrv.Ptr(l.p.moreAt()+x.at) }

// kernels queues the kernels that a graph consists of. It launches them for the plan's sizes; the
// kernels read the actual numbers from the live counts. logits is as for step.
func (l *launcher) kernels(logits []byte) {
	if n := l.p.sizes.tokens; l.p.graph {
		l.launch("table_write", blocks(n, 256), 1, 256, 0, l.room.table, l.at(l.p.written), int32(n), int32(l.perSlot), l.live(liveTables))
	}
	l.forward()
	l.finish(logits)
}

// forward queues all layers; x then holds the last layer's output.
func (l *launcher) forward() {
	p, r, c := l.p, &l.room, l.model
	heads, all, ffn := c.Heads*c.HeadDim, (c.Heads+2*c.KVHeads)*c.HeadDim, kernels.Padded(c.FFN)
	n, live := p.sizes.tokens, l.live(liveTokens)
	if l.err == nil {
		l.err = l.ctx.Fill32(l.stream, r.failed, 0, p.rowRoom())
	}
	embed, table := "embed", l.w.embed[0]
	if table.form != nil {
		embed = table.form.Kernel(embed)
	}
	l.launch(embed, n, 1, 256, 0, r.x, r.failed, table.at, l.at(p.ids), l.at(p.slots), l.at(p.rowOf), r.last, int32(c.Hidden), l.w.embedType, live)
	for i := range l.w.layers {
		w := &l.w.layers[i]
		l.norm(n, w.attnNorm, 0, live)
		l.product(r.qkv, r.acts, w.qkv, w.qkvBias, n, all, c.Hidden, toF32, live)
		layer := i * l.pageElements / c.Layers
		l.launch("rope_write", n, c.Heads+2*c.KVHeads, 32, 0, r.q, r.pool, r.qkv, w.qNorm, w.kNorm, l.w.cosine, l.w.sine,
			l.at(p.slots), l.at(p.positions), r.table, uint64(l.pageElements), uint64(layer),
			int32(l.perSlot), l.pageShift(), int32(c.Heads), int32(c.KVHeads), int32(c.HeadDim), float32(c.NormEps), live)
		l.attention(layer)
		l.product(r.x, r.acts, w.o, w.oBias, n, c.Hidden, heads, addF32, live)
		l.norm(n, w.ffnNorm, 0, live)
		l.product(r.ffn, r.acts, w.gateUp, w.gateUpBias, n, 2*ffn, c.Hidden, swiGLU, live)
		l.product(r.x, r.ffn, w.down, w.downBias, n, c.Hidden, ffn, addF32, live)
	}
	l.launch("check_finite", n, 1, 256, 0, r.failed, r.x, l.at(p.rowOf), int32(c.Hidden), live)
}

// attention queues the attention of one layer, which reads q and pages and writes acts. layer is
// the offset of the layer in a page, in elements.
func (l *launcher) attention(layer int) {
	p, r, c := l.p, &l.room, l.model
	kernel := func(name string) string { return fmt.Sprint(name, c.HeadDim) }
	cache := []any{r.q, r.pool, r.table, uint64(l.pageElements), uint64(layer), int32(l.perSlot), l.pageShift(), int32(c.KVHeads)}
	if n := p.prefill.n; n > 0 {
		args := append(append([]any{r.acts}, cache...), l.at(p.prefill), l.at(p.slots), l.at(p.positions), int32(c.Heads), l.scale())
		l.launch(kernel("attn_prefill_"), n, c.KVHeads, 128, l.tileBytes(), args...)
	}
	for _, x := range p.passes {
		items, n, splitsLive, tokensLive := x.splits.n, x.n, cudrv.Ptr(0), cudrv.Ptr(0)
		if p.graph {
			items, n, splitsLive, tokensLive = p.sizes.splits, p.sizes.tokens, l.live(liveSplits), l.live(liveDecoding)
		}
		first := cudrv.Ptr(x.first)
		states := r.states - first*cudrv.Ptr(x.maxSplits*l.stateBytes()) // of token 0
		args := append(append([]any{states}, cache...), l.at(p.splits)+cudrv.Ptr(16*x.splits.at), l.meta, l.at(p.slots), l.at(p.positions),
			int32(c.Heads), int32(x.maxSplits), l.scale(), splitsLive)
		l.launch(kernel("attn_decode_"), items, c.KVHeads, 128, l.tileBytes(), args...)
		out := r.acts + first*cudrv.Ptr(2*kernels.Padded(c.Heads*c.HeadDim))
		l.launch("attn_merge", n, c.Heads, 128, 0, out, r.states, l.at(p.positions)+4*first, int32(c.Heads), int32(c.HeadDim), int32(x.maxSplits), tokensLive)
	}
}

// pageShift returns the base-2 logarithm of the tokens of a page.
func (l *launcher) pageShift() int32 { return int32(bits.TrailingZeros(uint(l.cfg.PageTokens))) }

// finish queues the requested log-probabilities of prompts, the logits and the sampling, for MaxRows
// samples at a time. It copies the logits of all samples to logits, unless that is empty.
func (l *launcher) finish(logits []byte) {
	p, r, c := l.p, &l.room, l.model
	l.prompts()
	rows := p.rowRoom()
	l.launch("slot_fail", blocks(rows, 256), 1, 256, 0, r.last, r.failed, l.at(p.rowSlots), int32(rows), l.live(liveRows))
	for lo := 0; lo < p.sizes.want; lo += l.cfg.MaxRows {
		n, live, size := min(p.sizes.want-lo, l.cfg.MaxRows), cudrv.Ptr(0), 4*c.Vocab
		if p.graph {
			live = l.live(liveWant)
		}
		l.norm(n, l.w.norm, l.at(p.want)+cudrv.Ptr(4*lo), live)
		l.product(r.logits, r.acts, l.w.head, 0, n, c.Vocab, c.Hidden, toF32, live)
		l.samples(lo, n, live)
		if p.top >= 0 {
			l.launch("logprobs", n, 1, 512, 0, r.norms+cudrv.Ptr(normBytes*lo), r.tops+cudrv.Ptr(topBytes*max(p.top, 1)*lo), r.logits, l.at(p.topK)+cudrv.Ptr(4*lo), int32(max(p.top, 1)), int32(c.Vocab), live)
		}
		if l.err == nil && len(logits) > 0 {
			l.err = l.ctx.CopyOut(l.stream, logits[size*lo:size*(lo+n)], r.logits)
		}
	}
}

// samples queues the sampling of the samples [lo, lo+n), whose logits r.logits has: the samples of equal
// number in one launch, so that a sample finds the one before it.
func (l *launcher) samples(lo, n int, live cudrv.Ptr) {
	p, r, vocab := l.p, &l.room, l.model.Vocab
	from := lo
	for _, end := range p.turns {
		to := min(end, lo+n)
		if p.graph { // has one turn, and room for more samples
			to = lo + n
		}
		if to <= from {
			continue
		}
		at := cudrv.Ptr(4 * vocab * (from - lo))
		l.launch("sample", to-from, 1, kernels.SampleThreads(vocab), 0, r.drawn+cudrv.Ptr(drawnBytes*from), r.work+at, r.logits+at, l.at(p.draws)+cudrv.Ptr(sampleRowSize*from),
			l.at(p.biases), r.masks, r.failed, r.last, r.counts, int32(vocab), live)
		from = to
	}
}

// rowRoom returns the number of rows that kernels by row are launched for.
func (p *plan) rowRoom() int {
	if p.graph {
		return max(p.rows, p.sizes.want)
	}
	return p.rows
}

func blocks(n, of int) int { return (n + of - 1) / of }

// at returns the device address of a part of the plan's data.
func (l *launcher) at(x part) cudrv.Ptr { return l.meta + cudrv.Ptr(x.at) }

// live returns the device address of the count at offset at.
func (l *launcher) live(at int) cudrv.Ptr { return l.meta + cudrv.Ptr(at) }

// norm queues the RMSNorm of some rows of x, with the given weight, to acts. If index is 0, these
// are the first rows of x; else index lists them, and an entry -1-s means the kept row of slot s.
// live is the address of the actual number of rows; 0 means rows.
func (l *launcher) norm(rows int, weight, index, live cudrv.Ptr) {
	l.launch("rmsnorm", rows, 1, 256, 0, l.room.acts, l.room.x, weight, index, l.room.prompt.kept, int32(l.model.Hidden), float32(l.model.NormEps), live)
}

func (l *launcher) launch(kernel string, gridX, gridY, threads, shared int, args ...any) {
	if l.err != nil {
		return
	}
	f, ok := l.run[kernel]
	if !ok {
		panic("cuda: no kernel " + kernel)
	}
	l.err = l.ctx.Launch(f, cudrv.Launch{Grid: [3]int{gridX, gridY, 1}, Block: [3]int{threads, 1, 1}, SharedBytes: shared, Stream: l.stream, Args: cudrv.Args(args...)})
}
