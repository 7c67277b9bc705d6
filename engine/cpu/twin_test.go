package cpu

import (
	"math"

	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/gguf"
	"github.com/coppice-llm/coppice/internal/f32"
	"github.com/coppice-llm/coppice/kv"
)

// twin is the plain oracle. It computes the whole sequence at once by loops written from the
// formulas, with the exact fma and without panels, pages, chunks or threads. It returns the
// logits after every position.
func twin(m *model.Model, tokens []kv.Token) [][]float32 {
	c := m.Config()
	embed := widen(m.Embed())
	x := make([][]float32, len(tokens))
	for t, id := range tokens {
		x[t] = append([]float32(nil), embed[int(id)*c.Hidden:(int(id)+1)*c.Hidden]...)
	}
	freq := c.RopeFrequencies()
	for _, l := range m.Layers() {
		h := twinNorms(x, l.AttnNorm, c.NormEps)
		q, k, v := twinMul(l.Q, h, l.QBias), twinMul(l.K, h, l.KBias), twinMul(l.V, h, l.VBias)
		for t := range x {
			if c.QKNorm {
				q[t], k[t] = twinHeadNorm(q[t], l.QNorm, c.NormEps), twinHeadNorm(k[t], l.KNorm, c.NormEps)
			}
			twinRope(q[t], freq, t)
			twinRope(k[t], freq, t)
		}
		for t := range x {
			h[t] = twinAttend(c, q[t], k, v, t)
		}
		for t, y := range twinMul(l.O, h, l.OBias) {
			twinAdd(x[t], y)
		}
		h = twinNorms(x, l.FFNNorm, c.NormEps)
		g, u := twinMul(l.Gate, h, l.GateBias), twinMul(l.Up, h, l.UpBias)
		for t := range g {
			for i, a := range g[t] {
				// silu(g)·u
				g[t][i] = float32(float32(a/(1+f32.Exp32(-a))) * u[t][i])
			}
		}
		for t, y := range twinMul(l.Down, g, l.DownBias) {
			twinAdd(x[t], y)
		}
	}
	return twinMul(m.Head(), twinNorms(x, m.Norm(), c.NormEps), nil)
}

// lanes16 sums 16 lanes as a tree.
func lanes16(v [16]float32) float32 {
	for w := 8; w > 0; w /= 2 {
		for i := range w {
			v[i] += v[i+w]
		}
	}
	return v[0]
}

func twinNorm(x, w []float32, eps float64) []float32 {
	var v [16]float32
	for i, a := range x {
		v[i%16] = f32.FMA32(a, a, v[i%16])
	}
	r := 1 / float32(math.Sqrt(float64(lanes16(v)/float32(len(x))+float32(eps))))
	y := make([]float32, len(x))
	for i := range x {
		y[i] = float32(float32(x[i]*r) * w[i])
	}
	return y
}

// twinNorms normalises each row.
func twinNorms(rows [][]float32, weight *model.Tensor, eps float64) [][]float32 {
	w, y := widen(weight), make([][]float32, len(rows))
	for t, x := range rows {
		y[t] = twinNorm(x, w, eps)
	}
	return y
}

// twinHeadNorm normalises each head of x; weight is as long as a head.
func twinHeadNorm(x []float32, weight *model.Tensor, eps float64) []float32 {
	var y []float32
	for w := widen(weight); len(x) > 0; x = x[len(w):] {
		y = append(y, twinNorm(x[:len(w)], w, eps)...)
	}
	return y
}

// twinMul returns w·x + bias for each row x; bias may be nil.
func twinMul(w *model.Tensor, rows [][]float32, bias *model.Tensor) [][]float32 {
	out := make([][]float32, len(rows))
	if w.Quantized() {
		out = twinQuantMul(w, rows...)
	} else {
		data := widen(w)
		for t, x := range rows {
			out[t] = make([]float32, w.Shape[0])
			for r := range out[t] {
				sum := float32(0)
				for k, a := range x {
					sum = f32.FMA32(a, data[r*len(x)+k], sum)
				}
				out[t][r] = sum
			}
		}
	}
	if bias != nil {
		b := widen(bias)
		for t := range out {
			twinAdd(out[t], b)
		}
	}
	return out
}

// twinRow is a row in eight bits, in blocks of 32 values: x is q·d, and sums are those of a block's q.
type twinRow struct {
	q, sums []int
	d       []float32
}

func twinQuantize(x []float32) twinRow {
	q, d, sums := make([]int, len(x)), make([]float32, len(x)/32), make([]int, len(x)/32)
	for b := range d {
		most := 0.0
		for _, v := range x[32*b : 32*b+32] {
			most = max(most, math.Abs(float64(v)))
		}
		if d[b] = float32(most) / 127; d[b] < 0x1p-120 {
			d[b] = 0
			continue
		}
		for i := 32 * b; i < 32*b+32; i++ {
			q[i] = int(min(max(math.RoundToEven(float64(x[i]*(1/d[b]))), -127), 127))
			sums[b] += q[i]
		}
	}
	return twinRow{q, sums, d}
}

// twinQuantMul returns w·x for each row x, by the definition in quant.go.
func twinQuantMul(w *model.Tensor, rows ...[]float32) [][]float32 {
	t, out, quantized := w.Quant, make([][]float32, len(rows)), make([]twinRow, len(rows))
	for i, x := range rows {
		out[i], quantized[i] = make([]float32, w.Shape[0]), twinQuantize(x)
	}
	k := len(rows[0])
	n, bytes := t.SubBlock(), t.Bytes(k)
	for r := range w.Shape[0] {
		var block gguf.Block
		for i := 0; i < k; i += n {
			if i%t.BlockValues() == 0 {
				gguf.Unpack(t, &block, w.Data[r*bytes+t.Bytes(i):r*bytes+t.Bytes(i+t.BlockValues())])
			}
			at := i % t.BlockValues()
			for row, x := range quantized {
				sum := 0
				for j := range n {
					sum += int(block.Quants[at+j]) * x.q[i+j]
				}
				y := f32.FMA32(float32(sum), block.Scales[at/n]*x.d[i/32], out[row][r])
				if t.HasMins() {
					y = f32.FMA32(block.Mins[at/n], float32(x.sums[i/32])*x.d[i/32], y)
				}
				out[row][r] = y
			}
		}
	}
	return out
}

func twinRope(x []float32, freq []float32, pos int) {
	dim := 2 * len(freq)
	for h := 0; h < len(x); h += dim {
		for i, f := range freq {
			sin, cos := f32.SinCos(float32(float32(pos) * f))
			a, b := x[h+i], x[h+i+dim/2]
			x[h+i] = float32(a*cos) - float32(b*sin)
			x[h+i+dim/2] = float32(b*cos) + float32(a*sin)
		}
	}
}

func twinAttend(c *model.Config, q []float32, k, v [][]float32, last int) []float32 {
	scale := float32(1 / math.Sqrt(float64(c.HeadDim)))
	out := make([]float32, c.Heads*c.HeadDim)
	for h := range c.Heads {
		qo, ko := h*c.HeadDim, h/(c.Heads/c.KVHeads)*c.HeadDim
		s, top := make([]float32, last+1), float32(math.Inf(-1))
		for p := range s {
			var lane [16]float32
			for d := range c.HeadDim {
				a, b := q[qo+d], k[p][ko+d]
				if d < 16 {
					lane[d] = float32(a * b)
				} else {
					lane[d%16] = f32.FMA32(a, b, lane[d%16])
				}
			}
			s[p] = float32(lanes16(lane) * scale)
			top = max(top, s[p])
		}
		var sum [16]float32
		for p := range s {
			s[p] = f32.Exp32(s[p] - top)
			sum[p%16] += s[p]
		}
		inv := 1 / lanes16(sum)
		for d := range c.HeadDim {
			acc := float32(0)
			for p := range s {
				acc = f32.FMA32(s[p], v[p][ko+d], acc)
			}
			out[qo+d] = float32(acc * inv)
		}
	}
	return out
}

func twinAdd(x, y []float32) {
	for i := range x {
		x[i] += y[i]
	}
}
