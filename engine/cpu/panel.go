package cpu

import (
	"iter"
	"math"
	"unsafe"

	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/internal/f32"
	"github.com/coppice-llm/coppice/internal/offheap"
	"github.com/coppice-llm/coppice/kv"
)

// vectorCols is the number of columns of a panel for the vector kernels: four AVX-512
// accumulators of 16 f32.
//
// On x86 a panel is [k][64]. f32 and f16 are stored in order of columns. bf16 is stored as 32 words
// for each k: word 16g+i holds column 32g+i in its lower half and column 32g+16+i in its upper half,
// so that a shift and a mask widen a whole vector.
//
// On arm64 a panel is [k/4][4][4][16] (kernels.quads): a block of four k holds sixteen columns of each
// k, then the next sixteen. So tiles of sixteen columns read whole cache lines, and the kernel of one
// row reads a single stream. All types are stored in order of columns.
//
// A panel has room for k rounded up to a multiple of four. No kernel reads the room after k.
const (
	vectorCols = 64
	wordCols   = vectorCols / 2
	quadK      = 4
	quadCols   = 16
)

// blockK is the largest number of k that a tile computes before the next rows are multiplied by
// the same weights. That part of the panel, 768·64·2 B = 96 KiB in bf16, stays in the second-level
// cache meanwhile, and the cache delivers a row of weights faster than six rows of activations are
// multiplied by it. Between two parts the sum of a chain is stored in out, which holds an f32
// exactly, so the cut changes no bit.
const blockK = 768

// aheadK is the number of k by which a product with a single row prefetches its weights ahead.
const aheadK = 16

// pairCols is the number of gate columns in a panel of a paired matrix; the same number of up
// columns follows. 32 make one block of quantised activations.
const pairCols = vectorCols / 2

// packVector packs for the vector kernels: as bf16 or f16 if all tensors have that type, else
// as f32. It fails if there is no memory.
func packVector(m *matrix, tensors []*model.Tensor) error {
	m.cols, m.kind = vectorCols, tensors[0].DType
	for _, t := range tensors {
		if t.DType != m.kind || t.Quantized() {
			m.kind = kv.F32
		}
	}
	half := m.kind == kv.BF16 || m.kind == kv.F16
	size := m.panelCount() * vectorCols * m.panelK()
	if half {
		size /= 2
	}
	store, err := reserve(size)
	if err != nil {
		return err
	}
	m.store = store
	if half {
		m.words = unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(store.F32()))), size)
	} else {
		m.panels = store.F32()
	}
	rows, c := make([]float32, vectorCols*rowPlaces(m.k)), 0
	for t, r := range m.columns(tensors) {
		t.Widen(rows[c%vectorCols*rowPlaces(m.k):], r*m.k, (r+1)*m.k)
		if c++; c%vectorCols == 0 {
			m.fill(c/vectorCols-1, rows)
		}
	}
	if c%vectorCols > 0 {
		clear(rows[c%vectorCols*rowPlaces(m.k):]) // columns past n are zero
		m.fill(c/vectorCols, rows)
	}
	return nil
}

// reserve maps n words of 4 bytes outside the Go heap, in huge pages where the system has
// them.
func reserve(n int) (*offheap.Arena, error) {
	store, err := offheap.NewArena(4*n, 1)
	if err == nil {
		offheap.Huge(store.Page(0))
	}
	return store, err
}

// columns yields, for each column of m, the tensor and the row of that tensor that the column
// holds. Usually all rows of the first tensor come first, then those of the next. If m is paired,
// pairCols rows of the first tensor and pairCols rows of the second alternate.
func (m *matrix) columns(tensors []*model.Tensor) iter.Seq2[*model.Tensor, int] {
	return func(yield func(*model.Tensor, int) bool) {
		if m.paired {
			for c := range m.n {
				if !yield(tensors[c/pairCols%2], c/vectorCols*pairCols+c%pairCols) {
					return
				}
			}
			return
		}
		for _, t := range tensors {
			for r := range t.Shape[0] {
				if !yield(t, r) {
					return
				}
			}
		}
	}
}

// fill writes the given panel of m from rows, which holds the panel's 64 columns as
// [64][rowPlaces(k)].
func (m *matrix) fill(panel int, rows []float32) {
	row, start, bits := rowPlaces(m.k), panel*vectorCols*m.panelK(), math.Float32bits
	for i := range m.k {
		for c := 0; c < vectorCols; c += quadCols {
			at, from := start+m.place(i, c), rows[c*row+i:]
			switch {
			case m.words == nil:
				for j := range quadCols {
					m.panels[at+j] = from[j*row]
				}
			case m.kind == kv.F16:
				for j := range quadCols / 2 {
					m.words[at/2+j] = uint32(f32.ToF16(from[2*j*row])) | uint32(f32.ToF16(from[(2*j+1)*row]))<<16
				}
			case m.quads:
				for j := range quadCols / 2 {
					m.words[at/2+j] = bits(from[2*j*row])>>16 | bits(from[(2*j+1)*row])&^0xffff
				}
			case c%32 == 0:
				for j := range 16 {
					m.words[at/2+j] = bits(from[j*row])>>16 | bits(from[(j+16)*row])&^0xffff
				}
			}
		}
	}
}

// place returns where a panel has column c of k, a multiple of 16, as the number of elements before it.
func (m *matrix) place(k, c int) int {
	if m.quads {
		return k/quadK*quadK*vectorCols + c*quadK + k%quadK*quadCols
	}
	return k*vectorCols + c
}

// panelK returns the number of k that a panel of a vector path has room for.
func (m *matrix) panelK() int { return (m.k + quadK - 1) &^ (quadK - 1) }

// rowPlaces returns k plus a cache line of 16 f32: the distance of rows in fill's source. If k
// is a power of two, 64 rows at distance k would all map to one set of the cache.
func rowPlaces(k int) int { return k + 16 }

// spanRows is the number of activation rows in a unit of a product. It is small enough to
// share the work evenly and to keep the rows in the second-level cache, large enough to reuse
// a panel. It is a multiple of blockRows and of the largest tile's 6 rows.
const spanRows = 96

// units describes how a product is shared among threads. A unit is one panel by one span of rows.
// If there is only one span, the panels left over after an even division among the threads are cut
// by rows, into one part per thread: of 7 panels on 3 threads, each thread gets 2 whole panels and
// a third of the last one.
type units struct{ panels, spans, threads, rows int }

// count returns the number of units: 2 whole panels and 1 cut panel per thread are 3 units each.
func (p units) count() int {
	if whole, cut := p.each(); cut > 0 {
		return (whole + cut) * p.threads
	}
	return p.panels * p.spans
}

// at returns unit u: a panel and the rows [lo, hi), which may be empty. Units of one span are
// consecutive over all panels, so that the span's activations stay in the cache.
func (p units) at(u int) (panel, lo, hi int) {
	whole, cut := p.each()
	if cut == 0 {
		lo = u / p.panels * spanRows
		return u % p.panels, lo, min(lo+spanRows, p.rows)
	}
	thread, i := u/(whole+cut), u%(whole+cut)
	if i < whole {
		return thread*whole + i, 0, p.rows
	}
	part := (p.rows/p.threads + blockRows - 1) / blockRows * blockRows
	lo, hi = thread*part, (thread+1)*part
	if thread == p.threads-1 {
		hi = p.rows
	}
	return p.threads*whole + i - whole, min(lo, p.rows), min(hi, p.rows)
}

// each returns the number of whole panels per thread and the number of panels to cut. Both are
// 0 where units are not cut: with several spans, or fewer than blockRows rows per thread.
func (p units) each() (whole, cut int) {
	if p.spans > 1 || p.rows < p.threads*blockRows {
		return 0, 0
	}
	return p.panels / p.threads, p.panels % p.threads
}

// productUnit computes unit u of the product in progress.
func (s *step) productUnit(w *scratch, u int) {
	panel, lo, hi := s.units().at(u)
	if lo >= hi {
		return
	}
	if s.phase == phaseGatePairs {
		s.gatePairs(w, panel, lo, hi)
		return
	}
	s.ops.productPanel(w, s.out, s.acts, s.mat, panel, lo, hi)
}

// units returns the units of the product in progress.
func (s *step) units() units {
	return units{s.mat.panelCount(), (s.rows + spanRows - 1) / spanRows, len(s.scratch), s.rows}
}

// gatePairs computes one panel of a paired matrix into the worker's tile and, while that is in
// the cache, silu(gate)·up of it into the inputs of the next product.
func (s *step) gatePairs(w *scratch, panel, lo, hi int) {
	tile := w.tile[:(hi-lo)*vectorCols]
	s.ops.productTile(w, tile, vectorCols, s.acts, s.mat, panel, lo, hi)
	if bias := s.w.layers[s.layer].gateUpBias; bias != nil {
		for r := range hi - lo {
			addBias(tile[r*vectorCols:], bias[panel*vectorCols:(panel+1)*vectorCols])
		}
	}
	s.gated.setPairs(tile, panel, lo, hi)
}

// productPanel computes the columns of one panel for the rows [lo, hi) of a. lo is a multiple
// of blockRows; out is [row][m.stride()].
func (k *kernels) productPanel(w *scratch, out []float32, a *acts, m *matrix, panel, lo, hi int) {
	if m.cols == vectorCols {
		k.productTile(w, out[lo*m.stride()+panel*vectorCols:], m.stride(), a, m, panel, lo, hi)
		return
	}
	gemmTile(out, a, m, panel, lo, hi)
}

// productTile is productPanel for panels of vectorCols columns: those of vector paths and of
// quantised weights. out starts at the panel's first column of row lo; its rows are stride
// elements apart.
func (k *kernels) productTile(w *scratch, out []float32, stride int, a *acts, m *matrix, panel, lo, hi int) {
	if m.quant != nil {
		k.quantPanelProduct(w, out, stride, a.records, m, panel, lo, hi)
		return
	}
	k.product(out, stride, a.rows, m, panel, lo, hi)
}

// aloneWork returns the largest number of multiply-adds that one goroutine computes without its
// helpers. They take a few microseconds, about as long as sharing them would.
func (k *kernels) aloneWork() int {
	if k.vector() {
		return 100000 // at 30 per nanosecond
	}
	return 20000 // at 1 to 5 per nanosecond
}

// product computes productTile for weights that are not quantised; x is [row][k].
func (k *kernels) product(out []float32, stride int, x []float32, m *matrix, panel, lo, hi int) {
	parts := (m.k + blockK - 1) / blockK
	if hi-lo <= 1 {
		// No other row reuses the block. 4096 bounds a call of assembly, which can't be
		// preempted, to some 30 µs.
		parts = (m.k + 4095) / 4096
	}
	block := ((m.k+parts-1)/parts + quadK - 1) &^ (quadK - 1) // whole blocks of four k
	for at := 0; at < m.k; at += block {
		n := min(block, m.k-at)
		t := 0
		for r := lo; r < hi; {
			for k.tiles[t].rows > hi-r {
				t++
			}
			k.tiles[t].run(out[(r-lo)*stride:], stride, x[r*m.k+at:], m, panel, at, n, r-lo, hi-lo)
			r += k.tiles[t].rows
		}
	}
}

// run multiplies t.rows rows of x by all columns of a panel of m, for k in [at, at+n). It adds the
// products to out; if at is 0, it starts out from zero. The caller multiplies rows rows by this
// part of the panel and has finished the first done of them. Each call of run prefetches its share
// of the panel's next part. If rows is 1, it prefetches weights aheadK k ahead in this part
// instead.
func (t *tile) run(out []float32, stride int, x []float32, m *matrix, panel, at, n, done, rows int) {
	start, first := (panel*m.panelK()+at)*vectorCols, 0
	if at == 0 {
		first = 1
	}
	turn, turns, rowBytes := done*len(t.columns), rows*len(t.columns), 4*vectorCols
	if m.words != nil {
		rowBytes = 4 * wordCols
	}
	share := (64*t.rows + turns - 1) / turns // bytes prefetched per 64 bytes of the block
	for _, c := range t.columns {
		fetch := rowBytes*n + rowBytes*n*turn/turns
		if rows == 1 {
			fetch = rowBytes * aheadK
		}
		from, to := start+m.place(0, c), start+vectorCols*((n+quadK-1)&^(quadK-1))
		switch {
		case m.words == nil:
			t.f32(&out[c], 4*stride, &x[0], 4*m.k, &m.panels[from:to][0], n, first, fetch, share)
		case m.kind == kv.F16:
			t.f16(&out[c], 4*stride, &x[0], 4*m.k, &m.words[from/2 : to/2][0], n, first, fetch, share)
		default:
			if !m.quads {
				from = start + c/32*32 + c%32*2
			}
			t.bf16(&out[c], 4*stride, &x[0], 4*m.k, &m.words[from/2 : to/2][0], n, first, fetch, share)
		}
		turn += t.rows
	}
}
