package fleet

import (
	"math"
	"testing"
	"time"
)

func TestPolynomialValues(t *testing.T) {
	p := dynamoTiming()
	for _, c := range []struct {
		coefficients [3]float64
		x, want      float64 // ms
	}{
		{p.prefill, 0, 16.5014}, {p.prefill, 64, 17.4749}, {p.prefill, 1000, 32.1059}, {p.prefill, 8192, 169.1369}, {p.prefill, 16384, 378.2779},
		{p.decode, 0, 5.74}, {p.decode, 0.25, 17.6337}, {p.decode, 0.5, 26.31}, {p.decode, 1, 34.01}, {p.decode, 1.5, 28.84}, {p.decode, 2, 10.8},
	} {
		if got := square(c.coefficients, c.x); math.Abs(got-c.want) > 1e-4 {
			t.Errorf("%v at %v: %v ms, want %v", c.coefficients, c.x, got, c.want)
		}
	}
}

func TestTimings(t *testing.T) {
	ms := func(v float64) time.Duration { return time.Duration(math.Round(v * 1e6)) }
	cheap := dynamoTiming()
	cheap.decode = [3]float64{-5, 0, 0}
	for _, c := range []struct {
		name   string
		timing polynomial
		load   mockLoad
		want   time.Duration
	}{
		{"nothing", dynamoTiming(), mockLoad{used: 1}, 0},
		{"one prompt", dynamoTiming(), mockLoad{prompts: 1, promptTokens: 1000}, ms(32.105749)},
		{"decoding alone", dynamoTiming(), mockLoad{rows: 3, used: 0.5}, ms(26.31)},
		{"both", dynamoTiming(), mockLoad{prompts: 2, promptTokens: 1000, rows: 1, used: 1}, ms(32.105749 + 34.01)},
		{"more than full", dynamoTiming(), mockLoad{rows: 1, used: 3}, ms(34.01)},
		{"floor", cheap, mockLoad{rows: 1}, ms(1)},
	} {
		if got := c.timing.pass(c.load); got < c.want-time.Microsecond || got > c.want+time.Microsecond {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestPassTimes: the prompt of a single request in chunks, then decoding rows: each pass
// takes the time of its load.
func TestPassTimes(t *testing.T) {
	timing := dynamoTiming()
	w := mockOf(mockSizes{Blocks: 100, BlockTokens: 10, MaxSeqs: 4, BatchTokens: 60})
	submit(t, w, 5*time.Second, request(1, tokensFrom(1, 100), 3, 10))
	now := 5 * time.Second
	for i, of := range []mockLoad{
		{prompts: 1, promptTokens: 60},
		{prompts: 1, promptTokens: 40},
		{rows: 1, used: 0.11},
		{rows: 1, used: 0.11},
	} {
		if at, ok := w.Wake(); !ok || at != now {
			t.Fatalf("pass %d wakes at %v, want %v", i, at, now)
		}
		step(t, w)
		now += timing.pass(of)
	}
	if rep := step(t, w); len(rep.Ended) != 1 || w.until != now {
		t.Fatalf("at %v, want %v: %+v", w.until, now, rep)
	}
}
