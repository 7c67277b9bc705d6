package cpu

import (
	"math"

	"github.com/coppice-llm/coppice/engine/model"
)

// panelCols is the number of output columns that lie side by side in a panel.
const panelCols = 8

// matrix is a weight packed for the kernels: panels [ceil(n/8)][k][8], so that a
// kernel walks k with eight columns at hand. Columns past n are zero.
type matrix struct {
	n, k   int // output and input width
	panels []float32
	// Exponents (floor of log2) of the smallest and the largest weight but zero;
	// they tell for which inputs the fast kernels are exact.
	exps exponents
}

// stride is the width of an output row: n rounded up to whole panels.
func (m *matrix) stride() int { return m.panelCount() * panelCols }

func (m *matrix) panelCount() int { return (m.n + panelCols - 1) / panelCols }

// column is output column c over all k: element k is at [k*panelCols].
func (m *matrix) column(c int) []float32 {
	lo := c/panelCols*panelCols*m.k + c%panelCols
	return m.panels[lo : lo+panelCols*m.k]
}

// pack stacks the rows of the tensors, which all have k columns.
func pack(k int, tensors ...*model.Tensor) *matrix {
	m := &matrix{k: k, exps: noExponents}
	for _, t := range tensors {
		m.n += t.Shape[0]
	}
	// The last columns' slices reach past the last panel by up to seven elements.
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
	return m
}

// layer is one transformer layer, packed.
type layer struct {
	attnNorm, ffnNorm []float32
	qkv, o, gateUp    *matrix
	down              *matrix
}

// weights is the whole model, packed.
type weights struct {
	embed  []float32 // [vocab][hidden]
	layers []layer
	norm   []float32
	head   *matrix
}

func packModel(m *model.Model) *weights {
	c := m.Config()
	w := &weights{embed: widen(m.Embed()), norm: widen(m.Norm()), head: pack(c.Hidden, m.Head())}
	for _, l := range m.Layers() {
		w.layers = append(w.layers, layer{
			attnNorm: widen(l.AttnNorm),
			ffnNorm:  widen(l.FFNNorm),
			qkv:      pack(c.Hidden, l.Q, l.K, l.V),
			o:        pack(c.Heads*c.HeadDim, l.O),
			gateUp:   pack(c.Hidden, l.Gate, l.Up),
			down:     pack(c.FFN, l.Down),
		})
	}
	return w
}

func widen(t *model.Tensor) []float32 {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	v := make([]float32, n)
	t.Widen(v, 0, n)
	return v
}

// exponents bounds the magnitude of the non-zero values of a vector:
// 2^lo <= |v| < 2^(hi+1).
type exponents struct{ lo, hi int }

// noExponents holds for no values and for zeros alone.
var noExponents = exponents{lo: 1 << 12, hi: -1 << 12}

// add widens the bounds by v. Subnormals count as the smallest of them; infinity
// and NaN give an exponent that no limit allows.
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
