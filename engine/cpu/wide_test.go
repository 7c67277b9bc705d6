package cpu

import (
	"math"

	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/kv"
)

// wide is twin's forward pass in f64 with package math, angles included. It shows that the
// results are accurate, where twin shows that the order of summation is the promised one.
func wide(m *model.Model, tokens []kv.Token) [][]float64 {
	w := wideTwin{m.Config()}
	x := make([][]float64, len(tokens))
	embed := widen(m.Embed())
	for t, id := range tokens {
		x[t] = make([]float64, w.c.Hidden)
		for i := range x[t] {
			x[t][i] = float64(embed[int(id)*w.c.Hidden+i])
		}
	}
	for _, l := range m.Layers() {
		w.layer(x, &l)
	}
	out := make([][]float64, len(x))
	for t := range x {
		out[t] = w.mul(m.Head(), w.norm(x[t], m.Norm()), nil)
	}
	return out
}

type wideTwin struct{ c *model.Config }

// layer takes the residual streams of all tokens through one layer.
func (w wideTwin) layer(x [][]float64, l *model.Layer) {
	var q, k, v [][]float64
	for t := range x {
		h := w.norm(x[t], l.AttnNorm)
		q, k, v = append(q, w.mul(l.Q, h, l.QBias)), append(k, w.mul(l.K, h, l.KBias)), append(v, w.mul(l.V, h, l.VBias))
		w.turn(q[t], l.QNorm, t)
		w.turn(k[t], l.KNorm, t)
	}
	for t := range x {
		wideAdd(x[t], w.mul(l.O, w.attend(q[t], k[:t+1], v), l.OBias))
		h := w.norm(x[t], l.FFNNorm)
		g, u := w.mul(l.Gate, h, l.GateBias), w.mul(l.Up, h, l.UpBias)
		for i := range g {
			g[i] = g[i] / (1 + math.Exp(-g[i])) * u[i]
		}
		wideAdd(x[t], w.mul(l.Down, g, l.DownBias))
	}
}

func (wideTwin) mul(m *model.Tensor, x []float64, bias *model.Tensor) []float64 {
	data, out := widen(m), make([]float64, m.Shape[0])
	for r := range out {
		for k, a := range x {
			out[r] += a * float64(data[r*len(x)+k])
		}
	}
	if bias != nil {
		for r, b := range widen(bias) {
			out[r] += float64(b)
		}
	}
	return out
}

func (w wideTwin) norm(x []float64, weight *model.Tensor) []float64 {
	sum, y, g := 0.0, make([]float64, len(x)), widen(weight)
	for _, a := range x {
		sum += a * a
	}
	for i, a := range x {
		y[i] = a / math.Sqrt(sum/float64(len(x))+w.c.NormEps) * float64(g[i])
	}
	return y
}

// turn normalises each head of x, if norm is not nil, and rotates it to position pos.
func (w wideTwin) turn(x []float64, norm *model.Tensor, pos int) {
	half := w.c.HeadDim / 2
	for ; len(x) > 0; x = x[2*half:] {
		if norm != nil {
			copy(x, w.norm(x[:2*half], norm))
		}
		for i := range half {
			inv := math.Pow(w.c.RopeTheta, -float64(i)/float64(half))
			if w.c.RopeScaling != nil {
				inv = w.c.RopeScaling.Stretch(inv)
			}
			sin, cos := math.Sincos(float64(pos) * inv)
			a, b := x[i], x[i+half]
			x[i], x[i+half] = a*cos-b*sin, b*cos+a*sin
		}
	}
}

// attend returns the attention of all heads of q over all positions of k and v.
func (w wideTwin) attend(q []float64, k, v [][]float64) []float64 {
	dim, a := w.c.HeadDim, make([]float64, len(q))
	for h := range w.c.Heads {
		qo, ko := h*dim, h*w.c.KVHeads/w.c.Heads*dim
		sum := 0.0
		for p := range k {
			s := 0.0
			for d := range dim {
				s += q[qo+d] * k[p][ko+d]
			}
			e := math.Exp(s / math.Sqrt(float64(dim)))
			sum += e
			for d := range dim {
				a[qo+d] += e * v[p][ko+d]
			}
		}
		for d := range dim {
			a[qo+d] /= sum
		}
	}
	return a
}

func wideAdd(x, y []float64) {
	for i := range x {
		x[i] += y[i]
	}
}
