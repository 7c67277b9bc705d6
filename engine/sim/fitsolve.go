package sim

import (
	"math"

	"github.com/coppice-llm/coppice/engine"
)

// fitted is the number of figures that Fit determines.
const fitted = 9

// vector holds the natural logarithms of the fitted figures, in the order of fitFields. In
// logarithms equal factors are equal distances, and no figure can become negative.
type vector [fitted]float64

// fitField is a fitted figure: its name in JSON, its field in Efficiency, and its bounds.
type fitField struct {
	name   string
	of     func(*Efficiency) *float64
	lo, hi float64
}

// leastShare is the lower bound of a share. A share nearer to 0 would make some part of a step
// take practically forever.
const leastShare = 1e-5

var fitFields = [fitted]fitField{
	{"e_w", func(e *Efficiency) *float64 { return &e.Weights }, leastShare, 1},
	{"e_f", func(e *Efficiency) *float64 { return &e.Flops }, leastShare, 1},
	{"n_half", func(e *Efficiency) *float64 { return &e.NHalf }, 1e-3, 4096},
	{"e_a", func(e *Efficiency) *float64 { return &e.Attend }, leastShare, 1},
	{"e_k", func(e *Efficiency) *float64 { return &e.KVTile }, leastShare, 1},
	{"e_d", func(e *Efficiency) *float64 { return &e.KVRow }, leastShare, 1},
	{"e_s", func(e *Efficiency) *float64 { return &e.Sample }, leastShare, 1},
	{"r0_s", func(e *Efficiency) *float64 { return &e.Row }, 1e-10, 1},
	{"t0_s", func(e *Efficiency) *float64 { return &e.Step }, 1e-9, 10},
}

// point is a measured step.
type point struct {
	batch  *engine.Batch
	logSec float64 // ln of the measured seconds
}

// fitting searches for the least mean square of ln(predicted/measured) by trying steps along single
// figures. It needs no slopes: a figure has none where Step takes the other branch of a maximum for
// all points.
type fitting struct {
	base   Profile
	points []point
	lo, hi vector
}

func newFitting(base Profile, points []point) *fitting {
	f := &fitting{base: base, points: points}
	for i, field := range fitFields {
		f.lo[i], f.hi[i] = math.Log(field.lo), math.Log(field.hi)
	}
	return f
}

// profile returns f.base with the figures of x. A figure at its bound has exactly the bound's
// value.
func (f *fitting) profile(x vector) Profile {
	p := f.base
	for i, field := range fitFields {
		*field.of(&p.Eff) = min(max(math.Exp(x[i]), field.lo), field.hi)
	}
	return p
}

func (f *fitting) clamp(x vector) vector {
	for i := range x {
		x[i] = min(max(x[i], f.lo[i]), f.hi[i])
	}
	return x
}

// residuals appends ln(predicted/measured) of all points to dst, where the predictions use the
// figures of x.
func (f *fitting) residuals(dst []float64, x vector) []float64 {
	p := f.profile(x)
	for _, at := range f.points {
		dst = append(dst, math.Log(p.seconds(at.batch, 0))-at.logSec)
	}
	return dst
}

func (f *fitting) loss(x vector) float64 {
	p, sum := f.profile(x), 0.0
	for _, at := range f.points {
		r := math.Log(p.seconds(at.batch, 0)) - at.logSec
		sum += r * r
	}
	return sum / float64(len(f.points))
}

// The search tries x[i] ± step: it multiplies or divides a figure by e^step. It halves the step
// when no figure gains by it.
const (
	coarseStep = 1.6 // a factor of 5
	finestStep = 1e-5
)

// solve returns the best result of three searches: from the figures of the base, and from figures
// that are all 4 times smaller or all 4 times larger. One search may end in a local minimum,
// because Step has branches.
func (f *fitting) solve() vector {
	var first vector
	for i, field := range fitFields {
		first[i] = math.Log(*field.of(&f.base.Eff))
	}
	best, least := vector{}, math.Inf(1)
	for _, off := range []float64{0, -math.Log(4), math.Log(4)} {
		x := first
		for i := range x {
			x[i] += off
		}
		x, loss := f.descend(f.clamp(x))
		if loss < least {
			best, least = x, loss
		}
	}
	return best
}

// descend is the pattern search of Hooke and Jeeves (1961, J. ACM 8, 212): after each gain it tries
// to go as far again in the same direction.
func (f *fitting) descend(x vector) (vector, float64) {
	loss := f.loss(x)
	for step := coarseStep; step >= finestStep; {
		y, l := f.explore(x, loss, step)
		if l >= loss {
			step /= 2
			continue
		}
		for l < loss {
			ahead := y
			for i := range ahead {
				ahead[i] += y[i] - x[i]
			}
			x, loss = y, l
			ahead = f.clamp(ahead)
			y, l = f.explore(ahead, f.loss(ahead), step)
		}
	}
	return x, loss
}

// explore moves each figure of x by the step, if the loss falls by that. It returns the best vector
// found and its loss.
func (f *fitting) explore(x vector, loss, step float64) (vector, float64) {
	for i := range x {
		for _, by := range [...]float64{step, -step} {
			y := x
			y[i] += by
			if y = f.clamp(y); y == x {
				continue
			}
			if l := f.loss(y); l < loss {
				x, loss = y, l
				break
			}
		}
	}
	return x, loss
}

// atBound returns the names of the figures of x that are at a bound and whose loss would be
// smaller beyond it: 1 % inside the bound it is larger.
func (f *fitting) atBound(x vector) []string {
	names := []string{}
	for i, field := range fitFields {
		if x[i] > f.lo[i] && x[i] < f.hi[i] {
			continue
		}
		inside := x
		inside[i] += math.Copysign(0.01, f.lo[i]+f.hi[i]-2*x[i])
		if f.loss(inside) > f.loss(x) {
			names = append(names, field.name)
		}
	}
	return names
}

// undetermined returns the names of the figures of x that can be a fifth larger, or a fifth
// smaller, without changing the prediction of any point by a thousandth.
func (f *fitting) undetermined(x vector) []string {
	names := []string{}
	at := f.residuals(nil, x)
	for i, field := range fitFields {
		least := math.Inf(1)
		for _, by := range [...]float64{0.2, -0.2} {
			y := x
			if y[i] += by; f.clamp(y) != y {
				continue // outside the bounds
			}
			most := 0.0
			for k, r := range f.residuals(nil, y) {
				most = max(most, math.Abs(r-at[k]))
			}
			least = min(least, most)
		}
		if least < 1e-3 {
			names = append(names, field.name)
		}
	}
	return names
}
