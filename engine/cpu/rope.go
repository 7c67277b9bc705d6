package cpu

import (
	"math"
	"math/big"

	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/internal/f32"
)

// rope holds the rotary embedding's cosines and sines, [position][dim/2] each.
type rope struct {
	half     int
	cos, sin []float32
}

// newRope tabulates positions [0, positions). The angle is the f32 product of
// position and frequency, as Hugging Face computes it.
func newRope(c *model.Config, positions int) *rope {
	freq := frequencies(c)
	r := &rope{half: len(freq), cos: make([]float32, positions*len(freq)), sin: make([]float32, positions*len(freq))}
	for p := range positions {
		for i, f := range freq {
			at := p*r.half + i
			r.sin[at], r.cos[at] = f32.SinCos(float32(float32(p) * f))
		}
	}
	return r
}

// rotate turns one head at position p: element i with element i+dim/2.
func (r *rope) rotate(x []float32, p int) {
	cos, sin := r.cos[p*r.half:(p+1)*r.half], r.sin[p*r.half:(p+1)*r.half]
	lo, hi := x[:r.half], x[r.half:2*r.half]
	for i, a := range lo {
		b := hi[i]
		lo[i] = float32(a*cos[i]) - float32(b*sin[i])
		hi[i] = float32(b*cos[i]) + float32(a*sin[i])
	}
}

// frequencies are 1/θ^(2i/dim) for i in [0, dim/2), scaled as Llama 3.1 does if
// the model asks for it, in f64 and rounded to f32 at the end.
func frequencies(c *model.Config) []float32 {
	half := c.HeadDim / 2
	freq := make([]float32, half)
	for i, inv := range inversePowers(c.RopeTheta, half) {
		if s := c.RopeScaling; s != nil {
			inv = stretch(inv, s)
		}
		freq[i] = float32(inv)
	}
	return freq
}

// stretch is rope_type "llama3" (transformers, modeling_rope_utils.py,
// _compute_llama3_parameters): long waves are slowed by Factor, short ones kept,
// those between interpolated.
func stretch(inv float64, s *model.RopeScaling) float64 {
	orig := float64(s.OriginalMaxPositions)
	wave := 2 * math.Pi / inv
	switch {
	case wave > orig/s.LowFreqFactor:
		return inv / s.Factor
	case wave < orig/s.HighFreqFactor:
		return inv
	}
	t := (orig/wave - s.LowFreqFactor) / (s.HighFreqFactor - s.LowFreqFactor)
	return float64((1-t)*inv/s.Factor) + float64(t*inv)
}

// inversePowers are θ^(-i/n) for i in [0, n). math.Pow differs by target in its
// last bits, so the n-th root is found by Newton's method with 160 bits, of which
// far more than 53 are right whatever the first guess.
func inversePowers(theta float64, n int) []float64 {
	const prec = 160
	num := func(v float64) *big.Float { return new(big.Float).SetPrec(prec).SetFloat64(v) }
	t, root := num(theta), num(math.Pow(theta, 1/float64(n)))
	for range 6 {
		// root ← ((n-1)·root + θ/root^(n-1)) / n
		power := num(1)
		for range n - 1 {
			power.Mul(power, root)
		}
		q := num(0).Quo(t, power)
		root.Mul(root, num(float64(n-1)))
		root.Quo(root.Add(root, q), num(float64(n)))
	}
	out, p := make([]float64, n), num(1)
	for i := range out {
		out[i], _ = num(0).Quo(num(1), p).Float64()
		p.Mul(p, root)
	}
	return out
}
