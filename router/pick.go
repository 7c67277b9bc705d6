package router

import "math"

// lowest are the candidates of the lowest cost, in the order of workers; under
// Cost2026 those with the smallest tree of them; and whether there were several.
func (r *Router) lowest(policy Policy) (ties []int32, tied bool) {
	x := &r.scratch
	best := math.Inf(1)
	ties = x.ties[:0]
	for _, slot := range x.candidates {
		cost := x.costs[slot]
		if cost > best {
			continue
		}
		if cost < best {
			best, ties = cost, ties[:0]
		}
		ties = append(ties, slot)
	}
	tied = len(ties) > 1
	if policy == Cost2026 && tied {
		small := math.MaxInt
		for _, slot := range ties {
			small = min(small, r.workers[slot].tree)
		}
		n := 0
		for _, slot := range ties {
			if r.workers[slot].tree == small {
				ties[n] = slot
				n++
			}
		}
		ties = ties[:n]
	}
	x.ties = ties
	return ties, tied
}

// sample draws a candidate by the weights of softmax.
func (r *Router) sample(w *Weights) int32 {
	x := &r.scratch
	sum := r.weigh(w)
	at := r.chance.unit() * sum
	for i, slot := range x.candidates {
		if at -= x.chances[i]; at < 0 {
			return slot
		}
	}
	// Rounding left a rest: the last one that has any chance.
	for i := len(x.candidates) - 1; i > 0; i-- {
		if x.chances[i] > 0 {
			return x.candidates[i]
		}
	}
	return x.candidates[0]
}

// weigh sets scratch.chances, one for each candidate, to what their chances are
// proportional to, and returns the sum, at least 1. Equal costs have equal ones.
func (r *Router) weigh(w *Weights) (sum float64) {
	x := &r.scratch
	x.chances = x.chances[:0]
	least, most := math.Inf(1), math.Inf(-1)
	for _, slot := range x.candidates {
		least, most = min(least, x.costs[slot]), max(most, x.costs[slot])
	}
	unit := w.Temperature
	if w.Spread == SpreadRelative && most > least {
		unit *= most - least
	}
	for _, slot := range x.candidates {
		weight := 1.0
		if above := x.costs[slot] - least; above > 0 {
			weight = math.Exp(-above / unit)
		}
		x.chances = append(x.chances, weight)
		sum += weight
	}
	return sum
}
