package router

import "math"

// lowest are the candidates of the lowest cost, in the order of workers; under
// Cost2026 those with the smallest tree of them; and whether there were several.
func (s *scorer) lowest() (ties []int32, tied bool) {
	best := math.Inf(1)
	ties = s.ties[:0]
	for _, slot := range s.candidates {
		cost := s.costs[slot]
		if cost > best {
			continue
		}
		if cost < best {
			best, ties = cost, ties[:0]
		}
		ties = append(ties, slot)
	}
	tied = len(ties) > 1
	if s.cfg.Policy == Cost2026 && tied {
		small := math.MaxInt
		for _, slot := range ties {
			small = min(small, s.fleet.workers[slot].tree)
		}
		n := 0
		for _, slot := range ties {
			if s.fleet.workers[slot].tree == small {
				ties[n] = slot
				n++
			}
		}
		ties = ties[:n]
	}
	s.ties = ties
	return ties, tied
}

// sample draws a candidate by the weights of softmax, with a number of [0, 1).
func (s *scorer) sample(unit float64) int32 {
	at := s.weigh() * unit
	for i, slot := range s.candidates {
		if at -= s.chances[i]; at < 0 {
			return slot
		}
	}
	// Rounding left a rest: the last one that has any chance.
	for i := len(s.candidates) - 1; i > 0; i-- {
		if s.chances[i] > 0 {
			return s.candidates[i]
		}
	}
	return s.candidates[0]
}

// weigh sets chances, one for each candidate, to what their chances are
// proportional to, and returns the sum, at least 1. Equal costs have equal ones.
func (s *scorer) weigh() (sum float64) {
	s.chances = s.chances[:0]
	least, most := math.Inf(1), math.Inf(-1)
	for _, slot := range s.candidates {
		least, most = min(least, s.costs[slot]), max(most, s.costs[slot])
	}
	unit := s.weights.Temperature
	if s.weights.Spread == SpreadRelative && most > least {
		unit *= most - least
	}
	for _, slot := range s.candidates {
		weight := 1.0
		if above := s.costs[slot] - least; above > 0 {
			weight = math.Exp(-above / unit)
		}
		s.chances = append(s.chances, weight)
		sum += weight
	}
	return sum
}
