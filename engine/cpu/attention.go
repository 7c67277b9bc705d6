package cpu

import (
	"math"

	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/internal/f32"
	"github.com/coppice-llm/coppice/kv"
)

// attend computes the attention of one token in one layer, for the query heads that share one kv
// head. group is the number of these query heads, head the index of the kv head. The token sees
// positions [0, n) of the sequence whose pages are given; attend reads no KV at or past n. q and
// out are [group][dim], and scale multiplies each score. attend is the portable path; tests
// compare the vector kernels with it.
func (a *arena) attend(w *scratch, out, q []float32, pages []kv.PageID, layer, head, group, n int, scale float32) {
	a.scores(w, q, pages, layer, head, group, n, scale)
	for g := range group {
		s := w.scores[g*n : (g+1)*n]
		inv := 1 / softmaxWeights(s)
		a.values(w, out[g*a.dim:(g+1)*a.dim], s, pages, layer, head, inv)
	}
}

// scores writes scale·(q_g · k_p) to w.scores[g*n+p] for each query head g and position p. Its
// parameters are those of attend.
func (a *arena) scores(w *scratch, q []float32, pages []kv.PageID, layer, head, group, n int, scale float32) {
	for p := 0; p < n; p += a.tokens {
		end := min(n-p, a.tokens)
		k := a.rows(portable, w.rows, pages[p/a.tokens], halfK(layer), head, end)
		for g := range group {
			qg, s := q[g*a.dim:(g+1)*a.dim], w.scores[g*n+p:g*n+p+end]
			for i := range s {
				s[i] = float32(f32.Dot(qg, k[i*a.dim:(i+1)*a.dim]) * scale)
			}
		}
	}
}

// softmaxWeights replaces the scores by e^(s-max), which can't overflow, and returns their sum. It
// adds the weight of position p to partial sum p%16, and the 16 partial sums as a tree. So the
// order of summation depends on positions alone, not on pages or on the batch.
func softmaxWeights(s []float32) float32 {
	top := float32(math.Inf(-1))
	for _, x := range s {
		if x > top {
			top = x
		}
	}
	var lanes [f32.Lanes]float32
	for p, x := range s {
		e := f32.Exp32(x - top)
		s[p] = e
		lanes[p%f32.Lanes] += e
	}
	return f32.Tree16(&lanes)
}

// values writes (Σ_p w_p·v_p)·inv to out, where w_p is weights[p] and inv is 1 over the sum of the
// weights; the other parameters are those of attend. Each element is one fma chain over ascending
// p. The sums are f64 that hold f32 values, see gemm.go.
func (a *arena) values(w *scratch, out, weights []float32, pages []kv.PageID, layer, head int, inv float32) {
	if f32.Fuses() {
		clear(out)
		a.fusedValues(w, out, weights, pages, layer, head)
		for i, s := range out {
			out[i] = float32(s * inv)
		}
		return
	}
	const cols = 8 // dim is a multiple of 16
	sums := w.columns[:a.dim]
	clear(sums)
	for p := 0; p < len(weights); p += a.tokens {
		part := weights[p:min(p+a.tokens, len(weights))]
		v := a.rows(portable, w.rows, pages[p/a.tokens], halfV(layer), head, len(part))
		for d := 0; d < a.dim; d += cols {
			acc := (*[cols]float64)(sums[d:])
			if before := *acc; !values8(acc, part, v[d:], a.dim) {
				*acc = before
				plainValues(acc, part, v[d:], a.dim)
			}
		}
	}
	for i, s := range sums {
		out[i] = float32(float32(s) * inv)
	}
}

// plainValues computes the same as values8 by f32.FMA32. It never fails and is slower.
func plainValues(acc *[8]float64, w, v []float32, dim int) {
	for i := range acc {
		s := float32(acc[i])
		for p, e := range w {
			s = f32.FMA32(e, v[p*dim+i], s)
		}
		acc[i] = float64(s)
	}
}

// values8 adds Σ_p w_p·v_p to eight columns; v is [p][dim], starting at the first column. It
// checks the exponent of every sum, because softmax weights reach down to e^-87 and safe()
// can't rule out underflow here. It returns false on a tie (rare: the factors have 24 bits
// each) or where a sum leaves the range of froundIn; acc is then unchanged.
func values8(acc *[8]float64, w, v []float32, dim int) (ok bool) {
	s0, s1, s2, s3, s4, s5, s6, s7 := acc[0], acc[1], acc[2], acc[3], acc[4], acc[5], acc[6], acc[7]
	for p, weight := range w {
		e, x := float64(weight), (*[8]float32)(v[p*dim:])
		if s0, ok = froundIn(e*float64(x[0]), s0); !ok {
			return false
		}
		if s1, ok = froundIn(e*float64(x[1]), s1); !ok {
			return false
		}
		if s2, ok = froundIn(e*float64(x[2]), s2); !ok {
			return false
		}
		if s3, ok = froundIn(e*float64(x[3]), s3); !ok {
			return false
		}
		if s4, ok = froundIn(e*float64(x[4]), s4); !ok {
			return false
		}
		if s5, ok = froundIn(e*float64(x[5]), s5); !ok {
			return false
		}
		if s6, ok = froundIn(e*float64(x[6]), s6); !ok {
			return false
		}
		if s7, ok = froundIn(e*float64(x[7]), s7); !ok {
			return false
		}
	}
	*acc = [8]float64{s0, s1, s2, s3, s4, s5, s6, s7}
	return true
}

// froundIn returns p+a rounded once to the 24 bits of an f32. ok is false for a sum half-way between two
// f32, for one below 2^-126 in magnitude, where an f32 has fewer bits, and for one of at least 2^127.
func froundIn(p, a float64) (r float64, ok bool) {
	const (
		smallest  = (1023 - 126) << 53 // f64 bits, shifted left by one: without the sign
		spanOfF32 = (1023+127)<<53 - smallest
	)
	s := p + a
	return float64(float32(s)), !f32.Halfway(s) && math.Float64bits(s)<<1-smallest < spanOfF32
}

// rope holds the rotary embedding's cosines and sines, [position][dim/2] each.
type rope struct {
	half     int
	cos, sin []float32
}

// newRope tabulates positions [0, positions).
func newRope(c *model.Config, positions int) *rope {
	cos, sin := c.RopeTables(positions)
	return &rope{half: c.HeadDim / 2, cos: cos, sin: sin}
}

// rotate applies the rotation of position p to one head in place. It pairs element i with
// element i+dim/2.
func (r *rope) rotate(x []float32, p int) {
	cos, sin := r.cos[p*r.half:(p+1)*r.half], r.sin[p*r.half:(p+1)*r.half]
	lo, hi := x[:r.half], x[r.half:2*r.half]
	for i, a := range lo {
		b := hi[i]
		lo[i] = float32(a*cos[i]) - float32(b*sin[i])
		hi[i] = float32(b*cos[i]) + float32(a*sin[i])
	}
}
