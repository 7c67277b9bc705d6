package cpu

import (
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/internal/f32"
)

// rope holds the rotary embedding's cosines and sines, [position][dim/2] each.
type rope struct {
	half     int
	cos, sin []float32
}

// newRope tabulates positions [0, positions). The angle is the product of position and
// frequency rounded to f32, as in Hugging Face's transformers; an exact product would give
// other bits at high positions.
func newRope(c *model.Config, positions int) *rope {
	freq := c.RopeFrequencies()
	r := &rope{half: len(freq), cos: make([]float32, positions*len(freq)), sin: make([]float32, positions*len(freq))}
	for p := range positions {
		for i, f := range freq {
			at := p*r.half + i
			r.sin[at], r.cos[at] = f32.SinCos(float32(float32(p) * f))
		}
	}
	return r
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
