package missratio

import "math/bits"

// subBits sets how fine the buckets are: values below 1<<subBits have a bucket each, and
// each doubling above has 1<<subBits, so a bucket is at most 1/128, 0.8 %, wide.
const subBits = 7

// gains holds the curve itself: hit tokens as a function of the capacity.
//
// A run of n tokens of which the first needs a capacity of m+1, the next m+2 and so on
// gives clamp(capacity-m, 0, n) hits: a line that turns up at m and flat again at m+n.
// Example: m 1,000 and n 200 give 0 hits at 1,000, 50 at 1,050, and 200 from 1,200 on.
// So a run is two turns, whatever its length, and the sum of all runs at a bucket's edge
// is exact: edge * (number of turns before) - (sum of their places). Between edges the
// curve is interpolated linearly.
//
// float64, because it halves exactly (decay) and holds whole numbers exactly up to 2^53.
type gains struct {
	turns  []float64 // by bucket: turns up minus turns down
	places []float64 // by bucket: the sum of their places, with the same weights
	limit  int       // places from here on count as this one; no capacity is larger
}

func newGains(limit int) gains {
	n := bucketOf(limit) + 1
	return gains{make([]float64, n), make([]float64, n), limit}
}

// add counts a run of n tokens; m tokens are more recent than the run.
func (g *gains) add(m, n int, weight float64) {
	g.turn(min(m, g.limit), weight)
	g.turn(min(m+n, g.limit), -weight)
}

// turn adds weight to the slope of the curve from at on.
func (g *gains) turn(at int, weight float64) {
	b := bucketOf(at)
	g.turns[b] += weight
	g.places[b] += weight * float64(at)
}

// hits returns the number of tokens that a cache of a capacity would have hit. Cost:
// O(buckets).
func (g *gains) hits(capacity int) float64 {
	capacity = min(capacity, g.limit)
	if capacity <= 0 {
		return 0
	}
	last := bucketOf(capacity)
	turns, places := 0.0, 0.0
	for b := range last {
		turns += g.turns[b]
		places += g.places[b]
	}
	low := edge(last)
	atLow := float64(low)*turns - places
	if low == capacity {
		return atLow
	}
	high := min(edge(last+1), g.limit)
	atHigh := float64(high)*(turns+g.turns[last]) - (places + g.places[last])
	return atLow + (atHigh-atLow)*float64(capacity-low)/float64(high-low)
}

// halve halves all counts.
func (g *gains) halve() {
	for b := range g.turns {
		g.turns[b] /= 2
		g.places[b] /= 2
	}
}

func (g *gains) reset() {
	clear(g.turns)
	clear(g.places)
}

// bucketOf returns the bucket of a value.
func bucketOf(value int) int {
	shift := max(0, bits.Len(uint(value))-1-subBits)
	return shift<<subBits + value>>shift
}

// edge returns the lowest value of a bucket.
func edge(bucket int) int {
	if bucket < 2<<subBits {
		return bucket
	}
	shift := bucket>>subBits - 1
	return (bucket - shift<<subBits) << shift
}
