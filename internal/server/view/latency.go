package view

import (
	"math"
	"math/bits"
	"time"
)

// spread is a histogram of durations with eight buckets per octave, so a quantile is off by at
// most 1/16 of its value or 1 µs. The highest bucket ends at 1,073 s (2^30 µs); longer durations
// count there.
type spread [spreadBuckets]uint32

const spreadBuckets = 27*8 + 8

// spreadBucket returns the bucket of a duration: below 8 µs one per microsecond, then 8 per
// octave. Example: 20 µs is in octave 1 (16 to 31 µs), in steps of 2 µs: bucket 1*8 + 20>>1 =
// 18.
func spreadBucket(d time.Duration) int {
	us := min(uint64(max(d, 0)/time.Microsecond), 1<<30-1)
	if us < 8 {
		return int(us)
	}
	octave := bits.Len64(us) - 4
	return octave*8 + int(us>>octave)
}

// spreadMiddle returns the middle of a bucket.
func spreadMiddle(bucket int) time.Duration {
	if bucket < 8 {
		return time.Duration(bucket) * time.Microsecond
	}
	octave := bucket/8 - 1
	low := uint64(bucket-octave*8) << octave
	return time.Duration(low)*time.Microsecond + time.Duration(uint64(1)<<octave)*time.Microsecond/2
}

// quantile returns quantile q in milliseconds, NaN if the histogram is empty.
func (s *spread) quantile(q float64) Figure {
	total := uint64(0)
	for _, n := range s {
		total += uint64(n)
	}
	if total == 0 {
		return Figure(math.NaN())
	}
	left := int64(math.Ceil(q * float64(total)))
	for b, n := range s {
		if left -= int64(n); left <= 0 {
			return rounded(float64(spreadMiddle(b)) / float64(time.Millisecond))
		}
	}
	return Figure(math.NaN())
}

// latency is a sliding histogram over the last windowSlots slots.
type latency struct {
	slot  time.Duration // duration of a slot
	at    int64         // number of the current slot
	slots [windowSlots]spread
	sum   spread
}

const windowSlots = 20

// turn makes the slot of the time now the current one, and clears the slots that are now older
// than the window.
func (l *latency) turn(now time.Time) {
	at := now.UnixNano() / int64(l.slot)
	if at <= l.at {
		return // if the clock goes back, count in the current slot
	}
	for range min(at-l.at, windowSlots) {
		l.at++
		old := &l.slots[l.at%windowSlots]
		for b, n := range old {
			l.sum[b] -= n
		}
		*old = spread{}
	}
	if l.at != at { // the window is empty: jump to the new slot
		l.at = at
	}
}

// add counts n observations of d in the current slot.
func (l *latency) add(now time.Time, d time.Duration, n uint32) {
	l.turn(now)
	b := spreadBucket(d)
	l.slots[l.at%windowSlots][b] += n
	l.sum[b] += n
}

// rounded rounds v to four significant digits or to four decimals, whichever leaves fewer digits.
// That is precise enough for readers, and frames stay small.
func rounded(v float64) Figure {
	switch a := math.Abs(v); {
	case a >= 1000:
		return Figure(math.Round(v))
	case a >= 10:
		return Figure(math.Round(v*100) / 100)
	default:
		return Figure(math.Round(v*10000) / 10000)
	}
}
