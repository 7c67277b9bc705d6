package missratio

import "math/bits"

// subBits sets the width of the buckets: each value below 1<<subBits has a bucket of its
// own, and each doubling above has 1<<subBits buckets. So a bucket's width is at most 1/128,
// 0.8 %, of its lowest value.
const subBits = 7

// gains holds the curve itself: hit tokens as a function of the capacity.
//
// In a run of n tokens the first needs a capacity of m+1, the second m+2 and so on. The run
// gives min(max(capacity-m, 0), n) hits: as a function of the capacity, a line whose slope
// turns from 0 to 1 at m and back to 0 at m+n. Example: with m 1,000 and n 200 there are 0
// hits at 1,000, 50 at 1,050, and 200 at 1,200 and above. So a run of any length is two
// turns. At a bucket's lowest value the sum of all runs is exact: that value times the sum
// of the turns before it, minus the sum of their places. Within a bucket the curve is
// interpolated linearly.
//
// The counts are float64, which holds whole numbers exactly up to 2^53.
type gains struct {
	turns  []float64 // by bucket: sum of the weights of the turns in it, negative for turns down
	places []float64 // by bucket: sum of weight times place of the turns in it
	limit  int       // largest capacity; larger places count as limit
}

func newGains(limit int) gains {
	n := bucketOf(limit) + 1
	return gains{make([]float64, n), make([]float64, n), limit}
}

// add counts a run of n tokens that is m tokens deep: m other tokens are more recent. Each
// token counts weight times.
func (g *gains) add(m, n int, weight float64) {
	g.turn(min(m, g.limit), weight)
	g.turn(min(m+n, g.limit), -weight)
}

// turn adds weight to the slope of the curve for all capacities above at.
func (g *gains) turn(at int, weight float64) {
	b := bucketOf(at)
	g.turns[b] += weight
	g.places[b] += weight * float64(at)
}

// hits returns the number of tokens that a cache with a capacity in tokens would have hit.
// Cost: O(buckets).
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
