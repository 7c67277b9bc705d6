package view

import (
	"math"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/scheduler"
)

// Below 16 µs the buckets are 1 µs wide.
func TestSpreadError(t *testing.T) {
	last := -1
	for d := 16 * time.Microsecond; d < 1000*time.Second; d += d/37 + time.Microsecond {
		b := spreadBucket(d)
		if b < last || b >= spreadBuckets {
			t.Fatalf("%v is in bucket %d, after %d", d, b, last)
		}
		last = b
		if off := math.Abs(float64(spreadMiddle(b)-d)) / float64(d); off > 1.0/16 {
			t.Fatalf("%v counts as %v", d, spreadMiddle(b))
		}
	}
	for _, d := range []time.Duration{-1, 0, 1 << 62} {
		if b := spreadBucket(d); b < 0 || b >= spreadBuckets {
			t.Errorf("%v is in bucket %d", d, b)
		}
	}
}

func TestLatencyWindow(t *testing.T) {
	l := latency{slot: time.Second}
	now := time.Unix(1_000_000, 0)
	for i := range 100 {
		l.add(now, time.Duration(i+1)*time.Millisecond, 1)
	}
	if p50, p99 := l.sum.quantile(0.5), l.sum.quantile(0.99); math.Abs(float64(p50)-50) > 4 || math.Abs(float64(p99)-99) > 7 {
		t.Errorf("p50 %v, p99 %v", p50, p99)
	}
	l.add(now.Add(15*time.Second), time.Second, 3)
	if p50 := l.sum.quantile(0.5); p50 > 60 {
		t.Errorf("after 15 s p50 is %v", p50)
	}
	l.turn(now.Add(21 * time.Second))
	if p50 := l.sum.quantile(0.5); math.Abs(float64(p50)-1000) > 63 {
		t.Errorf("after 21 s p50 is %v, want that of the last three", p50)
	}
	l.turn(now.Add(time.Hour))
	if l.sum.quantile(0.5).Known() || l.sum != (spread{}) {
		t.Error("after an hour something is left")
	}
	l.add(now, time.Second, 1) // the clock went back
	if !l.sum.quantile(0.5).Known() {
		t.Error("nothing is counted")
	}
}

func TestObserveAllocatesNothing(t *testing.T) {
	f, err := NewFeed(Config{Source: &fake{}})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n := testing.AllocsPerRun(1000, func() { f.Observe(Observation{TTFT: time.Second, ITL: time.Millisecond, Gaps: 4}) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestRates(t *testing.T) {
	r := rates{window: 10 * time.Second, period: time.Second}
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
