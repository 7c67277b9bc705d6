package router

import (
	"math"
	"math/bits"
	"slices"

	"github.com/coppice-llm/coppice/internal/splitmix"
)

// lowest returns the candidates with the lowest cost, ordered by worker, and whether several
// candidates have that cost. Under Cost2026 it drops those of them whose tree in the index is
// not the smallest, so ties may be a single one although tied is true.
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
		ties = slices.DeleteFunc(ties, func(slot int32) bool { return s.fleet.workers[slot].tree != small })
	}
	s.ties = ties
	return ties, tied
}

// sample returns a candidate's slot, drawn with the probabilities of weigh. unit is a random
// number in [0, 1).
func (s *scorer) sample(unit float64) int32 {
	at := s.weigh() * unit
	for i, slot := range s.candidates {
		if at -= s.chances[i]; at < 0 {
			return slot
		}
	}
	// Rounding left a remainder: take the last candidate with any chance.
	for i := len(s.candidates) - 1; i > 0; i-- {
		if s.chances[i] > 0 {
			return s.candidates[i]
		}
	}
	return s.candidates[0]
}

// weigh sets chances[i] to the softmax weight of candidates[i], and returns the sum of the
// weights. The best candidate has weight 1, so the sum is at least 1 and no exponential
// overflows. The temperature must be above 0.
//
// Example with relative spread and temperature 0.5: costs 10, 15 and 20 have range 10, so the
// weights are 1, exp(−5/5) = 0.37 and exp(−10/5) = 0.14; the best one is chosen with probability
// 0.67.
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

// draw is SplitMix64 (Steele, Lea and Flood 2014), the only source of randomness in a
// router, so that equal calls give equal choices.
type draw struct{ state uint64 }

// next returns 64 random bits.
func (d *draw) next() uint64 {
	d.state += splitmix.Golden
	return splitmix.Mix(d.state)
}

// unit returns a number in [0, 1).
func (d *draw) unit() float64 { return float64(d.next()>>11) / (1 << 53) }

// below returns a random number in [0, n); n is at least 1. Multiplying instead of dividing
// makes some numbers more likely than others, by at most n/2^64.
func (d *draw) below(n int) int {
	hi, _ := bits.Mul64(d.next(), uint64(n))
	return int(hi)
}

// mix hashes two numbers into one.
func mix(a, b uint64) uint64 { return splitmix.Mix(a ^ splitmix.Mix(b+splitmix.Golden)) }
