package cpu

import (
	"iter"
	"unsafe"

	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/internal/f32"
	"github.com/coppice-llm/coppice/internal/mempool/hostmem"
	"github.com/coppice-llm/coppice/kv"
)

// vectorCols is the number of columns of a panel for the vector kernels: four
// AVX-512 accumulators. A panel is [k][64]: f32 or f16 in order, or bf16 in 32 words of
// which word 16g+i holds column 32g+i in its lower half and 32g+16+i in its upper,
// so that a shift and a mask widen a whole vector.
const (
	vectorCols = 64
	wordCols   = vectorCols / 2
)

// blockK is the most k that a tile does before the next rows take their turn: the
// panel's part, 96 KiB in bf16, stays in the second-level cache meanwhile, which gives a
// row of weights in less time than six rows take to multiply it. A chain goes on where it
// stopped, through memory that holds an f32 exactly.
const blockK = 768

// aheadK is how many k a single row fetches weights before it needs them.
const aheadK = 16

// pairCols is how many columns of a gate lie in a panel beside as many of what it gates,
// where a matrix is paired: enough for a block of quantised activations.
const pairCols = vectorCols / 2

// columns gives the row of a tensor that each column of m is: those of one tensor after
// the other or, if m is paired, [pairCols] of the first and of the second in turns.
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

// packVector packs for the vector kernels: bf16 or f16 if all tensors are, else f32.
func packVector(m *matrix, tensors []*model.Tensor) error {
	m.cols, m.kind = vectorCols, tensors[0].DType
	for _, t := range tensors {
		if t.DType != m.kind || t.Quantized() {
			m.kind = kv.F32
		}
	}
	half := m.kind == kv.BF16 || m.kind == kv.F16
	size := m.panelCount() * vectorCols * m.k
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

// reserve maps n words outside the Go heap, in large pages where there are some.
func reserve(n int) (*hostmem.Arena, error) {
	store, err := hostmem.NewArena(4*n, 1)
	if err == nil {
		adviseHuge(store.Page(0))
	}
	return store, err
}

// rowPlaces is k and a cache line, so that 64 rows of a power of two do not all
// fall into one set of the cache.
func rowPlaces(k int) int { return k + 16 }

// fill writes one panel from its columns, [64][rowPlaces(k)].
func (m *matrix) fill(panel int, rows []float32) {
	k, row := m.k, rowPlaces(m.k)
	if m.words == nil {
		dst := m.panels[panel*vectorCols*k:]
		for i := range k {
			for c := range vectorCols {
				dst[i*vectorCols+c] = rows[c*row+i]
			}
		}
		return
	}
	if m.kind == kv.F16 {
		dst := m.words[panel*wordCols*k:]
		for i := range k {
			for j := range wordCols {
				low, high := rows[2*j*row+i], rows[(2*j+1)*row+i]
				dst[i*wordCols+j] = uint32(f32.ToF16(low)) | uint32(f32.ToF16(high))<<16
			}
		}
		return
	}
	bits := unsafe.Slice((*uint32)(unsafe.Pointer(&rows[0])), len(rows))
	dst := m.words[panel*wordCols*k:]
	for i := range k {
		for j := range wordCols {
			c := j/16*32 + j%16
			dst[i*wordCols+j] = bits[c*row+i]>>16 | bits[(c+16)*row+i]&^0xffff
		}
	}
}

// spanRows is how many activation rows a product's unit covers: short enough to
// share the work and to keep their inputs in the second-level cache, long enough
// to reuse a panel. It is a multiple of the tiles' 6 and of blockRows.
const spanRows = 96

// units is how a product is shared out among threads. Panels by spans of rows are its
// units; where there is one span, the panels that are left over when each thread has as
// many of them are cut by rows, one part for each thread.
type units struct{ panels, spans, threads, rows int }

// each returns the panels of one span that each thread has whole, and those that are cut.
func (p units) each() (whole, cut int) {
	if p.spans > 1 || p.rows < p.threads*blockRows {
		return 0, 0
	}
	return p.panels / p.threads, p.panels % p.threads
}

func (p units) count() int {
	if whole, cut := p.each(); cut > 0 {
		return (whole + cut) * p.threads
	}
	return p.panels * p.spans
}

// at is unit u: a panel by the rows [lo, hi). All panels pass by one span before the next,
// for the activations of a span are what is reused.
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

// units are those of the product in progress.
func (s *step) units() units {
	return units{s.mat.panelCount(), (s.rows + spanRows - 1) / spanRows, len(s.scratch), s.rows}
}

// productUnit does unit u of a product.
func (s *step) productUnit(w *scratch, u int) {
	panel, lo, hi := s.units().at(u)
	if lo >= hi {
		return
	}
	if s.phase == phaseGatePairs {
		s.gatePairs(w, panel, lo, hi)
		return
	}
	s.ops.productPanel(s.out, s.acts, s.mat, panel, lo, hi)
}

// gatePairs computes a panel of a paired matrix, and of that the inputs of the product
// after it, while they are in the first-level cache.
func (s *step) gatePairs(w *scratch, panel, lo, hi int) {
	tile := w.tile[:(hi-lo)*vectorCols]
	s.ops.productTile(tile, vectorCols, s.acts, s.mat, panel, lo, hi)
	if bias := s.w.layers[s.layer].gateUpBias; bias != nil {
		for r := range hi - lo {
			addBias(tile[r*vectorCols:], bias[panel*vectorCols:(panel+1)*vectorCols])
		}
	}
	s.gated.setPairs(tile, panel, lo, hi)
}

// productPanel writes the columns of one panel for the rows [lo, hi) of a, lo being
// a multiple of blockRows; out is [row][m.stride()].
func (k *kernels) productPanel(out []float32, a *acts, m *matrix, panel, lo, hi int) {
	if m.cols == vectorCols {
		k.productTile(out[lo*m.stride()+panel*vectorCols:], m.stride(), a, m, panel, lo, hi)
		return
	}
	gemmTile(out, a, m, panel, lo, hi)
}

// productTile is productPanel, out being what begins with the panel's first column of row
// lo, and its rows stride apart.
func (k *kernels) productTile(out []float32, stride int, a *acts, m *matrix, panel, lo, hi int) {
	if m.quant != nil {
		k.quantPanelProduct(out, stride, a.records, m, panel, lo, hi)
		return
	}
	k.product(out, stride, a.rows, m, panel, lo, hi)
}

// aloneWork bounds the multiply-adds that one goroutine does without the others:
// about as long as it takes to share them.
func (k *kernels) aloneWork() int {
	if k.vector() {
		return 100000 // 30 a nanosecond
	}
	return 20000 // 1 a nanosecond
}

// product is productTile for weights that are not quantised; x is [row][k].
func (k *kernels) product(out []float32, stride int, x []float32, m *matrix, panel, lo, hi int) {
	parts := (m.k + blockK - 1) / blockK
	if hi-lo <= 1 {
		parts = (m.k + 4095) / 4096 // nothing to come back to; some 30 µs that nothing can interrupt
	}
	block := (m.k + parts - 1) / parts
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

// run does the tile's rows by all columns of a panel over the k [at, at+n). They
// are the rows [done, done+t.rows) of so many that take their turn with the block,
// and fetch that part of the next one; a row that is alone fetches its own.
func (t *tile) run(out []float32, stride int, x []float32, m *matrix, panel, at, n, done, rows int) {
	first := 0
	if at == 0 {
		first = 1
	}
	turn, turns, rowBytes := done*len(t.columns), rows*len(t.columns), 4*vectorCols
	if m.words != nil {
		rowBytes = 4 * wordCols
	}
	share := (64*t.rows + turns - 1) / turns // of each 64 bytes
	for _, c := range t.columns {
		fetch := rowBytes*n + rowBytes*n*turn/turns
		if rows == 1 {
			fetch = rowBytes * aheadK
		}
		switch {
		case m.words == nil:
			w := m.panels[(panel*m.k+at)*vectorCols+c : (panel*m.k+at+n)*vectorCols]
			t.f32(&out[c], 4*stride, &x[0], 4*m.k, &w[0], n, first, fetch, share)
		case m.kind == kv.F16:
			w := m.words[(panel*m.k+at)*wordCols+c/2 : (panel*m.k+at+n)*wordCols]
			t.f16(&out[c], 4*stride, &x[0], 4*m.k, &w[0], n, first, fetch, share)
		default:
			w := m.words[(panel*m.k+at)*wordCols+c/32*16+c%32 : (panel*m.k+at+n)*wordCols]
			t.bf16(&out[c], 4*stride, &x[0], 4*m.k, &w[0], n, first, fetch, share)
		}
		turn += t.rows
	}
}
