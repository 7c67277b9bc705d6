package model

import (
	"math"
	"math/big"

	"github.com/coppice-llm/coppice/internal/f32"
)

// RopeFrequencies returns the rotary frequencies, 1/θ^(2i/dim) for i in [0, dim/2), scaled by
// RopeScaling or RopeFactors if set. They are computed in f64 and rounded to f32 at the end.
func (c *Config) RopeFrequencies() []float32 {
	half := c.HeadDim / 2
	freq := make([]float32, half)
	for i, inv := range inversePowers(c.RopeTheta, half) {
		if s := c.RopeScaling; s != nil {
			inv = s.Stretch(inv)
		}
		if c.RopeFactors != nil {
			inv /= float64(c.RopeFactors[i])
		}
		freq[i] = float32(inv)
	}
	return freq
}

// RopeTables returns the cosines and sines of the rotary embedding for positions [0, positions), as
// [position][dim/2]. The angle is the product of position and frequency rounded to f32, as in Hugging
// Face's transformers; an exact product would give other bits at high positions.
func (c *Config) RopeTables(positions int) (cos, sin []float32) {
	freq := c.RopeFrequencies()
	cos, sin = make([]float32, positions*len(freq)), make([]float32, positions*len(freq))
	for i := range cos {
		sin[i], cos[i] = f32.SinCos(float32(float32(i/len(freq)) * freq[i%len(freq)]))
	}
	return cos, sin
}

// Stretch returns the rotary frequency inv scaled like rope_type "llama3" (transformers,
// modeling_rope_utils.py, _compute_llama3_parameters): long wavelengths are multiplied by Factor,
// short ones are unchanged, and those between are interpolated.
func (s *RopeScaling) Stretch(inv float64) float64 {
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

// inversePowers returns θ^(-i/n) for i in [0, n). It computes the n-th root by Newton's method
// with 160 bits, because the last bits of math.Pow depend on the platform. Far more than the
// needed 53 bits are right, whatever the first guess.
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
