package cpu

import (
	"errors"
	"fmt"
	"math"

	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/internal/offheap"
	"github.com/coppice-llm/coppice/kv"
)

// panelCols is the number of columns of a panel of float weights in the portable path.
const panelCols = 8

// matrix is a weight packed for the kernels: panels [ceil(n/cols)][k][cols], so that a kernel
// reads cols columns of each k from consecutive memory. Columns past n are zero. In a paired
// matrix the columns of two tensors alternate, see columns. Exactly one of panels, words and
// quant is set; packVector describes words and packQuant quant.
type matrix struct {
	n, k   int // output and input width
	paired bool
	cols   int // of a panel: panelCols or vectorCols
	panels []float32
	words  []uint32       // bf16 or f16, two in each word
	kind   kv.DType       // of panels and words
	quads  bool           // panels and words hold blocks of four k, see vectorCols
	quant  []quantPanel   // by panel
	store  *offheap.Arena // memory of panels, words or quant; nil if it is on the Go heap
	// exps bounds the exponents (floor of log2) of the non-zero weights. acts.safe derives
	// from it for which inputs the fast portable kernels are exact.
	exps exponents
}

// stride returns the width of an output row in elements: n rounded up to whole panels.
func (m *matrix) stride() int { return m.panelCount() * m.cols }

func (m *matrix) panelCount() int { return (m.n + m.cols - 1) / m.cols }

// column returns output column c of a portable matrix; element k is at [k*panelCols].
func (m *matrix) column(c int) []float32 {
	lo := c/panelCols*panelCols*m.k + c%panelCols
	return m.panels[lo : lo+panelCols*m.k]
}

// packPair packs gate and up of an FFN. The matrix is paired if the kernels can compute both at
// once: in a vector path, with whole groups of pairCols columns and one type for both.
func (p *packer) packPair(k int, gate, up *model.Tensor) *matrix {
	m := &matrix{paired: p.kernels.vector() && gate.Shape[0]%pairCols == 0 && gate.Quant == up.Quant && gate.DType == up.DType}
	return p.packInto(m, k, gate, up)
}

// pairedBias returns the stacked bias of gate and up in the order of m's columns; it returns
// bias itself if m is not paired.
func (m *matrix) pairedBias(bias []float32) []float32 {
	if !m.paired || bias == nil {
		return bias
	}
	out, half := make([]float32, 0, len(bias)), len(bias)/2
	for c := 0; c < half; c += pairCols {
		out = append(append(out, bias[c:c+pairCols]...), bias[half+c:half+c+pairCols]...)
	}
	return out
}

// layer is one transformer layer, packed.
type layer struct {
	attnNorm, ffnNorm []float32
	qkv, o, gateUp    *matrix
	down              *matrix

	// Added to the products, [n] of the matrix; nil if the model has none.
	qkvBias, oBias, gateUpBias, downBias []float32
	// Norms of each head of q and k, [dim]; nil if the model has none.
	qNorm, kNorm []float32
}

// weights is the whole model, packed.
type weights struct {
	embed  *model.Tensor // a copy of the model's
	layers []layer
	norm   []float32
	head   *matrix
}

// packer packs for one path and collects errors in err.
type packer struct {
	kernels *kernels
	widen   bool // convert quantised weights to f32
	err     error
}

// packModel packs all weights. It fails if there is no memory for them.
func packModel(m *model.Model, k *kernels, widenAll bool) (*weights, error) {
	c, p := m.Config(), &packer{kernels: k, widen: widenAll}
	embed := *m.Embed()
	embed.Data = make([]byte, len(m.Embed().Data))
	for at := 0; at < len(embed.Data); at += 1 << 16 { // in pieces: the garbage collector waits for the end of a copy
		copy(embed.Data[at:], m.Embed().Data[at:min(at+1<<16, len(embed.Data))])
	}
	w := &weights{embed: &embed, norm: widen(m.Norm()), head: p.pack(c.Hidden, m.Head())}
	for _, l := range m.Layers() {
		w.layers = append(w.layers, layer{
			attnNorm: widen(l.AttnNorm),
			ffnNorm:  widen(l.FFNNorm),
			qkv:      p.pack(c.Hidden, l.Q, l.K, l.V),
			o:        p.pack(c.Heads*c.HeadDim, l.O),
			gateUp:   p.packPair(c.Hidden, l.Gate, l.Up),
			down:     p.pack(c.FFN, l.Down),

			qkvBias:    vector(l.QBias, l.KBias, l.VBias),
			oBias:      vector(l.OBias),
			gateUpBias: vector(l.GateBias, l.UpBias),
			downBias:   vector(l.DownBias),
			qNorm:      vector(l.QNorm),
			kNorm:      vector(l.KNorm),
		})
		last := &w.layers[len(w.layers)-1]
		last.gateUpBias = last.gateUp.pairedBias(last.gateUpBias)
	}
	if p.err != nil {
		return nil, errors.Join(fmt.Errorf("cpu: memory for the packed weights: %w", p.err), w.close())
	}
	return w, nil
}

// quantized reports whether some and whether all matrices are multiplied in integers.
func (w *weights) quantized() (some, all bool) {
	all = true
	for _, m := range w.matrices() {
		some, all = some || m.quant != nil, all && m.quant != nil
	}
	return some, all
}

// mapped returns the bytes of the memory outside the Go heap.
func (w *weights) mapped() (bytes int64) {
	for _, m := range w.matrices() {
		if m.store != nil {
			bytes += m.store.Bytes()
		}
	}
	return bytes
}

// close frees the memory outside the Go heap.
func (w *weights) close() error {
	var errs []error
	for _, m := range w.matrices() {
		if m.store != nil {
			errs = append(errs, m.store.Close())
		}
	}
	return errors.Join(errs...)
}

// matrices returns all matrices of the model.
func (w *weights) matrices() []*matrix {
	all := []*matrix{w.head}
	for i := range w.layers {
		l := &w.layers[i]
		all = append(all, l.qkv, l.o, l.gateUp, l.down)
	}
	return all
}

// vector concatenates the non-nil tensors as f32; nil if all are nil.
func vector(tensors ...*model.Tensor) []float32 {
	var v []float32
	for _, t := range tensors {
		if t != nil {
			v = append(v, widen(t)...)
		}
	}
	return v
}

// widen returns all values of a tensor as f32.
func widen(t *model.Tensor) []float32 {
	v := make([]float32, t.Len())
	t.Widen(v, 0, len(v))
	return v
}

// exponents bounds the magnitude of the non-zero values of a vector:
// 2^lo <= |v| < 2^(hi+1).
type exponents struct{ lo, hi int }

// noExponents bounds a vector without non-zero values.
var noExponents = exponents{lo: 1 << 12, hi: -1 << 12}

// add extends the bounds to the values of v. Any subnormal counts as 2^-149, the smallest one.
// Infinity and NaN set hi to 2^12, beyond every limit of safe.
func (e *exponents) add(v []float32) {
	small, large := uint32(math.MaxUint32), uint32(0)
	for _, x := range v {
		b := math.Float32bits(x) << 1
		small = min(small, b-1) // zero wraps to the largest
		large = max(large, b)
	}
	if large == 0 {
		return
	}
	if large >= 0xff<<24 {
		e.hi = 1 << 12
	}
	e.hi = max(e.hi, int(large>>24)-127)
	if lo := int((small+1)>>24) - 127; lo == -127 {
		e.lo = -149
	} else {
		e.lo = min(e.lo, lo)
	}
}

// pack packs tensors, which all have k columns, into one matrix: it stacks their rows. Errors go
// to p.err.
func (p *packer) pack(k int, tensors ...*model.Tensor) *matrix {
	return p.packInto(&matrix{}, k, tensors...)
}

func (p *packer) packInto(m *matrix, k int, tensors ...*model.Tensor) *matrix {
	m.k, m.cols, m.exps, m.quads = k, panelCols, noExponents, p.kernels.quads
	for _, t := range tensors {
		m.n += t.Shape[0]
	}
	if formats := quantFormats(k, tensors); formats != nil && !p.widen {
		p.err = errors.Join(p.err, packQuant(m, p.kernels.quantOrder(), formats, tensors))
	} else if p.kernels.vector() {
		p.err = errors.Join(p.err, packVector(m, tensors))
	} else {
		packPortable(m, tensors)
	}
	return m
}

// packPortable packs for the portable kernels, as f32 on the Go heap, and records the exponents.
func packPortable(m *matrix, tensors []*model.Tensor) {
	k := m.k
	// column(c) slices panelCols*k elements from column c on, so in the last panel it reaches
	// up to seven elements past the end.
	m.panels = make([]float32, m.panelCount()*panelCols*k+panelCols)
	row, c := make([]float32, k), 0
	for _, t := range tensors {
		for r := range t.Shape[0] {
			t.Widen(row, r*k, (r+1)*k)
			col := m.column(c)
			for i, w := range row {
				col[i*panelCols] = w
			}
			m.exps.add(row)
			c++
		}
	}
}
