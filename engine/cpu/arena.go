package cpu

import (
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/internal/offheap"
	"github.com/coppice-llm/coppice/kv"
)

// arena is the KV pool, laid out [page][layer][K|V][kv head][token of the page]. Each entry is one
// row: one head of one token, stored as kvtype.go describes.
type arena struct {
	store    *offheap.Arena
	data     []float32 // the store's memory as f32; nil unless kind is F32
	kind     kv.DType
	rowBytes int
	tokens   int // tokens per page
	dim      int // elements of a head
	heads    int // kv heads
	layers   int
}

func newArena(c *model.Config, cfg Config) (*arena, error) {
	a := &arena{kind: cfg.KVType, rowBytes: cfg.KVType.Size(c.HeadDim), tokens: cfg.PageTokens, dim: c.HeadDim, heads: c.KVHeads, layers: c.Layers}
	store, err := offheap.NewArena(a.pageBytes(), cfg.Pages)
	if err != nil {
		return nil, err
	}
	if a.store = store; a.kind == kv.F32 {
		a.data = store.F32()
	}
	return a, nil
}

// halfK and halfV number the halves of a page: K and V of each layer in turn.
func halfK(layer int) int { return 2 * layer }
func halfV(layer int) int { return 2*layer + 1 }

// put writes x, one head of one token, as entry slot of a part, rounded to the arena's type.
func (a *arena) put(k *kernels, page kv.PageID, half, head, slot int, x []float32) {
	if a.kind == kv.F32 {
		copy(a.floats(page, half, head)[slot*a.dim:], x)
		return
	}
	k.narrow(a.kind, a.part(page, half, head)[slot*a.rowBytes:(slot+1)*a.rowBytes], x)
}

// rows returns the first n rows of a part as f32, [n][head dim]. If the arena's type is F32, the
// result aliases the arena. Otherwise the rows are widened into buf, which must hold a whole part:
// tokens·dim elements.
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

// floats returns the same rows as part, as [slot][head dim]. The arena must be of F32.
func (a *arena) floats(page kv.PageID, half, head int) []float32 {
	n := a.tokens * a.dim
	lo := (int(page)*2*a.layers*a.heads + half*a.heads + head) * n
	return a.data[lo : lo+n : lo+n]
}

// bytes returns a whole page as transfers copy it. It aliases the arena.
func (a *arena) bytes(page kv.PageID) []byte { return a.store.Page(int(page)) }

// copyPage copies the first tokens entries of every part of page src to page dst: K and V of all
// heads and layers.
func (a *arena) copyPage(dst, src kv.PageID, tokens int) {
	for half := range 2 * a.layers {
		for head := range a.heads {
			copy(a.part(dst, half, head)[:tokens*a.rowBytes], a.part(src, half, head))
		}
	}
}

// part returns the rows of one kv head of a half in one page, partBytes long. It aliases the
// arena.
func (a *arena) part(page kv.PageID, half, head int) []byte {
	n := a.partBytes()
	lo := (half*a.heads + head) * n
	return a.store.Page(int(page))[lo : lo+n : lo+n]
}

// partBytes is the size of a part: the rows of one kv head, of K or of V, in one layer of a
// page. With 16 slots per page and heads of 64 f32 it is 16·256 B = 4 KiB.
func (a *arena) partBytes() int { return a.tokens * a.rowBytes }
func (a *arena) pageBytes() int { return a.layers * 2 * a.heads * a.partBytes() }

func (a *arena) close() error {
	a.data = nil
	return a.store.Close()
}
