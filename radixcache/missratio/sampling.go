package missratio

import (
	"math"
	"math/bits"
)

// octaves is the number of octaves of depth. Block i, counted in blocks of blockTokens also
// in the head, is in octave floor(log2(i+1)): block 0 is in octave 0, blocks 1 and 2 are in
// octave 1, blocks 3 to 6 in octave 2, and so on.
const octaves = 40

// depthPower states how the rate falls with depth: by a factor of 2^-depthPower for each
// octave. So block 1,023, in octave 10, is sampled at 2^-7.5, 1/181, of the rate of block 0.
// Shallow blocks are few and looked up often, so they get a larger share of the samples. Of
// the values 0, 0.25, 0.5, 0.75 and 1, tried with few seeds, those below 0.75 were worse
// with 1,024 samples, and 1 was worse at short distances on a public trace.
const depthPower = 0.75

// everything is a rate at which no octave is thinned.
const everything = 1 << octaves

// rate decides which blocks are sampled: in octave k those whose hash, as a fraction of
// 2^64, is below base * 2^-(k*depthPower).
type rate struct {
	base  float64
	share [octaves]float64 // fraction of blocks sampled, at most 1, by octave
	limit [octaves]uint64  // largest hash sampled, by octave
}

// thinning returns the rate of an octave divided by that of octave 0.
func thinning(octave int) float64 { return math.Exp2(-depthPower * float64(octave)) }

// set sets base and computes share and limit from it.
func (r *rate) set(base float64) {
	r.base = base
	for k := range r.share {
		share := min(1, base*thinning(k))
		r.share[k], r.limit[k] = share, math.MaxUint64
		if share < 1 {
			r.limit[k] = uint64(share * (1 << 63) * 2)
		}
	}
}

// seen returns the probability that at least one of the blocks [lo, hi) is sampled. split is
// the number of head blocks in blockTokens tokens: each block in the head counts split times.
// If n blocks are sampled on average, the probability is 1 - e^-n.
func (r *rate) seen(lo, hi, split int) float64 {
	expected := 0.0
	for lo < hi {
		k := bits.Len(uint(lo+1)) - 1
		stop := min(hi, 2<<k-1)
		if r.share[k] >= 1 {
			return 1
		}
		if k >= headOctaves {
			split = 1
		}
		expected += float64(stop-lo) * float64(split) * r.share[k]
		lo = stop
	}
	return -math.Expm1(-expected)
}
