package cpu

import (
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool/hostmem"
)

// arena is the KV pool: [page][layer][K|V][kv head][slot][head dim] in f32.
type arena struct {
	store  *hostmem.Arena
	data   []float32
	tokens int // slots per page
	dim    int // of a head
	heads  int // kv heads
	layers int
}

func newArena(c *model.Config, cfg Config) (*arena, error) {
	a := &arena{tokens: cfg.PageTokens, dim: c.HeadDim, heads: c.KVHeads, layers: c.Layers}
	store, err := hostmem.NewArena(4*a.pageFloats(), cfg.Pages)
	if err != nil {
		return nil, err
	}
	a.store, a.data = store, store.F32()
	return a, nil
}

// headFloats is one head of one of K and V of one layer of a page.
func (a *arena) headFloats() int { return a.tokens * a.dim }
func (a *arena) pageFloats() int { return a.layers * 2 * a.heads * a.headFloats() }

// k and v are the entries of one head in one page, [slot][head dim].
func (a *arena) k(page kv.PageID, layer, head int) []float32 { return a.part(page, 2*layer, head) }
func (a *arena) v(page kv.PageID, layer, head int) []float32 { return a.part(page, 2*layer+1, head) }

func (a *arena) part(page kv.PageID, half, head int) []float32 {
	n := a.headFloats()
	lo := int(page)*a.pageFloats() + (half*a.heads+head)*n
	return a.data[lo : lo+n : lo+n]
}

// bytes is the whole page, as transfers see it.
func (a *arena) bytes(page kv.PageID) []byte { return a.store.Page(page) }

// copyPage copies the first tokens slots of src to dst in all layers.
func (a *arena) copyPage(dst, src kv.PageID, tokens int) {
	for half := range 2 * a.layers {
		for head := range a.heads {
			copy(a.part(dst, half, head)[:tokens*a.dim], a.part(src, half, head))
		}
	}
}

func (a *arena) close() error {
	a.data = nil
	return a.store.Close()
}
