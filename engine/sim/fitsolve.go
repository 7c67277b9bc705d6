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

// fitting searches for the least mean square of ln(predicted/measured). Newton's method is fast
// where the error is smooth. But a figure that no point depends on, because Step takes the other
// branch of a maximum for all points, has no slope. So a search along one figure at a time, coarse
// and then fine, runs before it.
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

// The search tries x[i] ± step: it multiplies or divides a figure by e^step. It halves the step
// when no figure gains by it.
const (
	coarseStep = 1.6 // a factor of 5
	finestStep = 0.01
	maxSweeps  = 60
	maxRounds  = 12
	// enough is the gain in the mean square below which the search ends.
	enough = 1e-9
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

func (f *fitting) descend(x vector) (vector, float64) {
	loss := f.loss(x)
	step := coarseStep
	for range maxRounds {
		before := loss
		x, loss = f.sweep(x, loss, step)
		x, loss = f.newton(x, loss)
		if before-loss < enough {
			break
		}
		step = coarseStep / 4
	}
	return x, loss
}

// sweep searches from x, whose loss is given, along one figure at a time, with the given step and
// then smaller steps. It returns the best vector found and its loss.
func (f *fitting) sweep(x vector, loss, step float64) (vector, float64) {
	for range maxSweeps {
		moved := false
		for i := range x {
			for _, by := range [...]float64{step, -step} {
				y := x
				y[i] += by
				if y = f.clamp(y); y == x {
					continue
				}
				if l := f.loss(y); l < loss {
					x, loss, moved = y, l, true
					break
				}
			}
		}
		if !moved {
			if step /= 2; step < finestStep {
				break
			}
		}
	}
	return x, loss
}

// newton searches from x, whose loss is given, by the method of Levenberg and Marquardt with the
// damping scaled by the diagonal (Marquardt 1963, SIAM J. Appl. Math. 11, 431). It returns the
// best vector found and its loss. A figure at a bound stays there if the error would fall only
// beyond the bound.
func (f *fitting) newton(x vector, loss float64) (vector, float64) {
	const slope = 1e-5 // over which derivatives are taken
	var at, moved []float64
	damping := 1e-3
	for range maxSweeps {
		at = f.residuals(at[:0], x)
		jacobian := make([]vector, len(at))
		for i := range x {
			y := x
			y[i] += slope
			h := slope
			if y[i] > f.hi[i] {
				h, y[i] = -slope, x[i]-slope
			}
			moved = f.residuals(moved[:0], y)
			for k := range at {
				jacobian[k][i] = (moved[k] - at[k]) / h
			}
		}
		before := loss
		for damping < 1e6 {
			y := f.clamp(f.stepFrom(x, at, jacobian, damping))
			if l := f.loss(y); l < loss {
				x, loss = y, l
				damping = max(damping/5, 1e-9)
				break
			}
			damping *= 4
		}
		if before-loss < enough/10 {
			break
		}
	}
	return x, loss
}

// stepFrom solves (J'J + damping·diag(J'J))·d = -J'r and returns x+d. r holds the residuals at x,
// and row k of jacobian the derivatives of r[k]. A figure at a bound keeps its value if the error
// would fall only beyond the bound.
func (f *fitting) stepFrom(x vector, r []float64, jacobian []vector, damping float64) vector {
	var normal [fitted]vector
	var right vector
	for k, row := range jacobian {
		for i := range row {
			right[i] -= row[i] * r[k]
			for j := range row {
				normal[i][j] += row[i] * row[j]
			}
		}
	}
	for i := range x {
		if x[i] >= f.hi[i] && right[i] > 0 || x[i] <= f.lo[i] && right[i] < 0 {
			for j := range x {
				normal[i][j], normal[j][i] = 0, 0
			}
			right[i] = 0
		}
		normal[i][i] += damping*normal[i][i] + 1e-12
	}
	d := solveLinear(normal, right)
	for i := range x {
		x[i] += d[i]
	}
	return x
}

// solveLinear solves a·x = b by elimination. A positive definite matrix needs no pivots.
func solveLinear(a [fitted]vector, b vector) vector {
	for i := range a {
		for k := i + 1; k < fitted; k++ {
			q := a[k][i] / a[i][i]
			for j := i; j < fitted; j++ {
				a[k][j] -= q * a[i][j]
			}
			b[k] -= q * b[i]
		}
	}
	for i := fitted - 1; i >= 0; i-- {
		for j := i + 1; j < fitted; j++ {
			b[i] -= a[i][j] * b[j]
		}
		b[i] /= a[i][i]
	}
	return b
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

func (f *fitting) loss(x vector) float64 {
	p, sum := f.profile(x), 0.0
	for _, at := range f.points {
		r := math.Log(p.seconds(at.batch, 0)) - at.logSec
		sum += r * r
	}
	return sum / float64(len(f.points))
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

// profile returns f.base with the figures of x. A figure at its bound has exactly the bound's
// value.
func (f *fitting) profile(x vector) Profile {
	p := f.base
	for i, field := range fitFields {
		*field.of(&p.Eff) = min(max(math.Exp(x[i]), field.lo), field.hi)
	}
	return p
}
