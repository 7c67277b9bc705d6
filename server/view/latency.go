package view

import (
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// latency is a sliding histogram over the window, in microseconds. A value is off by
// at most 1/16, or 1 µs.
type latency struct {
	at    int64 // number of the current slot
	slots *hdrhistogram.WindowedHistogram
}

const (
	windowSlots = 20
	maxMicros   = 1<<30 - 1 // 1,073 s; longer durations count as this
)

func newLatency() latency {
	return latency{slots: hdrhistogram.NewWindowed(windowSlots, 1, maxMicros, 1)}
}

// turn makes the slot of the time now the current one, and clears the slots that are now older
// than the window. If the clock goes back, the current slot stays.
func (l *latency) turn(now time.Time) {
	at := max(l.at, now.UnixNano()/int64(window/windowSlots))
	for range min(at-l.at, windowSlots) {
		l.slots.Rotate()
	}
	l.at = at
}

// add counts n observations of d in the current slot.
func (l *latency) add(now time.Time, d time.Duration, n int) {
	l.turn(now)
	l.slots.Current.RecordValues(min(d.Microseconds(), maxMicros), int64(n))
}

// quantiles returns two quantiles of the window that ends now, in milliseconds; NaN if it is empty.
func (l *latency) quantiles(now time.Time) (p50, p99 Figure) {
	l.turn(now)
	sum := l.slots.Merge()
	if sum.TotalCount() == 0 {
		return Figure(math.NaN()), Figure(math.NaN())
	}
	return rounded(float64(sum.ValueAtPercentile(50)) / 1e3), rounded(float64(sum.ValueAtPercentile(99)) / 1e3)
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
