package view

import (
	"math"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/scheduler"
)

// TestLatencyError: a duration is off by at most 1/16 or 1 µs, and any duration is counted.
func TestLatencyError(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	for d := time.Microsecond; d < 1000*time.Second; d += d/7 + time.Microsecond {
		l := newLatency()
		l.add(now, d, 1)
		got, _ := l.quantiles(now)
		if off := math.Abs(float64(got)*1e6 - float64(d)); off > max(float64(d)/16, 1000) {
			t.Fatalf("%v counts as %v ms", d, got)
		}
	}
	l := newLatency()
	l.add(now, 1<<62, 1)
	if p50, _ := l.quantiles(now); p50 < 1e6 {
		t.Errorf("a long duration counts as %v", p50)
	}
}

func TestLatencyWindow(t *testing.T) {
	l := newLatency()
	now := time.Unix(1_000_000, 0)
	for i := range 100 {
		l.add(now, time.Duration(i+1)*time.Millisecond, 1)
	}
	if p50, p99 := l.quantiles(now); math.Abs(float64(p50)-50) > 4 || math.Abs(float64(p99)-99) > 7 {
		t.Errorf("p50 %v, p99 %v", p50, p99)
	}
	later := now.Add(window * 3 / 4)
	l.add(later, time.Second, 3)
	if p50, _ := l.quantiles(later); p50 > 60 {
		t.Errorf("after three quarters of the window p50 is %v", p50)
	}
	if p50, _ := l.quantiles(now.Add(window + time.Second)); math.Abs(float64(p50)-1000) > 63 {
		t.Errorf("after the window p50 is %v, want that of the last three", p50)
	}
	if p50, _ := l.quantiles(now.Add(time.Hour)); p50.Known() {
		t.Error("after an hour something is left")
	}
	l.add(now, time.Second, 1) // the clock went back
	if p50, _ := l.quantiles(now); !p50.Known() {
		t.Error("nothing is counted")
	}
}

func TestObserveAllocatesNothing(t *testing.T) {
	f := NewFeed(Config{Source: &fake{}})
	defer f.Close()
	if n := testing.AllocsPerRun(1000, func() { f.Observe(Observation{TTFT: time.Second, ITL: time.Millisecond, Gaps: 4}) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestRates(t *testing.T) {
	r := rates{period: time.Second}
	m := &scheduler.Metrics{}
	now := time.Unix(1000, 0)
	step := func(d time.Duration, prompt, cached, output uint64) Point {
		now = now.Add(d)
		m.PromptTokens += prompt
		m.CachedTokens += cached
		m.OutputTokens += output
		return r.next(now, m)
	}
	if p := step(0, 1000, 10, 5); p.HitRate.Known() || p.OutputRate.Known() {
		t.Errorf("the first point is %+v: there is nothing to measure by", p)
	}
	if p := step(time.Second, 100, 50, 20); p.HitRate != 0.5 || p.OutputRate != 20 || p.PromptRate != 100 || p.CachedRate != 50 {
		t.Errorf("%+v", p)
	}
	step(time.Second, 0, 0, 20)
	// Hit rate over ten seconds, output rate over two.
	if p := step(time.Second, 0, 0, 0); p.HitRate != 0.5 || p.OutputRate != 10 {
		t.Errorf("%+v", p)
	}
	for range 10 {
		step(time.Second, 0, 0, 0)
	}
	if p := step(time.Second, 0, 0, 0); p.HitRate.Known() || p.OutputRate != 0 {
		t.Errorf("without prompts in the window: %+v", p)
	}
	if p := step(6*time.Second, 600, 600, 600); p.HitRate.Known() || p.OutputRate.Known() {
		t.Errorf("after a gap: %+v", p)
	}
	if p := step(time.Second, 10, 0, 30); p.HitRate != 0 || p.OutputRate != 30 {
		t.Errorf("after the gap: %+v", p)
	}
}

func TestHistoryKeepsTheLast(t *testing.T) {
	h := history{limit: 3}
	for i := range 5 {
		h.add(Point{AtMillis: int64(i), Running: i})
	}
	if c := h.h; len(c.AtMillis) != 3 || c.AtMillis[0] != 2 || c.Running[2] != 4 || len(c.HitRate) != 3 {
		t.Errorf("%+v", c)
	}
}
