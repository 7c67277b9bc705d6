package cpu

import (
	"math"

	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/internal/f32"
	"github.com/coppice-llm/coppice/kv"
)

// twin is the plain oracle: the whole sequence at once, loops straight from the
// formulas, no panels, no pages, no chunks, no threads, and the exact fma alone.
// It returns the logits after every position.
func twin(m *model.Model, tokens []kv.Token) [][]float32 {
	c := m.Config()
	embed := widen(m.Embed())
	x := make([][]float32, len(tokens))
	for t, id := range tokens {
		x[t] = append([]float32(nil), embed[int(id)*c.Hidden:(int(id)+1)*c.Hidden]...)
	}
	freq := frequencies(c)
	for _, l := range m.Layers() {
		q, k, v := make([][]float32, len(x)), make([][]float32, len(x)), make([][]float32, len(x))
		for t := range x {
			h := twinNorm(x[t], widen(l.AttnNorm), c.NormEps)
			q[t], k[t], v[t] = twinMul(l.Q, h), twinMul(l.K, h), twinMul(l.V, h)
			twinRope(q[t], freq, t)
			twinRope(k[t], freq, t)
		}
		for t := range x {
			twinAdd(x[t], twinMul(l.O, twinAttend(c, q[t], k, v, t)))
			h := twinNorm(x[t], widen(l.FFNNorm), c.NormEps)
			g, u := twinMul(l.Gate, h), twinMul(l.Up, h)
			for i := range g {
				// silu(g)·u
				g[i] = float32(float32(g[i]/(1+f32.Exp32(-g[i]))) * u[i])
			}
			twinAdd(x[t], twinMul(l.Down, g))
		}
	}
	out := make([][]float32, len(x))
	for t := range x {
		out[t] = twinMul(m.Head(), twinNorm(x[t], widen(m.Norm()), c.NormEps))
	}
	return out
}

// lanes16 sums terms that were put into lanes already.
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

func twinMul(w *model.Tensor, x []float32) []float32 {
	data, out := widen(w), make([]float32, w.Shape[0])
	for r := range out {
		for k, a := range x {
			out[r] = f32.FMA32(a, data[r*len(x)+k], out[r])
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

// wide is the same forward pass in f64 with package math: it shows that the
// arithmetic is right, where twin shows that it is the one promised.
func wide(m *model.Model, tokens []kv.Token) [][]float64 {
	c := m.Config()
	mul := func(w *model.Tensor, x []float64) []float64 {
		data, out := widen(w), make([]float64, w.Shape[0])
		for r := range out {
			for k, a := range x {
				out[r] += a * float64(data[r*len(x)+k])
			}
		}
		return out
	}
	norm := func(x []float64, w *model.Tensor) []float64 {
		sum, y, g := 0.0, make([]float64, len(x)), widen(w)
		for _, a := range x {
			sum += a * a
		}
		for i, a := range x {
			y[i] = a / math.Sqrt(sum/float64(len(x))+c.NormEps) * float64(g[i])
		}
		return y
	}
	turn := func(x []float64, pos int) {
		for h := 0; h < len(x); h += c.HeadDim {
			for i := range c.HeadDim / 2 {
				inv := math.Pow(c.RopeTheta, -2*float64(i)/float64(c.HeadDim))
				if c.RopeScaling != nil {
					inv = stretch(inv, c.RopeScaling)
				}
				sin, cos := math.Sincos(float64(pos) * inv)
				a, b := x[h+i], x[h+i+c.HeadDim/2]
				x[h+i], x[h+i+c.HeadDim/2] = a*cos-b*sin, b*cos+a*sin
			}
		}
	}
	embed := widen(m.Embed())
	x := make([][]float64, len(tokens))
	for t, id := range tokens {
		x[t] = make([]float64, c.Hidden)
		for i := range x[t] {
			x[t][i] = float64(embed[int(id)*c.Hidden+i])
		}
	}
	for _, l := range m.Layers() {
		var q, k, v [][]float64
		for t := range x {
			h := norm(x[t], l.AttnNorm)
			q, k, v = append(q, mul(l.Q, h)), append(k, mul(l.K, h)), append(v, mul(l.V, h))
			turn(q[t], t)
			turn(k[t], t)
		}
		for t := range x {
			a := make([]float64, c.Heads*c.HeadDim)
			for h := range c.Heads {
				qo, ko := h*c.HeadDim, h*c.KVHeads/c.Heads*c.HeadDim
				sum := 0.0
				for p := range t + 1 {
					s := 0.0
					for d := range c.HeadDim {
						s += q[t][qo+d] * k[p][ko+d]
					}
					e := math.Exp(s / math.Sqrt(float64(c.HeadDim)))
					sum += e
					for d := range c.HeadDim {
						a[qo+d] += e * v[p][ko+d]
					}
				}
				for d := range c.HeadDim {
					a[qo+d] /= sum
				}
			}
			for i, y := range mul(l.O, a) {
				x[t][i] += y
			}
			h := norm(x[t], l.FFNNorm)
			g, u := mul(l.Gate, h), mul(l.Up, h)
			for i := range g {
				g[i] = g[i] / (1 + math.Exp(-g[i])) * u[i]
			}
			for i, y := range mul(l.Down, g) {
				x[t][i] += y
			}
		}
	}
	out := make([][]float64, len(x))
	for t := range x {
		out[t] = mul(m.Head(), norm(x[t], m.Norm()))
	}
	return out
}
