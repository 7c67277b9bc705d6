package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/bench"
	"github.com/coppice-llm/coppice/internal/invariants"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/router"
)

// size reduces the requests of a run under -tags invariants, where a full walk follows
// every mutation.
func size(requests int) int {
	if invariants.Enabled {
		return requests / 10
	}
	return requests
}

// notUnderInvariants skips tests of a fleet's figures, which do not add to the logic tested.
func notUnderInvariants(t *testing.T) {
	t.Helper()
	if invariants.Enabled {
		t.Skip("the walks take too long for a fleet")
	}
}

func generated(t *testing.T, name string, requests, workers int) *Trace {
	t.Helper()
	trace, err := Generate(name, size(requests), workers, 3)
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

func played(t *testing.T, cfg Config, trace *Trace) Result {
	t.Helper()
	r, err := Play(context.Background(), cfg, trace)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var everyFleet = flag.Bool("every", false, "TestEveryRequestEndsOnce: each policy and trace with each kind of worker and loop; TestPredictionsHold: both working sets")

// TestEveryRequestEndsOnce checks that under every policy, kind of worker and loop the
// sums of prompt and output tokens are those of the trace. The loop itself checks that
// each request ends once, after exactly its tokens: see TestBrokenWorkersAreCaught.
// A policy and a trace meet with one kind of worker and one loop, in turn, so that each policy, and each trace, has all
// four; with -every they meet with all.
func TestEveryRequestEndsOnce(t *testing.T) {
	names, policies := Generated(), router.Policies()
	if invariants.Enabled {
		names, policies = names[:1], policies[:1]
	}
	for n, name := range names {
		trace := generated(t, name, 80, 4)
		prompt, output := 0, 0
		for i := range trace.asks {
			prompt, output = prompt+trace.asks[i].tokens(), output+trace.asks[i].answer.n
		}
		for p, policy := range policies {
			for i, cfg := range []Config{
				{Kind: Ours, Rate: 40},
				{Kind: Mocker, Rate: 40},
				{Kind: Ours, Clients: 30, KVTokens: 1 << 15, EventDelay: 30 * time.Millisecond, Predict: time.Second},
				{Kind: Mocker, Clients: 30, KVTokens: 1 << 15, EventDelay: 30 * time.Millisecond, Predict: time.Second},
			} {
				if i != (n+p)%4 && !*everyFleet && !invariants.Enabled {
					continue
				}
				cfg.Workers, cfg.Policy = 4, policy
				r := played(t, cfg, trace)
				if r.PromptTokens != prompt || r.OutputTokens != output || r.CachedTokens+r.ComputedTokens < prompt || r.CachedTokens > prompt {
					t.Errorf("%v %v %s: %d prompt tokens, %d cached, %d computed, %d output; want %d and %d", cfg.Kind, policy, name,
						r.PromptTokens, r.CachedTokens, r.ComputedTokens, r.OutputTokens, prompt, output)
				}
			}
		}
	}
}

// broken is a worker with a fault: counting only reports with an ending, it calls wrong on report
// number after, from 1.
type broken struct {
	Worker
	after int
	wrong func(*Report)
}

func (b *broken) Pass(now time.Duration, out *Report) error {
	err := b.Worker.Pass(now, out)
	if len(out.Ended) > 0 {
		if b.after--; b.after == 0 {
			b.wrong(out)
		}
	}
	return err
}

// TestBrokenWorkersAreCaught checks that the loop detects faulty workers.
func TestBrokenWorkersAreCaught(t *testing.T) {
	for want, wrong := range map[string]func(*Report){
		"requests ended":   func(r *Report) { r.Ended = r.Ended[:0] },
		"(before: true)":   func(r *Report) { r.Ended = append(r.Ended, r.Ended[0]) },
		"more than":        func(r *Report) { r.Tokens = append(r.Tokens, r.Ended[0]) },
		"(before: false)":  func(r *Report) { r.Tokens = r.Tokens[:0] },
		"of worker 1/0: k": func(r *Report) { r.Events = append(r.Events, orphan()) },
	} {
		cfg := Config{Workers: 2, Rate: 10}.WithDefaults()
		p, err := newPlay(cfg, generated(t, "chat", 200, 2))
		if err != nil {
			t.Fatal(err)
		}
		p.workers[0].Worker = &broken{p.workers[0].Worker, 3, wrong}
		// A request that never ends does not end the run, as the reports go on forever.
		p.clock.At(time.Hour, func() {
			p.fail(fmt.Errorf("%d of %d requests ended", p.ended, len(p.asked)))
		})
		if err := p.run(func() error { return nil }); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestSameSeedSameTable checks that equal seeds give tables equal to the byte, and that
// another seed gives another table.
func TestSameSeedSameTable(t *testing.T) {
	notUnderInvariants(t)
	table := func(kind Kind, source string, seed uint64) string {
		var b bytes.Buffer
		cfg := CompareConfig{Sources: []Source{{Name: source}}, Workers: []int{2, 3}, Requests: size(60), Seed: seed, Base: Config{Kind: kind}}
		steps := 0
		table, err := Compare(context.Background(), cfg, func(string) { steps++ })
		if err != nil {
			t.Fatal(err)
		}
		if steps != cfg.Steps() {
			t.Errorf("%d steps, want %d", steps, cfg.Steps())
		}
		if err := errors.Join(bench.WriteTable(&b, table), bench.WriteMarkdown(&b, table), bench.WriteJSON(&b, table)); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	ours, mocker := table(Ours, "chat", 1), table(Mocker, "unique", 1)
	if again := table(Ours, "chat", 1); again != ours {
		t.Errorf("the same seed gave\n%s\nand\n%s", ours, again)
	}
	if again := table(Mocker, "unique", 1); again != mocker {
		t.Errorf("the same seed gave\n%s\nand\n%s", mocker, again)
	}
	if other := table(Ours, "chat", 2); other == ours {
		t.Error("another seed gave the same table")
	}
}

// TestIndexNeverOvercounts checks, after the events of each pass, that the index promises
// no more blocks of a prompt than the worker has, and few less. The mocker evicts when it
// begins a pass but reports it when the pass ends; by that much the index may be ahead.
func TestIndexNeverOvercounts(t *testing.T) {
	for _, kind := range []Kind{Ours, Mocker} {
		trace, pool := generated(t, "chat", 400, 3), 1<<14
		if invariants.Enabled {
			pool = 1 << 13 // small enough that the fewer requests cause evictions
		}
		cfg := Config{Workers: 3, Kind: kind, Rate: 25, KVTokens: pool, Policy: router.CostLatency}.WithDefaults()
		p, err := newPlay(cfg, trace)
		if err != nil {
			t.Fatal(err)
		}
		promised, there, looks := 0, 0, 0
		var req Request
		p.checked = func(w *station) error {
			looks++
			untold := 0
			if v, ok := w.Worker.(*mocker); ok {
				if err := v.check(); err != nil {
					return err
				}
				for _, e := range v.cache.events {
					untold += len(e.Hashes)
				}
			}
			for i := range 4 {
				trace.fill((looks*7+i*31)%max(1, p.next), p.hasher, &req)
				has := 0
				switch v := w.Worker.(type) {
				case *ours:
					has = v.s.Cache().Match(radixcache.Key{Tokens: req.Tokens}).Tokens / BlockTokens
				case *mocker:
					has = v.found(req.Hashes)
				}
				there += has
				for _, o := range p.gates[0].index.Find(req.Hashes, nil) {
					if o.Holder != w.holder {
						continue
					}
					promised += int(o.Blocks)
					if int(o.Blocks) > has+untold {
						return fmt.Errorf("the index promises %d blocks of %v worker %v, which has %d", o.Blocks, kind, w.id, has)
					}
				}
			}
			return nil
		}
		if err := p.run(func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		if err := p.gates[0].index.Check(); err != nil {
			t.Error(err)
		}
		if there == 0 || promised < there*9/10 || p.gates[0].index.Stats().RemovedBlocks == 0 {
			t.Errorf("%v: the index promised %d of %d blocks in %d looks, %d were removed", kind, promised, there, looks, p.gates[0].index.Stats().RemovedBlocks)
		}
	}
}

// TestPlantedPolicyShows checks that a policy which sends all requests to one worker shows
// in every column.
func TestPlantedPolicyShows(t *testing.T) {
	notUnderInvariants(t)
	trace := generated(t, "unique", 300, 4)
	good := played(t, Config{Workers: 4, Rate: 20, Policy: router.CostRoundRobin}, trace)
	bad := played(t, Config{Workers: 4, Rate: 20, plant: &kv.Rank{Worker: 2}}, trace)
	if bad.ComputedBalance != 4 || bad.OutputBalance != 4 || bad.IdleWorkers != 3 {
		t.Errorf("all to one of 4: balance %v and %v, %d idle", bad.ComputedBalance, bad.OutputBalance, bad.IdleWorkers)
	}
	if good.ComputedBalance > 1.5 || good.IdleWorkers != 0 || bad.TTFTp99 < 3*good.TTFTp99 || bad.ITLp99 < good.ITLp99 {
		t.Errorf("round robin: %v\nall to one: %v", good, bad)
	}
}

// TestBusyFleetQueuesAtTheRouter checks that requests wait at the router if workers take
// only two each.
func TestBusyFleetQueuesAtTheRouter(t *testing.T) {
	r := played(t, Config{Workers: 2, Rate: 100, MaxRunning: 2}, generated(t, "chat", 200, 2))
	if r.Queued == 0 {
		t.Error("no request waited")
	}
}

// TestDefaultPolicy checks that the default policy has the lowest p99 of TTFT of all
// policies, and a p99 of ITL within a tenth of the lowest, in virtual time.
// bench/results/fleet.md has the whole table.
func TestDefaultPolicy(t *testing.T) {
	notUnderInvariants(t)
	for _, name := range []string{"chat", "unique"} {
		table, err := Compare(context.Background(), CompareConfig{Sources: []Source{{Name: name}}, Workers: []int{4}, Requests: 600, Seed: 7}, nil)
		if err != nil {
			t.Fatal(err)
		}
		results := table.Fleets[0].Results
		ours := results[0]
		for _, r := range results {
			if r.TTFTp99 < ours.TTFTp99 || r.ITLp99 < 0.9*ours.ITLp99 {
				t.Errorf("%s: %v\n%v", name, ours, r)
			}
		}
	}
}

// TestLateEventsCost checks that a delay of events reduces the tokens that the router
// promises.
func TestLateEventsCost(t *testing.T) {
	notUnderInvariants(t)
	trace := generated(t, "chat", 400, 4)
	soon := played(t, Config{Workers: 4, Rate: 30}, trace)
	late := played(t, Config{Workers: 4, Rate: 30, EventDelay: 10 * time.Second}, trace)
	if late.PromisedTokens >= soon.PromisedTokens || late.HitRate >= soon.HitRate {
		t.Errorf("events at once: %d promised, hit rate %v; 10 s later: %d, %v", soon.PromisedTokens, soon.HitRate, late.PromisedTokens, late.HitRate)
	}
}

func TestJSON(t *testing.T) {
	clock := time.Unix(0, 0)
	cfg := CompareConfig{Requests: 60, Policies: []Routing{{Router: router.Cost2025}}, Base: Config{Clock: func() time.Time {
		clock = clock.Add(time.Microsecond)
		return clock
	}}}
	table, err := Compare(context.Background(), cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	var text, people bytes.Buffer
	if err := errors.Join(bench.WriteJSON(&text, table), bench.WriteTable(&people, table)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(people.String(), "select") || !strings.Contains(people.String(), "1.0 µs") {
		t.Errorf("choices of a microsecond each are not in\n%s", people.String())
	}
	var got struct {
		Worker string
		Fleets []struct {
			Trace    string
			Workers  int
			Policies []map[string]any
		}
	}
	if err := json.Unmarshal(text.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Worker != "ours" || len(got.Fleets) != 1 || got.Fleets[0].Trace != "chat" || got.Fleets[0].Workers != 8 || len(got.Fleets[0].Policies) != 1 {
		t.Fatalf("%+v", got)
	}
	r := got.Fleets[0].Policies[0]
	for _, key := range []string{"policy", "hit_rate", "ttft_ms_p50", "ttft_ms_p99", "itl_ms_p99", "e2e_ms_p99", "computed_balance", "output_balance", "select_us_mean"} {
		if r[key] == nil {
			t.Errorf("%q is not in %v", key, r)
		}
	}
}

func TestRefusals(t *testing.T) {
	notUnderInvariants(t)
	trace := generated(t, "unique", 100, 1)
	for want, cfg := range map[string]Config{
		"Workers is 0, want 1 to":                   {Rate: 1},
		"Clients is 0 and Rate 0, want one of them": {Workers: 1},
		"Rate is -1":          {Workers: 1, Rate: -1},
		"EventDelay":          {Workers: 1, Rate: 1, EventDelay: -1},
		"ReportEvery is -1ns": {Workers: 1, Rate: 1, ReportEvery: -1},
		"KVTokens is -1":      {Workers: 1, Rate: 1, KVTokens: -1},
		"Weights: ITL is -1":  {Workers: 1, Rate: 1, Weights: router.Weights{TTFT: 1, ITL: -1}},
		"unique, 1 workers, latency: fleet: request":  {Workers: 1, Rate: 1, KVTokens: 256},
		"unique, 1 workers, latency: fleet: request ": {Workers: 1, Rate: 1, KVTokens: 1024, Kind: Mocker},
		"StepTokens is 255, want at least MaxRunning": {Workers: 1, Rate: 1, StepTokens: 255, Kind: Mocker},
	} {
		if _, err := Play(context.Background(), cfg, trace); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for want, cfg := range map[string]CompareConfig{
		"Load is -1":         {Load: -1},
		"Requests is -1":     {Requests: -1},
		"4097 workers":       {Workers: []int{4097}},
		"nothing to comp":    {Sources: []Source{}},
		"unknown trace":      {Sources: []Source{{Name: "chatter"}}},
		"too few to measure": {Requests: 1},
		"context canceled!":  {},
	} {
		ctx := context.Background()
		if strings.HasSuffix(want, "!") {
			canceled, cancel := context.WithCancel(ctx)
			cancel()
			ctx = canceled
		}
		if _, err := Compare(ctx, cfg, nil); err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(want, "!")) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// orphan is an event that stores a block after an unknown parent.
func orphan() kv.Event {
	return kv.Event{Kind: kv.Stored, HasParent: true, Parent: 12345, Blocks: []kv.Block{{Hash: kv.Chain(12345, 1), Local: 1}}}
}

func (r Result) String() string {
	return fmt.Sprintf("%-12s hit %.3f ttft %.1f/%.1f itl %.2f/%.2f e2e %.0f/%.0f bal %.2f/%.2f rps %.1f evict %d virt %.1f sel %.1f", r.Policy, r.HitRate, r.TTFTp50, r.TTFTp99,
		r.ITLp50, r.ITLp99, r.E2Ep50, r.E2Ep99, r.ComputedBalance, r.OutputBalance, r.RequestsPerS, r.EvictedBlocks, r.VirtualSeconds, r.SelectMean)
}
