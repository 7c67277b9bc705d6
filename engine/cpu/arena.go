package cpu

import (
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/internal/mempool/hostmem"
	"github.com/coppice-llm/coppice/kv"
)

// arena is the KV pool: [page][layer][K|V][kv head][slot] of rows, see kvtype.go.
type arena struct {
	store    *hostmem.Arena
	data     []float32 // the store's memory, if kind is F32
	kind     kv.DType
	rowBytes int
	tokens   int // slots per page
	dim      int // of a head
	heads    int // kv heads
	layers   int
}

func newArena(c *model.Config, cfg Config) (*arena, error) {
	a := &arena{kind: cfg.KVType, rowBytes: cfg.KVType.Size(c.HeadDim), tokens: cfg.PageTokens, dim: c.HeadDim, heads: c.KVHeads, layers: c.Layers}
	store, err := hostmem.NewArena(a.pageBytes(), cfg.Pages)
	if err != nil {
		return nil, err
	}
	if a.store = store; a.kind == kv.F32 {
		a.data = store.F32()
	}
	return a, nil
}

// partBytes is one head of one of K and V of one layer of a page.
func (a *arena) partBytes() int { return a.tokens * a.rowBytes }
func (a *arena) pageBytes() int { return a.layers * 2 * a.heads * a.partBytes() }

// A half is K or V of a layer.
func halfK(layer int) int { return 2 * layer }
func halfV(layer int) int { return 2*layer + 1 }

// part is the rows of one head of a half in one page.
func (a *arena) part(page kv.PageID, half, head int) []byte {
	n := a.partBytes()
	lo := (half*a.heads + head) * n
	return a.store.Page(page)[lo : lo+n : lo+n]
}

// floats is part of an arena of F32, [slot][head dim].
func (a *arena) floats(page kv.PageID, half, head int) []float32 {
	n := a.tokens * a.dim
	lo := (int(page)*2*a.layers*a.heads + half*a.heads + head) * n
	return a.data[lo : lo+n : lo+n]
}

// put writes one row.
func (a *arena) put(k *kernels, page kv.PageID, half, head, slot int, x []float32) {
	if a.kind == kv.F32 {
		copy(a.floats(page, half, head)[slot*a.dim:], x)
		return
	}
	k.narrow(a.kind, a.part(page, half, head)[slot*a.rowBytes:(slot+1)*a.rowBytes], x)
}

// rows are the first n rows as f32, [n][head dim]: the arena's own memory, or buf, which
// holds a page's.
func (a *arena) rows(k *kernels, buf []float32, page kv.PageID, half, head, n int) []float32 {
	if a.kind == kv.F32 {
		return a.floats(page, half, head)[:n*a.dim]
	}
	part, buf := a.part(page, half, head), buf[:n*a.dim]
	if k.vector() {
		k.widen(a.kind, buf, part, n, a.dim)
		return buf
	}
	for i := range n {
		decodeRow(a.kind, buf[i*a.dim:(i+1)*a.dim], part[i*a.rowBytes:(i+1)*a.rowBytes])
	}
	return buf
}

// bytes is the whole page, as transfers see it.
func (a *arena) bytes(page kv.PageID) []byte { return a.store.Page(page) }

// copyPage copies the first tokens slots of src to dst in all layers.
func (a *arena) copyPage(dst, src kv.PageID, tokens int) {
	for half := range 2 * a.layers {
		for head := range a.heads {
			copy(a.part(dst, half, head)[:tokens*a.rowBytes], a.part(src, half, head))
		}
	}
}

func (a *arena) close() error {
	a.data = nil
	return a.store.Close()
}
