package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/engine/cuda/kernels"
	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
)

// cache holds K, V and queries of one sequence, and its pages.
type cache struct {
	heads, kvHeads, dim int
	tokens              int
	k, v                [][]uint16 // [token][kv head · dim]
	q                   [][]uint16 // [token][head · dim]
}

func newCache(seed uint64, heads, kvHeads, dim, tokens int) *cache {
	g := seeded(seed)
	c := &cache{heads: heads, kvHeads: kvHeads, dim: dim, tokens: tokens}
	for range tokens {
		c.k = append(c.k, bf16s(g, kvHeads*dim, 1))
		c.v = append(c.v, bf16s(g, kvHeads*dim, 1))
		c.q = append(c.q, bf16s(g, heads*dim, 2))
	}
	return c
}

// reference returns the attention of token t, computed in f64.
func (c *cache) reference(t int) []float64 {
	out := make([]float64, c.heads*c.dim)
	scale := 1 / math.Sqrt(float64(c.dim))
	for h := range c.heads {
		kv := h / (c.heads / c.kvHeads) * c.dim
		weights, total, top := make([]float64, t+1), 0.0, math.Inf(-1)
		for p := range weights {
			for i := range c.dim {
				weights[p] += widen(c.q[t][h*c.dim+i]) * widen(c.k[p][kv+i]) * scale
			}
			top = max(top, weights[p])
		}
		for p := range weights {
			weights[p] = math.Exp(weights[p] - top)
			total += weights[p]
		}
		for p, w := range weights {
			for i := range c.dim {
				out[h*c.dim+i] += w / total * widen(c.v[p][kv+i])
			}
		}
	}
	return out
}

// pool is a pool of pages on the device, filled with K and V of some sequences. It has two layers, and
// the second one is used. Unused slots hold NaN.
type pool struct {
	r        *rig
	c        *cache
	shift    int
	pages    pointer
	table    pointer
	perSlot  int
	elements int       // per page
	layer    int       // offset of the second layer
	states   []float32 // of the last decode, by token: those of its splits
}

// newPool puts each sequence into random pages.
func newPool(r *rig, g *rand.Rand, shift int, seqs ...*cache) *pool {
	r.t.Helper()
	c, size := seqs[0], 1<<shift
	p := &pool{r: r, c: c, shift: shift}
	p.layer = 2 * c.kvHeads * size * c.dim
	p.elements = 2 * p.layer
	for _, s := range seqs {
		p.perSlot = max(p.perSlot, (s.tokens+size-1)/size)
	}
	total := len(seqs)*p.perSlot + 3
	ids := g.Perm(total)
	data := make([]uint16, total*p.elements)
	for i := range data {
		data[i] = 0x7fc0 // NaN
	}
	table := make([]int32, len(seqs)*p.perSlot)
	for i, s := range seqs {
		for t := range s.tokens {
			page := ids[i*p.perSlot+t/size]
			table[i*p.perSlot+t/size] = int32(page)
			for h := range c.kvHeads {
				for kind, from := range [][]uint16{s.k[t], s.v[t]} {
					at := page*p.elements + p.layer + ((kind*c.kvHeads+h)*size+t%size)*c.dim
					copy(data[at:at+c.dim], from[h*c.dim:])
				}
			}
		}
	}
	p.pages, p.table = put(r, data), put(r, table)
	return p
}

// place returns the kernels' arguments that describe the cache.
func (p *pool) place() []any {
	return []any{p.pages, p.table, uint64(p.elements), uint64(p.layer), int32(p.perSlot), int32(p.shift), int32(p.c.kvHeads)}
}

func (p *pool) scale() float32 { return float32(1 / math.Sqrt(float64(p.c.dim))) }

func (p *pool) sharedBytes() int { return kernels.TileBytes(p.c.dim) }

// output reads rows and checks that their padding is zero.
func (p *pool) output(out pointer, rows int) []uint16 {
	p.r.t.Helper()
	n := p.c.heads * p.c.dim
	stride := kernels.Padded(n)
	all := get[uint16](p.r, out, rows*stride)
	var rest []uint16
	for i := range rows {
		if slices.ContainsFunc(all[i*stride+n:(i+1)*stride], func(x uint16) bool { return x != 0 }) {
			p.r.t.Errorf("row %d is padded with %v", i, all[i*stride+n:(i+1)*stride])
		}
		rest = append(rest, all[i*stride:i*stride+n]...)
	}
	return rest
}

// attentionRig returns a rig with the modules of attention for heads of dim, and with others.
func attentionRig(t *testing.T, dim int, more ...string) *rig {
	t.Helper()
	return newRig(t, append(more, kernels.Attention(dim), "merge")...)
}

// query is one token that attends: its slot, position and sequence.
type query struct {
	slot, pos int
	seq       *cache
}

// upload copies queries, slots and positions to the device.
func upload(r *rig, queries []query) (q, slots, positions pointer) {
	var data []uint16
	var s, at []int32
	for _, x := range queries {
		data = append(data, x.seq.q[x.pos]...)
		s, at = append(s, int32(x.slot)), append(at, int32(x.pos))
	}
	return put(r, data), put(r, s), put(r, at)
}

// prefill runs the prefill kernel on runs of successive queries of one slot, in items of at most
// perItem tokens.
func (p *pool) prefill(queries []query, perItem int) []uint16 {
	p.r.t.Helper()
	out, err := p.tryPrefill(queries, perItem)
	if err != nil {
		p.r.t.Fatal(err)
	}
	return out
}

func (p *pool) tryPrefill(queries []query, perItem int) ([]uint16, error) {
	p.r.t.Helper()
	q, slots, positions := upload(p.r, queries)
	var items []int32
	count := 0
	for i := 0; i < len(queries); count++ {
		n := 1
		for i+n < len(queries) && n < perItem && queries[i+n].slot == queries[i].slot {
			n++
		}
		items = append(items, int32(i), int32(n))
		i += n
	}
	out := p.r.room(2 * len(queries) * kernels.Padded(p.c.heads*p.c.dim))
	values := append(append([]any{out, q}, p.place()...), put(p.r, items), slots, positions, int32(p.c.heads), p.scale())
	if err := p.r.try(kernels.Attention(p.c.dim), fmt.Sprint("attn_prefill_", p.c.dim), ptxvm.Dim{X: count, Y: p.c.kvHeads}, 128, p.sharedBytes(), values...); err != nil {
		return nil, err
	}
	return p.output(out, len(queries)), nil
}

// item is one work item of attn_decode.
type item struct{ First, Count, Split, End int32 }

// decode runs the queries split by split, in items of at most perItem tokens, and then the merge.
// The queries have the first shared positions, whole splits, in common and run together in those
// splits. It keeps the states of all splits in p.states.
func (p *pool) decode(queries []query, perItem, shared int) []uint16 {
	p.r.t.Helper()
	out, err := p.tryDecode(queries, perItem, shared)
	if err != nil {
		p.r.t.Fatal(err)
	}
	return out
}

func (p *pool) tryDecode(queries []query, perItem, shared int) ([]uint16, error) {
	p.r.t.Helper()
	q, slots, positions := upload(p.r, queries)
	var items []item
	var tokens []int32
	splits := 0
	for t := range queries {
		tokens = append(tokens, int32(t))
		splits = max(splits, queries[t].pos/256+1)
	}
	for s := 0; s < shared/256; s++ {
		for t := 0; t < len(queries); t += perItem {
			items = append(items, item{int32(t), int32(min(perItem, len(queries)-t)), int32(s), int32(s*256 + 256)})
		}
	}
	for t, x := range queries {
		for s := shared / 256; s <= x.pos/256; s++ {
			items = append(items, item{int32(t), 1, int32(s), int32(min(s*256+256, x.pos+1))})
		}
	}
	size := p.c.heads * (p.c.dim + 2) // of the states of a token and split
	states := p.r.room(4 * len(queries) * splits * size)
	order := put(p.r, tokens)
	values := append(append([]any{states, q}, p.place()...), put(p.r, items), order, slots, positions, int32(p.c.heads), int32(splits), p.scale(), pointer(0))
	if err := p.r.try(kernels.Attention(p.c.dim), fmt.Sprint("attn_decode_", p.c.dim), ptxvm.Dim{X: len(items), Y: p.c.kvHeads}, 128, p.sharedBytes(), values...); err != nil {
		return nil, err
	}
	p.states = p.states[:0]
	for t, x := range queries {
		p.states = append(p.states, get[float32](p.r, states+pointer(4*t*splits*size), (x.pos/256+1)*size)...)
	}
	out := p.r.room(2 * len(queries) * kernels.Padded(p.c.heads*p.c.dim))
	p.r.launch("merge", "attn_merge", ptxvm.Dim{X: len(queries), Y: p.c.heads}, 128, 0,
		out, states, positions, int32(p.c.heads), int32(p.c.dim), int32(splits), pointer(0))
	return p.output(out, len(queries)), nil
}

func span(seq *cache, slot, lo, hi int) []query {
	var q []query
	for p := lo; p < hi; p++ {
		q = append(q, query{slot, p, seq})
	}
	return q
}

// TestAttention checks that prefill and decode are near the reference in f64 at the ends of pages,
// tiles and splits, and that their bits are equal for all kernels, page sizes, placements and work
// items. Of decode it compares the states in f32, too: rounding to bf16 hides most changes of a sum.
func TestAttention(t *testing.T) {
	for _, shape := range []struct{ heads, kvHeads, dim, tokens int }{{4, 2, 16, 530}, {3, 1, 32, 270}, {7, 1, 64, 300}, {3, 1, 80, 260}, {6, 2, 96, 258}, {8, 2, 128, 270}} {
		c := newCache(1, shape.heads, shape.kvHeads, shape.dim, shape.tokens)
		var queries []query
		for _, pos := range []int{0, 1, 15, 63, 64, 255, 256, shape.tokens - 1} {
			queries = append(queries, query{0, pos, c})
		}
		var want []float64
		for _, q := range queries {
			want = append(want, c.reference(q.pos)...)
		}
		group := shape.heads / shape.kvHeads
		r := attentionRig(t, shape.dim)
		p := newPool(r, seeded(2), 4, c)
		got := p.decode(queries, 1, 0)
		near(t, fmt.Sprint("decode ", shape), wide(got), want, 4e-3) // error of bf16
		var late []query                                             // these share a split, in items of up to 64 rows and of up to 16
		for i := range 22 {
			late = append(late, query{0, 256 + i%(shape.tokens-256), c})
		}
		apart := p.decode(late, 1, 0)
		states := slices.Clone(p.states)
		for _, perItem := range []int{64 / group, 16 / group} {
			equal(t, fmt.Sprint("decode ", shape, " of up to ", perItem), p.decode(late, perItem, 256), apart)
			equal(t, fmt.Sprint("states ", shape, " of up to ", perItem), p.states, states)
		}

		for i, shift := range []int{0, 4, 6, 8} {
			q := newPool(attentionRig(t, shape.dim), seeded(uint64(3+i)), shift, newCache(9, shape.heads, shape.kvHeads, shape.dim, 20), c)
			moved := slices.Clone(queries)
			for j := range moved {
				moved[j].slot = 1
			}
			perItem := []int{1, 64 / group, 1, 2}[i]
			if shift == 4 { // a chunk of a prompt has successive positions: take the last chunk
				tail := q.prefill(span(c, 1, shape.tokens-40, shape.tokens), perItem)
				equal(t, fmt.Sprint("prefill ", shape, " in chunks"), tail[39*shape.heads*shape.dim:], got[7*shape.heads*shape.dim:])
				continue
			}
			equal(t, fmt.Sprint("prefill ", shape, " pages of ", 1<<shift), q.prefill(moved, 1), got)
		}
	}
}

// TestAttentionSharedPrefix checks that sequences with the same pages read them once, with the same
// bits.
func TestAttentionSharedPrefix(t *testing.T) {
	c := newCache(4, 4, 2, 16, 600)
	var queries []query
	for _, pos := range []int{520, 530, 555, 599, 512} {
		queries = append(queries, query{0, pos, c})
	}
	alone := newPool(attentionRig(t, 16), seeded(5), 4, c)
	want := alone.decode(queries, 1, 0)
	for _, perItem := range []int{8, 32} {
		together := newPool(attentionRig(t, 16), seeded(6), 4, c)
		equal(t, fmt.Sprint(perItem, " tokens"), together.decode(queries, perItem, 512), want)
		if one, all := together.r.m.ReadBytes(uint64(together.pages)), alone.r.m.ReadBytes(uint64(alone.pages)); one*2 > all {
			t.Errorf("%d tokens read %d bytes of pages together, %d alone: want less than half", perItem, one, all)
		}
	}
}

// TestAttentionReadsKVOnce checks that a decoding token loads each byte of its K and V once.
func TestAttentionReadsKVOnce(t *testing.T) {
	c := newCache(5, 8, 2, 64, 300)
	p := newPool(attentionRig(t, 64), seeded(7), 4, c)
	p.decode(span(c, 0, 299, 300), 1, 0)
	if got, want := p.r.m.ReadBytes(uint64(p.pages)), int64(300*2*2*64*2); got != want {
		t.Errorf("%d bytes of pages, want %d", got, want)
	}
}

// TestAttentionMutants checks that the interpreter reports attention without any one of its barriers,
// commits and waits.
func TestAttentionMutants(t *testing.T) {
	c := newCache(6, 8, 2, 64, 300)
	run := func(r *rig) error {
		p := newPool(r, seeded(8), 4, c)
		q, slots, positions := upload(r, span(c, 0, 292, 300))
		values := append(append([]any{r.room(2 * 8 * 8 * 64), q}, p.place()...), put(r, []int32{0, 8}), slots, positions, int32(8), p.scale())
		return r.try("attention_64", "attn_prefill_64", ptxvm.Dim{X: 1, Y: 2}, 128, p.sharedBytes(), values...)
	}
	if err := run(attentionRig(t, 64)); err != nil {
		t.Fatal(err)
	}
	caught(t, "attention_64", "attn_prefill_64", "bar.sync", "// bar", 2, run, ptxvm.SharedRace, ptxvm.PendingCopy, ptxvm.Uninitialised)
	caught(t, "attention_64", "attn_prefill_64", "cp.async.commit_group", "// cp", 1, run, ptxvm.PendingCopy)
	caught(t, "attention_64", "attn_prefill_64", "cp.async.wait_group 1", "cp.async.wait_group 2", 1, run, ptxvm.PendingCopy)
}
