package missratio

import (
	"math"
	"math/bits"
)

// octaves of depth: block i is in octave floor(log2(i+1)), where i counts blocks
// of BlockTokens, in the head too.
const octaves = 40

// depthPower says how the rate falls with depth: by 2^-depthPower for each octave.
// Shallow blocks are few and asked for often, so they deserve more of the
// samples. Of 0, 0.25, 0.5, 0.75 and 1, tried on few seeds: flatter is worse for
// 1,024 samples, and 1 is worse at short distances on a public trace.
const depthPower = 0.75

// everything is a rate at which no octave is thinned.
const everything = 1 << octaves

// rate decides which blocks are sampled: in octave k those whose hash, as a
// fraction of 2^64, is below base * 2^-(k*depthPower).
type rate struct {
	base  float64
	share [octaves]float64 // by octave: the fraction of blocks sampled, at most 1
	limit [octaves]uint64  // the same as the largest hash sampled
}

// thinning is what the rate of an octave is of that of the first block.
func thinning(octave int) float64 { return math.Exp2(-depthPower * float64(octave)) }

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

// seen is the chance that at least one of the blocks [lo, hi) is sampled, each
// of which is split in the head.
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
