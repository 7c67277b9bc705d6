package view

import (
	"math"
	"reflect"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/coppice-llm/coppice/scheduler"
)

// rateWindow is the time over which token rates are averaged: short enough to show the beginning
// of a load, long enough that single prompts are not spikes.
const rateWindow = 2 * time.Second

// rates turns running totals into points of the history.
type rates struct {
	period time.Duration // between two points
	past   []counted     // within the window, oldest first
}

// counted holds running totals at one moment.
type counted struct {
	at                              time.Time
	prompt, cached, prefill, output uint64
}

// next returns the point of the history at the time now, from the running totals in m. After a gap
// of more than four periods between two calls it drops the older totals: nothing was sampled in
// the gap, and an average over it would mislead.
func (r *rates) next(now time.Time, m *scheduler.Metrics) Point {
	nan := Figure(math.NaN())
	p := Point{
		AtMillis: now.UnixMilli(), HitRate: nan, PromptRate: nan, CachedRate: nan, PrefillRate: nan, OutputRate: nan,
		TTFTp50Millis: nan, TTFTp99Millis: nan, ITLp50Millis: nan, ITLp99Millis: nan,
		Running: m.Running, Waiting: m.Waiting, UsedPages: m.HeldPages + m.CachedPages,
	}
	if n := len(r.past); n > 0 && now.Sub(r.past[n-1].at) > 4*r.period {
		r.past = r.past[:0]
	}
	c := counted{now, m.PromptTokens, m.CachedTokens, m.PrefillTokens, m.OutputTokens}
	for len(r.past) > 0 && now.Sub(r.past[0].at) > window {
		r.past = append(r.past[:0], r.past[1:]...)
	}
	if len(r.past) > 0 {
		if old := r.past[0]; c.prompt > old.prompt {
			p.HitRate = rounded(float64(c.cached-old.cached) / float64(c.prompt-old.prompt))
		}
		from := len(r.past) - 1
		for from > 0 && now.Sub(r.past[from-1].at) <= rateWindow {
			from--
		}
		if old := r.past[from]; now.After(old.at) {
			s := now.Sub(old.at).Seconds()
			p.PromptRate = rounded(float64(c.prompt-old.prompt) / s)
			p.CachedRate = rounded(float64(c.cached-old.cached) / s)
			p.PrefillRate = rounded(float64(c.prefill-old.prefill) / s)
			p.OutputRate = rounded(float64(c.output-old.output) / s)
		}
	}
	r.past = append(r.past, c)
	return p
}

// history keeps the last points, in one column per field.
type history struct {
	limit int
	h     History
}

// add appends each field of p to the column of the same name.
func (h *history) add(p Point) {
	point, columns := reflect.ValueOf(p), reflect.ValueOf(&h.h).Elem()
	for i := range point.NumField() {
		c := columns.FieldByName(point.Type().Field(i).Name)
		c.Set(reflect.Append(c, point.Field(i)))
		c.Set(c.Slice(max(c.Len()-h.limit, 0), c.Len()))
	}
}

// push appends v to the list. If the list would then have more than limit elements, push drops the
// first element.
func push[T any](list *[]T, v T, limit int) {
	if len(*list) >= limit {
		copy(*list, (*list)[1:])
		*list = (*list)[:limit-1]
	}
	*list = append(*list, v)
}

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
