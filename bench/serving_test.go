package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/internal/invariants"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// simulate runs serve once, on a trace of its own.
func simulate(ctx context.Context, cfg ServingConfig) (ServingResult, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return ServingResult{}, err
	}
	trace, err := newServingTrace(ctx, cfg.Load, cfg.Requests, cfg.Seed)
	if err != nil {
		return ServingResult{}, err
	}
	return serve(ctx, cfg, trace)
}

func mustServe(t *testing.T, cfg ServingConfig) ServingResult {
	t.Helper()
	r, err := simulate(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// ending is a context that ends at a call of Err.
type ending struct {
	context.Context
	left int // calls before that one
}

func (c *ending) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestServeEndsWithContext: an interrupt is not kept waiting by a long trace or a long run.
func TestServeEndsWithContext(t *testing.T) {
	for _, left := range []int{5, 15} { // while the 10 requests are drawn, and after that
		ctx := &ending{t.Context(), left}
		if _, err := simulate(ctx, ServingConfig{Requests: 10, Rate: 10}); !errors.Is(err, context.Canceled) || ctx.left != -2 {
			t.Errorf("after %d: %v, %d looks at the context left", left, err, ctx.left)
		}
	}
}

// notUnderTags skips tests with many pages or steps under -tags invariants: full walks
// after each call of the scheduler would take a minute, and small runs have them too.
func notUnderTags(t *testing.T) {
	t.Helper()
	if invariants.Enabled {
		t.Skip("too long with full walks after each call")
	}
}

func mustTrace(t *testing.T, load ServingLoad, requests int, seed uint64) *servingTrace {
	t.Helper()
	trace, err := newServingTrace(t.Context(), load, requests, seed)
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

// TestServingTracesArePinned pins the loads, since published figures depend on every
// token and arrival time.
func TestServingTracesArePinned(t *testing.T) {
	want := map[ServingLoad]uint64{
		ServeChat: 0x33aa93563b04be5a, ServeFewShot: 0x18e18e7a6a6f858d, ServeTree: 0x97721d688d8d4a09,
		ServeUnique: 0x990bd9b55f4e2586, ServeMixed: 0xce6a07b56d3a0b78, ServeTenants: 0x6fa229b1335655b4,
	}
	for _, load := range ServingLoads() {
		h := fnv.New64a()
		word := func(v uint64) { h.Write(binary.LittleEndian.AppendUint64(nil, v)) }
		for _, a := range mustTrace(t, load, 100, 7).asks {
			word(a.at)
			word(uint64(a.limit))
			h.Write([]byte(a.tenant))
			for _, tokens := range [][]kv.Token{a.prompt, a.answer} {
				word(uint64(len(tokens)))
				for _, token := range tokens {
					word(uint64(token))
				}
			}
		}
		if got := h.Sum64(); got != want[load] {
			t.Errorf("%v: FNV-1a %#x, want %#x", load, got, want[load])
		}
	}
}

// TestServingTraces checks what the documentation states about the loads.
func TestServingTraces(t *testing.T) {
	const n = 1500
	for _, load := range ServingLoads() {
		trace := mustTrace(t, load, n, 3)
		if len(trace.asks) != n {
			t.Fatalf("%v: %d requests", load, len(trace.asks))
		}
		if mean := trace.asks[n-1].at / (n - 1); mean < gapUnit*9/10 || mean > gapUnit*11/10 {
			t.Errorf("%v: the mean gap is %d of %d units", load, mean, gapUnit)
		}
		long, shared := 0, 0
		for i, a := range trace.asks {
			if a.index != i || len(a.answer) < 1 || len(a.answer) > a.limit || len(a.prompt) < 1 || i > 0 && a.at < trace.asks[i-1].at {
				t.Fatalf("%v: request %d: index %d, prompt %d, answer %d of %d, at %d", load, i, a.index, len(a.prompt), len(a.answer), a.limit, a.at)
			}
			if slices.Index(a.answer, a.answer[len(a.answer)-1]) != len(a.answer)-1 {
				t.Fatalf("%v: request %d: its stop token comes before the end", load, i)
			}
			if b := a.after; b != nil {
				said := b.said()
				if b.index >= i || len(a.prompt) <= len(said) || !slices.Equal(a.prompt[:len(said)], said) {
					t.Fatalf("%v: request %d does not go on where %d ended", load, i, b.index)
				}
				shared++
			}
			if len(a.prompt) == longPrompt {
				long++
				if len(a.prompt) != longPrompt {
					t.Fatalf("%v: a long prompt of %d tokens", load, len(a.prompt))
				}
			}
		}
		if (load == ServeMixed) != (long > 0) || load == ServeMixed && long != n/longEvery {
			t.Errorf("%v: %d long prompts", load, long)
		}
		if continues := load == ServeChat || load == ServeTree || load == ServeMixed; continues != (shared > n/4) {
			t.Errorf("%v: %d requests go on where another one ended", load, shared)
		}
		if want := map[bool]int{true: 3, false: 8}[load == ServeTenants]; len(trace.tenants) != want {
			t.Errorf("%v: tenants %v, want %d", load, trace.tenants, want)
		}
	}
}

// TestServeIsDeterministic checks that two runs differ in wall time only, with one plan
// in flight and with two, and that every answer is right.
func TestServeIsDeterministic(t *testing.T) {
	notUnderTags(t)
	for i, load := range ServingLoads() {
		cfg := ServingConfig{Load: load, Rate: 20, Requests: 120, Seed: 5, Scheduler: scheduler.Config{Policy: scheduler.Policies()[i], MaxInflight: 1 + i%2}}
		a, b := mustServe(t, cfg), mustServe(t, cfg)
		a.WallSeconds, b.WallSeconds = 0, 0
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%v: two runs differ:\n%+v\n%+v", load, a, b)
		}
		if a.Requests != 120 || a.Steps == 0 || a.TTFTp50 <= 0 || a.TTFTp99 < a.TTFTp50 || a.ITLp99 < a.ITLp50 || a.OutputTokens < 120 {
			t.Errorf("%v: %+v", load, a)
		}
		if want := a.PromptTokens - a.CachedTokens + a.RecomputedTokens; a.ComputedTokens != want {
			t.Errorf("%v: the backend computed %d prompt tokens, the bills say %d", load, a.ComputedTokens, want)
		}
	}
}

// TestServePreempts checks that a pool too small for the running requests causes
// preemptions but no wrong answer, and that recomputed tokens are counted separately.
func TestServePreempts(t *testing.T) {
	cfg := ServingConfig{Load: ServeFewShot, Rate: 1000, Requests: 200, Seed: 2, KVTokens: 5000, Scheduler: scheduler.Config{MaxRunning: 64}}
	on := mustServe(t, cfg)
	cfg.Scheduler.DisableCache = true
	off := mustServe(t, cfg)
	if on.Preemptions == 0 || on.RecomputedTokens == 0 {
		t.Errorf("%d preemptions, %d tokens computed again: the load does not press", on.Preemptions, on.RecomputedTokens)
	}
	if on.HitRate < 0.4 || off.HitRate != 0 || off.VirtualSeconds < 1.5*on.VirtualSeconds {
		t.Errorf("hit rate %v in %v s, without a cache %v in %v s", on.HitRate, on.VirtualSeconds, off.HitRate, off.VirtualSeconds)
	}
}

// TestServeSeesWrongAnswers checks that a token the model would not sample ends the run
// with an error.
func TestServeSeesWrongAnswers(t *testing.T) {
	cfg := ServingConfig{Load: ServeChat, Rate: 10, Requests: 20}.withDefaults()
	trace := mustTrace(t, cfg.Load, cfg.Requests, cfg.Seed)
	trace.asks[7].answer = slices.Clone(trace.asks[7].answer)
	trace.asks[7].answer[0]++
	if _, err := serve(t.Context(), cfg, trace); err == nil || !strings.Contains(err.Error(), "request 7") || !strings.Contains(err.Error(), "chat") {
		t.Errorf("a wrong token: %v", err)
	}
}

// TestServeClosedLoop checks that throughput grows with the number of clients until the
// device is saturated, and that no more requests are open than there are clients.
func TestServeClosedLoop(t *testing.T) {
	notUnderTags(t)
	rate := func(clients int) float64 {
		return mustServe(t, ServingConfig{Load: ServeUnique, Clients: clients, Requests: 100, Scheduler: scheduler.Config{MaxRunning: 100}}).RequestsPerS
	}
	one, eight := rate(1), rate(8)
	if eight < 3*one {
		t.Errorf("one client is served %v requests/s, eight %v", one, eight)
	}
	r := mustServe(t, ServingConfig{Load: ServeTenants, Clients: 5, Requests: 100, Scheduler: scheduler.Config{MaxRunning: 100}})
	if r.bound.running > 5 || r.TTFTp99 > 1000 {
		t.Errorf("5 clients: %d of one tenant ran, TTFT %v ms", r.bound.running, r.TTFTp99)
	}
}

func TestServeRefuses(t *testing.T) {
	for _, c := range []struct {
		cfg  ServingConfig
		want []string
	}{
		{ServingConfig{Requests: -1, Rate: -2}, []string{"Requests is -1", "Rate is -2"}},
		{ServingConfig{}, []string{"Rate is 0 and Clients is 0"}},
		{ServingConfig{Rate: 1, Clients: 1}, []string{"Rate is 1 and Clients is 1"}},
		{ServingConfig{Rate: 1, KVTokens: 3}, []string{"KVTokens is 3"}},
		{ServingConfig{Rate: 1, PageTokens: -1}, []string{"PageTokens is -1"}},
		{ServingConfig{Rate: 1, PageTokens: 24}, []string{"PageTokens is 24", "power of two"}},
		{ServingConfig{Rate: 1, Load: 99, Requests: 1}, []string{"load(99)"}},
		{ServingConfig{Rate: 1, Scheduler: scheduler.Config{Quantum: -4}}, []string{"Quantum is -4"}},
		{ServingConfig{Rate: 1, Load: ServeMixed, Requests: 64, KVTokens: 50_000}, []string{"larger than the KV pool", "50000"}},
	} {
		_, err := simulate(t.Context(), c.cfg)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v does not mention %q", c.cfg, err, want)
			}
		}
	}
	var load ServingLoad
	if err := load.UnmarshalText([]byte("nope")); err == nil || !strings.Contains(err.Error(), "fewshot") {
		t.Errorf("an unknown load: %v", err)
	}
	for _, l := range ServingLoads() {
		if err := load.UnmarshalText([]byte(l.String())); err != nil || load != l {
			t.Errorf("%v is read as %v, %v", l, load, err)
		}
	}
}

// TestFairness computes the figures of three tenants by hand.
func TestFairness(t *testing.T) {
	f := newFairness([]string{"a", "b", "c"})
	look := func(usage ...scheduler.TenantUsage) { f.look(usage) }
	use := func(tenant string, waiting, served int) scheduler.TenantUsage {
		return scheduler.TenantUsage{Tenant: tenant, Waiting: waiting, Running: waiting + 1, ServedTokens: uint64(served)}
	}
	look(use("a", 1, 100), use("b", 1, 0))
	look(use("a", 1, 130), use("b", 1, 10)) // of 40 tokens served, a got 30 and b 10
	look(use("a", 1, 130), use("b", 1, 70), use("c", 1, 900))
	if f.difference != 60 { // a's lead over b was 100, 120 and 60: a range of 60
		t.Errorf("difference %d, want 60", f.difference)
	}
	look(use("a", 0, 5000), use("b", 1, 80), use("c", 1, 920)) // a has no waiting request: its service does not count
	look(use("a", 1, 9000), use("b", 1, 80), use("c", 1, 920))
	if f.difference != 60 || f.running != 2 || f.contended != 40+60+30 {
		t.Errorf("difference %d, running %d, contended %d, want 60, 2 and 130", f.difference, f.running, f.contended)
	}
	// Service and equal shares: a 30 of 20+30, b 10+60+10 of 20+30+15, c 20 of 15.
	x, e := []float64{30, 80, 20}, []float64{50, 65, 15}
	want := 130 / (x[0]*x[0]/e[0] + x[1]*x[1]/e[1] + x[2]*x[2]/e[2])
	if got := f.jain(); got < want-1e-9 || got > want+1e-9 || got >= 1 {
		t.Errorf("Jain's index %v, want %v", got, want)
	}
	if got := newFairness([]string{"a"}).jain(); got != 1 {
		t.Errorf("no tenant waits: %v, want 1", got)
	}
}
