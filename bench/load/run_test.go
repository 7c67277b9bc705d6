package load

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const ms = time.Millisecond

func ids(in, out int) *Random {
	return &Random{Vocabulary: VocabularyOf(32000), InputTokens: in, OutputTokens: out, Seed: 1}
}

func TestFiguresAreExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Two requests one after another. The first has gaps of 20, 20 and 60 ms, the second
		// of 10 ms; the end comes 5 ms after the last text.
		f := &fake{answer: func(w *writer, n int, q query) {
			w.event(`{"choices":[{"index":0,"text":""}]}`) // no output
			time.Sleep(time.Duration(100+50*n) * ms)
			w.text("a")
			for _, gap := range [][]time.Duration{{20, 20, 60}, {10, 10}}[n] {
				time.Sleep(gap * ms)
				w.text("b")
			}
			time.Sleep(5 * ms)
			w.end(64, 7-n, `,"prompt_tokens_details":{"cached_tokens":16}`) // chunks of several tokens
		}}
		c := dialFake(t, f, ClientConfig{})
		slo := &Objectives{}
		if err := slo.UnmarshalText([]byte("ttft:120ms,itl:60ms")); err != nil {
			t.Fatal(err)
		}
		finished := 0
		r, err := Run(t.Context(), c, ids(64, 7), Config{Concurrency: 1, Requests: 2, Objectives: slo, Percentiles: []float64{50, 99.9}}, func() { finished++ })
		if err != nil || finished != 2 {
			t.Fatal(finished, err)
		}
		if r.Completed != 2 || r.Failed != 0 || r.InputTokens != 128 || r.OutputTokens != 13 || r.CachedTokens != 32 || r.CacheableTokens != 128 || r.Good != 1 || r.PeakConcurrency != 1 || len(r.Notes) != 0 {
			t.Errorf("%+v", r)
		}
		if took := 205*ms + 175*ms; r.Duration != took || r.OutputThroughput() != 13/took.Seconds() || r.TotalTokenThroughput() != 141/took.Seconds() || r.Goodput() != 1/took.Seconds() || r.RequestThroughput() != 2/took.Seconds() {
			t.Errorf("took %v", r.Duration)
		}
		if r.PeakOutput < 12.999 || r.PeakOutput > 13.001 {
			t.Errorf("best second: %v tokens", r.PeakOutput)
		}
		for name, tc := range map[string]struct {
			got  Distribution
			want []time.Duration
		}{
			"ttft": {r.TTFT, []time.Duration{100 * ms, 150 * ms}},
			"tpot": {r.TPOT, []time.Duration{105 * ms / 6, 25 * ms / 5}},
			"itl":  {r.ITL, []time.Duration{20 * ms, 20 * ms, 60 * ms, 10 * ms, 10 * ms}},
			"e2el": {r.E2EL, []time.Duration{205 * ms, 175 * ms}},
		} {
			checkDistribution(t, name, tc.got, tc.want)
		}
		if r.Lag.Count != 0 {
			t.Errorf("a closed loop is late: %+v", r.Lag)
		}
		checkRendering(t, r)
	})
}

func checkDistribution(t *testing.T, name string, d Distribution, want []time.Duration) {
	t.Helper()
	low, high, sum := want[0], want[0], time.Duration(0)
	for _, w := range want {
		low, high, sum = min(low, w), max(high, w), sum+w
	}
	if d.Count != len(want) || d.Mean != sum/time.Duration(len(want)) || d.Min != low || d.Max != high || d.Percentiles[1] != high || d.Percentiles[0] != d.Median {
		t.Errorf("%s: %+v of %v", name, d, want)
	}
	near := false
	for _, w := range want {
		near = near || d.Median >= w && float64(d.Median) <= float64(w)*1.001+1024
	}
	if !near || d.Median > sum {
		t.Errorf("%s: median %v of %v", name, d.Median, want)
	}
}

func checkRendering(t *testing.T, r *Result) {
	t.Helper()
	var b strings.Builder
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var keys map[string]any
	if err := json.Unmarshal([]byte(b.String()), &keys); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{
		"model_id": "m", "endpoint_type": "completions", "num_prompts": 2.0, "completed": 2.0, "failed": 0.0, "request_rate": nil, "concurrency": 1.0,
		"total_input_tokens": 128.0, "total_output_tokens": 13.0, "cached_share": 0.25, "mean_ttft_ms": 125.0, "p99.9_ttft_ms": 150.0, "max_itl_ms": 60.0, "std_e2el_ms": 15.0,
		"mean_send_delay_ms": nil, "goodput": "ttft:120ms,itl:60ms", "duration": 0.38, "max_concurrent_requests": 1.0,
	} {
		if got, there := keys[key]; !there || got != want {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
	for _, key := range []string{"date", "request_throughput", "request_goodput", "output_throughput", "total_token_throughput", "max_output_tokens_per_s", "median_tpot_ms", "p50_itl_ms", "notes", "failures"} {
		if keys[key] == nil {
			t.Errorf("%s is missing", key)
		}
	}
	b.Reset()
	if err := r.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"============ Serving Benchmark Result ============",
		"Successful requests:                     2",
		"Benchmark duration (s):                  0.38",
		"Cached share of input (%):               25.00",
		"---------------Time to First Token----------------",
		"-----Time per Output Token (excl. 1st token)------",
		"Mean TTFT (ms):                          125.00",
		"P99.9 ITL (ms):                          60.00",
		"Request goodput (req/s):                 2.63",
	} {
		if !strings.Contains(b.String(), line) {
			t.Errorf("no %q in\n%s", line, b.String())
		}
	}
}

func TestOpenLoopArrivesBySchedule(t *testing.T) {
	for name, cfg := range map[string]Config{
		"poisson":  {Arrivals: &Arrivals{Rate: 40, Seed: 3}, Requests: 60},
		"bursts":   {Arrivals: &Arrivals{Rate: 40, Burstiness: 0.2, Seed: 3}, Requests: 60},
		"ramp":     {Arrivals: &Arrivals{Rate: 50, From: 2, Ramp: Linear, Seed: 4}, Requests: 60},
		"duration": {Arrivals: &Arrivals{Rate: 40, Seed: 3}, Duration: 2 * time.Second},
		"at once":  {Arrivals: &Arrivals{Rate: math.Inf(1)}, Requests: 60},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{answer: steady(300*ms, 10*ms, 20)}
				c := dialFake(t, f, ClientConfig{})
				begin := time.Now()
				r, err := Run(t.Context(), c, ids(4, 20), cfg, nil)
				if err != nil {
					t.Fatal(err)
				}
				want := cfg.Arrivals.Schedule(cfg.Requests, cfg.Duration)
				var got []time.Duration
				for _, q := range f.queries {
					got = append(got, q.at.Sub(begin))
				}
				if !reflect.DeepEqual(got, want) || len(want) < 30 || r.Completed != len(want) || r.Lag.Count != len(want) || r.Lag.Max != 0 {
					t.Errorf("%d arrivals at %v, want %d at %v; late by %v", len(got), got, len(want), want, r.Lag.Max)
				}
				if r.PeakConcurrency != f.peak {
					t.Errorf("peak %d, the server saw %d", r.PeakConcurrency, f.peak)
				}
			})
		})
	}
}

func TestConcurrencyIsKept(t *testing.T) {
	for name, cfg := range map[string]Config{
		"closed": {Concurrency: 5, Requests: 43},
		"open":   {Arrivals: &Arrivals{Rate: math.Inf(1)}, MaxConcurrency: 5, Requests: 43},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{answer: func(w *writer, n int, q query) { steady(time.Duration(7+n%5)*ms, ms, 3)(w, n, q) }}
				r, err := Run(t.Context(), dialFake(t, f, ClientConfig{}), ids(4, 3), cfg, nil)
				if err != nil || f.peak != 5 || r.PeakConcurrency != 5 || r.Completed != 43 || len(f.queries) != 43 {
					t.Fatalf("%v: the server saw %d at a time and %d in all: %+v", err, f.peak, len(f.queries), r)
				}
				if open := cfg.Arrivals != nil; open != (r.Lag.Max > 0) {
					t.Errorf("sent late by up to %v", r.Lag.Max)
				}
			})
		})
	}
}

func TestMoreWorkersThanRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answer: steady(ms, ms, 2)}
		r, err := Run(t.Context(), dialFake(t, f, ClientConfig{}), ids(4, 2), Config{Concurrency: 50, Requests: 7}, nil)
		if err != nil || r.Completed != 7 || len(f.queries) != 7 {
			t.Fatalf("%v: %d completed of 7, the server saw %d", err, r.Completed, len(f.queries))
		}
	})
}

func TestDurationStopsAClosedLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answer: steady(60*ms, 40*ms, 2)} // 100 ms each
		r, err := Run(t.Context(), dialFake(t, f, ClientConfig{}), ids(4, 2), Config{Concurrency: 2, Duration: 950 * ms}, nil)
		if err != nil || r.Completed != 20 || r.Duration != time.Second {
			t.Fatalf("%v: %d completed in %v, want 20 in 1s: what is out at the end is waited for", err, r.Completed, r.Duration)
		}
	})
}

// When no further request may begin, pauses between turns end at once and do not count
// as part of the run's duration.
func TestThoughtsEndWithTheRun(t *testing.T) {
	for name, cfg := range map[string]Config{
		"requests":            {Concurrency: 4, Requests: 6},
		"duration":            {Concurrency: 4, Duration: time.Hour},
		"requests, open loop": {Arrivals: &Arrivals{Rate: math.Inf(1)}, Requests: 6},
		"duration, open loop": {Arrivals: &Arrivals{Rate: 0.01}, Duration: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{answer: steady(60*ms, 40*ms, 2)} // 100 ms each
				d := &MultiTurn{Vocabulary: VocabularyOf(32000), TurnCount: 3, InputTokens: 5, OutputTokens: 2, Think: 24 * time.Hour, Seed: 1}
				c := dialFake(t, f, ClientConfig{})
				begin := time.Now()
				r, err := Run(t.Context(), c, d, cfg, nil)
				if err != nil || len(f.queries) < 4 || r.Completed != len(f.queries) {
					t.Fatalf("%v: %d completed of %d", err, r.Completed, len(f.queries))
				}
				if rated := cfg.Arrivals != nil && cfg.Duration > 0; rated != (len(r.Notes) == 1 && strings.Contains(r.Notes[0], "of sessions, with up to 3 requests")) {
					t.Errorf("notes %q", r.Notes)
				}
				if last := f.queries[len(f.queries)-1].at.Sub(begin) + 100*ms; r.Duration != last {
					t.Errorf("%v, but the last answer came after %v", r.Duration, last)
				}
				if took, most := time.Since(begin), max(r.Duration, cfg.Duration); took > most {
					t.Errorf("took %v, want %v", took, most)
				}
			})
		})
	}
}

func TestDataSetsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := NewSharedPrefix(SharedPrefix{Groups: 3, PromptsPerGroup: 4, PrefixTokens: 8, SuffixTokens: 2, OutputTokens: 1, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		f := &fake{answer: steady(ms, ms, 1)}
		c := dialFake(t, f, ClientConfig{})
		r, err := Run(t.Context(), c, d, Config{Concurrency: 5}, nil)
		if err != nil || r.Completed != 12 || len(r.Notes) != 0 {
			t.Fatalf("%v: %d completed, notes %q", err, r.Completed, r.Notes)
		}
		r, err = Run(t.Context(), c, d, Config{Concurrency: 5, Requests: 20}, nil)
		if err != nil || r.Completed != 20 || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "again") {
			t.Fatalf("%v: %d completed, notes %q", err, r.Completed, r.Notes)
		}
	})
}

func TestWarmupIsNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answer: steady(ms, ms, 2)}
		c := dialFake(t, f, ClientConfig{})
		r, err := Run(t.Context(), c, ids(4, 2), Config{Concurrency: 2, Requests: 6, Warmup: 3, WarmupSet: ids(9, 5)}, nil)
		if err != nil || r.Completed != 6 || len(f.queries) != 9 || len(f.queries[2].tokens) != 9 || len(f.queries[3].tokens) != 4 {
			t.Fatalf("%v: %+v", err, r)
		}
		f.answer = func(w *writer, _ int, _ query) { w.WriteHeader(500) }
		if r, err := Run(t.Context(), c, ids(4, 2), Config{Concurrency: 2, Requests: 6, Warmup: 3, WarmupSet: ids(9, 5)}, nil); r != nil || err == nil || !strings.Contains(err.Error(), "warm-up request, server_error") {
			t.Fatalf("%+v, %v", r, err)
		}
	})
}

func TestInterruptedRunHasFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		f := &fake{answer: func(w *writer, n int, q query) {
			if n >= 6 {
				w.text("never ends")
				<-w.ctx.Done()
				return
			}
			steady(ms, ms, 2)(w, n, q)
		}}
		c := dialFake(t, f, ClientConfig{})
		time.AfterFunc(time.Minute, func() { cancel(stop) })
		r, err := Run(ctx, c, ids(4, 2), Config{Concurrency: 3, Requests: 1000}, nil)
		if err != stop || r == nil || r.Completed != 6 || r.Unfinished != 3 || r.Failed != 0 || r.Duration != time.Minute {
			t.Fatalf("%v: %+v", err, r)
		}
	})
}

func TestConfigIsChecked(t *testing.T) {
	d := ids(4, 2)
	for want, cfg := range map[string]Config{
		"0 of Concurrency":     {Requests: 1},
		"2 of Concurrency":     {Requests: 1, Concurrency: 1, Timed: true},
		"Concurrency is -1":    {Requests: 1, Concurrency: -1},
		"MaxConcurrency is 2":  {Requests: 1, Concurrency: 1, MaxConcurrency: 2},
		"Requests is -1":       {Requests: -1, Concurrency: 1},
		"want a WarmupSet":     {Requests: 1, Concurrency: 1, Warmup: 1},
		"has no end":           {Concurrency: 1},
		"percentile is 0":      {Requests: 1, Concurrency: 1, Percentiles: []float64{0}},
		"percentile is 100.5":  {Requests: 1, Concurrency: 1, Percentiles: []float64{100.5}},
		"percentile is NaN":    {Requests: 1, Concurrency: 1, Percentiles: []float64{math.NaN()}},
		"appears twice":        {Requests: 1, Concurrency: 1, Percentiles: []float64{99, 50, 99}},
		"Rate is 0":            {Requests: 1, Arrivals: &Arrivals{}},
		"Burstiness is -1":     {Requests: 1, Arrivals: &Arrivals{Rate: 1, Burstiness: -1}},
		"a ramp from 0":        {Requests: 1, Arrivals: &Arrivals{Rate: 1, Ramp: Linear}},
		"say how many":         {Duration: 1, Arrivals: &Arrivals{Rate: math.Inf(1)}},
		"schedule of more":     {Duration: time.Hour, Arrivals: &Arrivals{Rate: 1e9}},
		"more than 4194304":    {Requests: MaxArrivals + 1, Arrivals: &Arrivals{Rate: 1}},
		"Concurrency is 65537": {Requests: 1, Concurrency: 1<<16 + 1},
	} {
		if _, err := Run(t.Context(), nil, d, cfg, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
