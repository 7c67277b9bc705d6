package bench

import (
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/scheduler"
)

// noAging turns Aging and OldestEvery off.
const noAging = 1 << 30

// experiment skips a test under the race detector: a run is a single goroutine, so there
// is nothing to find, and the figures are the same.
func experiment(t *testing.T) {
	t.Helper()
	notUnderTags(t)
	if underRace {
		t.Skip("one goroutine, and far slower")
	}
}

// TestSharesAreFair checks the bound at scheduler.DLPM: of two tenants that both wait all
// the time, neither is served more than the bound ahead of the other, whether slots or
// pages are short. The hit rate is within 5 % of LPM's.
func TestSharesAreFair(t *testing.T) {
	experiment(t)
	for _, c := range []struct {
		name string
		cfg  ServingConfig
	}{
		{"slots are short", ServingConfig{Load: ServeTenants, Requests: 300, Scheduler: scheduler.Config{MaxRunning: 32}}},
		{"pages are short, few share", ServingConfig{Load: ServeUnique, Requests: 300}},
		{"pages are short, many share", ServingConfig{Load: ServeChat, Requests: 400}},
		{"pages are short, tenants share", ServingConfig{Load: ServeTenants, Requests: 400, KVTokens: 60_000}},
	} {
		t.Run(c.name, func(t *testing.T) {
			run := func(p scheduler.Policy) ServingResult {
				c.cfg.Rate, c.cfg.Seed, c.cfg.Scheduler.Policy = 1e6, 7, p // all requests arrive at once
				return mustServe(t, c.cfg)
			}
			fair, lpm, fcfs := run(scheduler.DLPM), run(scheduler.LPM), run(scheduler.FCFS)
			// The documented bound 2·(Quantum + P + R·O), with the default quantum.
			bound := 2 * (4096 + fair.bound.uncached + fair.bound.running*fair.bound.output)
			t.Logf("difference %d of %d (P %d, R %d, O %d); %d under LPM, %d under FCFS; Jain %.3f, %.3f, %.3f; hit rate %.4f, %.4f, %.4f",
				fair.ServedDifference, bound, fair.bound.uncached, fair.bound.running, fair.bound.output,
				lpm.ServedDifference, fcfs.ServedDifference, fair.Jain, lpm.Jain, fcfs.Jain, fair.HitRate, lpm.HitRate, fcfs.HitRate)
			if fair.ServedDifference > bound {
				t.Errorf("two tenants that waited were served %d tokens apart, the bound is %d", fair.ServedDifference, bound)
			}
			if lpm.HitRate > 0.01 && fair.HitRate < 0.95*lpm.HitRate {
				t.Errorf("hit rate %v, under LPM %v", fair.HitRate, lpm.HitRate)
			}
			if fair.ContendedTokens < fair.OutputTokens/2 || fcfs.ServedDifference < 4*fair.ServedDifference {
				t.Errorf("the load does not tell: %d tokens under contention, a difference of %d under FCFS", fair.ContendedTokens, fcfs.ServedDifference)
			}
		})
	}
}

// TestCacheAwareIsNotLate checks the aging of cache-aware policies near saturation: the
// hit rate is as high as without aging, and the p99 of TTFT is about that of FCFS.
func TestCacheAwareIsNotLate(t *testing.T) {
	experiment(t)
	requests := 1000
	if *every {
		requests = 3000
	}
	base := ServingConfig{Load: ServeChat, Rate: 1, Requests: requests, Seed: 7}.withDefaults()
	trace := mustTrace(t, base.Load, base.Requests, base.Seed)
	capacity, err := servingCapacity(t.Context(), base, trace)
	if err != nil {
		t.Fatal(err)
	}
	run := func(p scheduler.Policy, aging int) ServingResult {
		cfg := base
		cfg.Rate = 0.95 * capacity
		cfg.Scheduler.Policy, cfg.Scheduler.Aging, cfg.Scheduler.OldestEvery = p, aging, aging
		r, err := serve(t.Context(), cfg, trace)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	fcfs, greedy := run(scheduler.FCFS, 0), run(scheduler.LPM, noAging)
	for _, p := range []scheduler.Policy{scheduler.LPM, scheduler.HRRN} {
		r := run(p, 0)
		t.Logf("%v: TTFT p99 %.0f ms, hit rate %.4f; FCFS %.0f ms, %.4f; LPM without aging %.0f ms, %.4f",
			p, r.TTFTp99, r.HitRate, fcfs.TTFTp99, fcfs.HitRate, greedy.TTFTp99, greedy.HitRate)
		if r.TTFTp99 > 1.2*fcfs.TTFTp99 {
			t.Errorf("%v: TTFT p99 is %v ms, under FCFS %v", p, r.TTFTp99, fcfs.TTFTp99)
		}
		if r.HitRate < 0.95*greedy.HitRate {
			t.Errorf("%v: hit rate %v, under LPM without aging %v", p, r.HitRate, greedy.HitRate)
		}
	}
}

// TestLongPromptsDoNotStopTheOthers checks that a stream of prompts of 100,000 tokens,
// about one in 25 s, at most doubles the slowest gaps between tokens of conversations,
// because a step computes only a chunk of a long prompt.
func TestLongPromptsDoNotStopTheOthers(t *testing.T) {
	experiment(t)
	cfg := ServingConfig{Load: ServeMixed, Rate: 8, Requests: 1000, Seed: 1}.withDefaults()
	run := func(keep func(n int) bool) ServingResult {
		trace := mustTrace(t, cfg.Load, cfg.Requests, cfg.Seed)
		n := 0
		trace.asks = slices.DeleteFunc(trace.asks, func(a *ask) bool {
			if len(a.prompt) == longPrompt {
				n++
			}
			return len(a.prompt) == longPrompt && !keep(n)
		})
		for i, a := range trace.asks {
			a.index = i
		}
		r, err := serve(t.Context(), cfg, trace)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	with, without := run(func(n int) bool { return n%3 == 0 }), run(func(int) bool { return false })
	t.Logf("ITL p99 %.1f ms with %d long prompts, %.1f ms without; TTFT p99 %.0f and %.0f ms",
		with.ITLp99, with.Requests-without.Requests, without.ITLp99, with.TTFTp99, without.TTFTp99)
	if with.Requests-without.Requests < 4 || with.ITLp50 < 1.2*without.ITLp50 {
		t.Errorf("%d long prompts leave no trace: ITL p50 %v and %v ms", with.Requests-without.Requests, with.ITLp50, without.ITLp50)
	}
	if with.ITLp99 > 2*without.ITLp99 {
		t.Errorf("ITL p99 is %v ms with long prompts, %v ms without", with.ITLp99, without.ITLp99)
	}
}
