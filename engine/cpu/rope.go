package cpu

import "github.com/coppice-llm/coppice/engine/model"

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
