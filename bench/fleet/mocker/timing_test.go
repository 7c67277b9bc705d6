package mocker

import (
	"math"
	"testing"
	"time"
)

func TestPolynomialValues(t *testing.T) {
	p := DefaultPolynomial()
	for _, c := range []struct {
		coefficients [3]float64
		x, want      float64 // ms
	}{
		{p.Prefill, 0, 16.5014}, {p.Prefill, 64, 17.4749}, {p.Prefill, 1000, 32.1059}, {p.Prefill, 8192, 169.1369}, {p.Prefill, 16384, 378.2779},
		{p.Decode, 0, 5.74}, {p.Decode, 0.25, 17.6337}, {p.Decode, 0.5, 26.31}, {p.Decode, 1, 34.01}, {p.Decode, 1.5, 28.84}, {p.Decode, 2, 10.8},
	} {
		if got := square(c.coefficients, c.x); math.Abs(got-c.want) > 1e-4 {
			t.Errorf("%v at %v: %v ms, want %v", c.coefficients, c.x, got, c.want)
		}
	}
}

func TestTimings(t *testing.T) {
	ms := func(v float64) time.Duration { return time.Duration(math.Round(v * 1e6)) }
	cheap := DefaultPolynomial()
	cheap.Decode = [3]float64{-5, 0, 0}
	for _, c := range []struct {
		name   string
		timing Polynomial
		load   load
		want   time.Duration
	}{
		{"nothing", DefaultPolynomial(), load{ActiveTokens: 100, TotalTokens: 100}, 0},
		{"one prompt", DefaultPolynomial(), load{Prompts: 1, PromptTokens: 1000}, ms(32.105749)},
		{"decoding alone", DefaultPolynomial(), load{Rows: 3, ActiveTokens: 50, TotalTokens: 100}, ms(26.31)},
		{"both", DefaultPolynomial(), load{Prompts: 2, PromptTokens: 1000, Rows: 1, ActiveTokens: 1, TotalTokens: 1}, ms(32.105749 + 34.01)},
		{"more than full", DefaultPolynomial(), load{Rows: 1, ActiveTokens: 300, TotalTokens: 100}, ms(34.01)},
		{"floor", cheap, load{Rows: 1, TotalTokens: 1}, ms(1)},
	} {
		if got := c.timing.pass(c.load); got < c.want-time.Microsecond || got > c.want+time.Microsecond {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestPassTimes: the prompt of a single request in chunks, then decoding rows: each pass
// takes the time of its load.
func TestPassTimes(t *testing.T) {
	timing := DefaultPolynomial()
	w := newWorker(t, Config{Blocks: 100, BlockTokens: 10, MaxSeqs: 4, MaxBatchedTokens: 60})
	submit(t, w, 5*time.Second, request(1, tokensFrom(1, 100), 3, 10))
	now := 5 * time.Second
	for i, of := range []load{
		{Prompts: 1, PromptTokens: 60},
		{Prompts: 1, PromptTokens: 40},
		{Rows: 1, ActiveTokens: 110, TotalTokens: 1000},
		{Rows: 1, ActiveTokens: 110, TotalTokens: 1000},
	} {
		if at, ok := w.Wake(); !ok || at != now {
			t.Fatalf("pass %d wakes at %v, want %v", i, at, now)
		}
		step(t, w)
		now += timing.pass(of)
	}
	if rep := step(t, w); len(rep.Ended) != 1 || w.now != now {
		t.Fatalf("at %v, want %v: %+v", w.now, now, rep)
	}
}
