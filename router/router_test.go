package router

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

const second = time.Second

func newRouter(t testing.TB, cfg Config, specs ...WorkerSpec) *Router {
	t.Helper()
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i, spec := range specs {
		if spec.BlockTokens == 0 {
			spec.BlockTokens = r.BlockTokens()
		}
		if err := r.Join(0, worker1(i), spec); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// worker1 returns the i-th worker of newRouter.
func worker1(i int) kv.Rank { return kv.Rank{Worker: kv.WorkerID(i + 1)} }

func hashes(of ...int) []kv.BlockHash {
	var all []kv.BlockHash
	for _, h := range of {
		all = append(all, kv.BlockHash(h))
	}
	return all
}

func selected(t testing.TB, r *Router, now time.Duration, req Request) Decision {
	t.Helper()
	d, err := r.Select(now, &req)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Check(); err != nil {
		t.Fatal(err)
	}
	return d
}

func loadOf(t testing.TB, r *Router, w kv.Rank) Load {
	t.Helper()
	l, ok := r.Load(r.now, w)
	if !ok {
		t.Fatalf("no worker %v", w)
	}
	return l
}

// TestCostsOfWorkedExamples checks each policy's cost for a worker in a given state, with
// the figures of the formula's source where it has some.
func TestCostsOfWorkedExamples(t *testing.T) {
	weights := func(change func(*Weights)) *Weights {
		w := DefaultWeights()
		if change != nil {
			change(&w)
		}
		return &w
	}
	for _, tc := range []struct {
		name   string
		policy Policy
		state  worker
		others worker // a second candidate
		over   Overlap
		prompt int
		hashes int
		tune   func(*Weights)
		want   float64
	}{
		// 2·(8·16/256) − 300/1000 − 2/4
		{"2025", Cost2025, worker{hashed: 300, prefilling: 2, spec: WorkerSpec{TotalBlocks: 1000}}, worker{prefilling: 4},
			Overlap{Device: 8}, 256, 0, nil, -(1 - 0.3 - 0.5)},
		{"2025, no waiting requests, unknown pool", Cost2025, worker{hashed: 300}, worker{}, Overlap{}, 256, 0, nil, 0},
		{"2025, as reported", Cost2025, worker{hashed: 40, reports: reports{reported: true, usage: Usage{UsedBlocks: 500, Waiting: 3}, blocksAtReport: 30, reservedSince: 1},
			spec: WorkerSpec{TotalBlocks: 1000}}, worker{prefilling: 2}, Overlap{Device: 4}, 128, 0, nil, -(2*0.5 - 0.51 - 1)},
		{"2025, weights", Cost2025, worker{hashed: 300, prefilling: 2, spec: WorkerSpec{TotalBlocks: 1000}}, worker{prefilling: 4},
			Overlap{Device: 8}, 256, 0, func(w *Weights) { w.Score, w.Usage, w.Waiting = 3, 2, 0 }, -(1.5 - 0.6)},
		// (20 + 64 − 2·16)/16 + 7 + 4, fractional
		{"2026", Cost2026, worker{prefillTokens: 20, hashed: 5, private: 2}, worker{}, Overlap{Device: 2}, 64, 4, nil, 52.0/16 + 11},
		{"2026, the weight scales all prefill", Cost2026, worker{prefillTokens: 20, hashed: 7}, worker{}, Overlap{Device: 2}, 64, 4,
			func(w *Weights) { w.Prefill = 2 }, 2*52.0/16 + 11},
		{"2026, more cached than asked", Cost2026, worker{}, worker{}, Overlap{Device: 6}, 64, 0, nil, 0},
		// raw (16 + 96)/16 = 7; 2·(7 − 6) + 2 + 3 = 7
		{"credits", CostCredits, worker{prefillTokens: 16, hashed: 2}, worker{prefillTokens: 16}, Overlap{Device: 6}, 64, 3,
			func(w *Weights) { w.Scale = 2 }, 7},
		{"credits, no prefill", CostCredits, worker{prefillTokens: 16, hashed: 2}, worker{}, Overlap{Device: 6}, 64, 3,
			func(w *Weights) { w.Scale = 0 }, 5},
		{"credits, tiers", CostCredits, worker{}, worker{}, Overlap{Device: 2, Host: 4, Disk: 8}, 16 * 20, 0, nil, 20 - (2 + 3 + 2)},
		// excess (160 − 0)/16/10 = 1, so half the credit
		{"credits, decay", CostCredits, worker{prefillTokens: 160}, worker{}, Overlap{Device: 8}, 160, 0,
			func(w *Weights) { w.Decay = 1 }, 20 - 4},
		{"credits, requests", CostCredits, worker{hashed: 97, requests: 4}, worker{}, Overlap{}, 64, 3,
			func(w *Weights) { w.Requests = 32 }, 4 + 228},
		{"least loaded", CostLeastLoaded, worker{requests: 9}, worker{}, Overlap{}, 64, 0, nil, 9},
		{"round robin", CostRoundRobin, worker{lastChosen: 12}, worker{}, Overlap{}, 64, 0, nil, 12},
		{"random", CostRandom, worker{hashed: 12}, worker{}, Overlap{}, 64, 0, nil, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRouter(t, Config{Policy: tc.policy}, WorkerSpec{}, WorkerSpec{})
			for i, state := range []worker{tc.state, tc.others} {
				state.id, state.active, state.prefillingQueue = r.workers[i].id, r.workers[i].active, r.workers[i].prefillingQueue
				r.workers[i] = state
			}
			tc.over.Worker = worker1(0)
			req := Request{PromptTokens: tc.prompt, Overlaps: []Overlap{tc.over}, Weights: weights(tc.tune)}
			for i := range tc.hashes {
				req.Hashes = append(req.Hashes, kv.BlockHash(i+1))
			}
			r.scorer.score(&req)
			if got := r.scorer.costs[0]; math.Abs(got-tc.want) > 1e-12 {
				t.Errorf("cost %v, want %v", got, tc.want)
			}
		})
	}
}

// distinct returns hashes of blocks that no other request has.
func distinct(of uint64, n int) (all []kv.BlockHash) {
	for b := range n {
		all = append(all, kv.BlockHash(mix(of, uint64(b))))
	}
	return all
}

// TestLatencyIsTheFormula computes one cost of CostLatency by hand.
func TestLatencyIsTheFormula(t *testing.T) {
	p := Profile{Step: 0.01, Token: 1e-4, Pair: 1e-7, Row: 1e-3, KV: 1e-6, HostBlock: 0.002, DiskBlock: 0.02}
	weights := DefaultWeights()
	weights.TTFT, weights.ITL, weights.Backlog = 2, 0.5, 0.25
	r := newRouter(t, Config{Policy: CostLatency, Profile: p, Weights: weights}, WorkerSpec{BatchTokens: 512, TotalBlocks: 120, ChunkTokens: 8})
	// One request decodes (1000 tokens of context), one is being prefilled (600 tokens).
	d := selected(t, r, 0, Request{PromptTokens: 900, ExpectedOutput: 100, Hashes: distinct(1, 900/16)})
	r.Progress(second, d.Reservation, 0, 100)
	selected(t, r, second, Request{PromptTokens: 600, ExpectedOutput: 10, Hashes: distinct(2, 600/16)})
	first := 600*1e-4 + 1e-7*600*601/2
	now := second + 20*time.Millisecond // which have passed of the prompt
	o := Overlap{Worker: worker1(0), Device: 10, Host: 5, Disk: 2}
	e, err := r.Explain(now, &Request{PromptTokens: 1000, ExpectedOutput: 200, Overlaps: []Overlap{o}, Hashes: distinct(3, 1000/16)})
	if err != nil {
		t.Fatal(err)
	}
	cached := math.Round((10 + 0.8*5 + 0.6*2) * 16)
	uncached := 1000 - cached
	prompt := 1e-4*uncached + 1e-7*(uncached*cached+uncached*(uncached+1)/2) + 5*0.002 + 2*0.02
	context, own := 1000.0+600, 1000.0+100
	all := 0.01 + 3e-3 + 1e-6*(context+own)
	step := 0.01 + 1e-3 + 1e-6*context/2
	steps := math.Ceil(600.0/512) + math.Ceil(uncached/512)
	// The last news of the worker is 20 ms old, longer than a step takes.
	ttft := first - 0.02 + prompt + step/2 + steps*step
	// Blocks: 56 + 6 of the first request, 37 of the second, 62 of this one: 41 above the
	// limit.
	ttft += min(1, 41*16/context) * 200 * all
	delay := 100 * 8 * 1e-4 // in each of 100 steps a chunk of 8 tokens, which is less than the prompt
	want := [maxTerms]float64{ttft, 200 * all, delay + 2*100*(1e-3+1e-6*own), 1 * prompt}
	got := e.Candidates[0]
	for i := range want {
		if math.Abs(got.Terms[i]-want[i]) > 1e-6 {
			t.Errorf("%s is %v, want %v", termNames[e.Policy][i], got.Terms[i], want[i])
		}
	}
	if sum := 2*want[0] + 0.5*(want[1]+want[2]) + 0.25*want[3]; math.Abs(got.Cost-sum) > 1e-6 {
		t.Errorf("cost %v, want %v", got.Cost, sum)
	}
}

// TestLoadOfActiveRequests has the figures of Dynamo's tests of active sequences, with
// chained hashes as in production: a block's hash includes its position, so [4] alone is
// not the fourth block of [1 2 3 4].
func TestLoadOfActiveRequests(t *testing.T) {
	r := newRouter(t, Config{BlockTokens: 4, Policy: CostRoundRobin}, WorkerSpec{})
	load := func(want ...int) {
		t.Helper()
		if l := loadOf(t, r, worker1(0)); l.Blocks != want[0] || l.PrefillTokens != want[1] {
			t.Errorf("%d blocks and %d tokens, want %v", l.Blocks, l.PrefillTokens, want)
		}
	}
	r1 := selected(t, r, 0, Request{PromptTokens: 12, Hashes: hashes(1, 2, 3)})
	load(3, 12)
	r2 := selected(t, r, 0, Request{PromptTokens: 4, Hashes: hashes(40)})
	load(4, 16)
	r3 := selected(t, r, 0, Request{PromptTokens: 16, Hashes: hashes(1, 2, 3, 4), Overlaps: []Overlap{{Worker: worker1(0), Device: 4}}})
	load(5, 16)
	for i, step := range []struct {
		of   Decision
		want []int
	}{{r2, []int{4, 12}}, {r3, []int{3, 12}}, {r1, []int{0, 0}}} {
		if !r.Release(0, step.of.Reservation) || r.Release(0, step.of.Reservation) {
			t.Errorf("release %d is not true exactly once", i)
		}
		load(step.want...)
	}
}

// TestBlocksAreCountedByPrefix has Dynamo's rule since 2026-08.
func TestBlocksAreCountedByPrefix(t *testing.T) {
	r := newRouter(t, Config{BlockTokens: 1, Policy: Cost2026}, WorkerSpec{})
	selected(t, r, 0, Request{PromptTokens: 4, Hashes: hashes(1, 2, 4, 5)})
	e, err := r.Explain(0, &Request{PromptTokens: 4, Hashes: hashes(1, 2, 3, 5)})
	if err != nil || e.Candidates[0].Terms[1] != 6 || e.Candidates[0].Shared != 2 {
		t.Errorf("%v blocks with it, %v; want 6", e.Candidates[0].Terms[1], err)
	}
}

func TestProgress(t *testing.T) {
	r := newRouter(t, Config{BlockTokens: 16, Profile: Profile{Token: 1}}, WorkerSpec{})
	d := selected(t, r, 0, Request{PromptTokens: 30, Hashes: hashes(1)})
	want := Load{Worker: worker1(0), Requests: 1, Prefilling: 1, PrefillTokens: 30, Blocks: 1, ContextTokens: 30, Pending: 30 * second}
	step := func(now time.Duration, computed, output int, change func()) {
		t.Helper()
		if !r.Progress(now, d.Reservation, computed, output) {
			t.Fatal("it has ended")
		}
		change()
		if got := loadOf(t, r, worker1(0)); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		if err := r.Check(); err != nil {
			t.Error(err)
		}
	}
	step(0, 10, 0, func() { want.PrefillTokens, want.Pending = 20, 20*second })
	step(4*second, 10, 0, func() { want.Pending = 16 * second }) // no news, but time passes
	step(4*second, 5, 0, func() {})                              // less than before is no news
	step(5*second, 15, 0, func() { want.PrefillTokens, want.Pending = 15, 15*second })
	step(4*second, 15, 0, func() {}) // time does not run back
	step(7*second, 0, 1, func() {    // the first token: 31 of 32
		want.PrefillTokens, want.Pending, want.Prefilling, want.ContextTokens = 0, 0, 0, 31
	})
	step(7*second, 0, 3, func() { want.Blocks, want.ContextTokens = 2, 33 }) // a third block of two begins
	step(7*second, 30, 2, func() {})
	step(7*second, 30, 18, func() { want.ContextTokens = 48 })
	step(7*second, 30, 19, func() { want.Blocks, want.ContextTokens = 3, 49 })
	if !r.Release(8*second, d.Reservation) || r.Progress(8*second, d.Reservation, 1, 20) {
		t.Error("progress after the end")
	}
	if got, want := loadOf(t, r, worker1(0)), (Load{Worker: worker1(0)}); got != want {
		t.Errorf("%+v is left", got)
	}
}

// TestPendingDecays: of 30 tokens that take 100 seconds, 24 are left after 20 seconds, as
// with Dynamo's anchored decay. Only the first prompt of a worker decays.
func TestPendingDecays(t *testing.T) {
	r := newRouter(t, Config{Profile: Profile{Token: 100.0 / 30}}, WorkerSpec{})
	a := selected(t, r, 0, Request{PromptTokens: 30})
	selected(t, r, 0, Request{PromptTokens: 30})
	pending := func(now, want time.Duration) {
		t.Helper()
		l, _ := r.Load(now, worker1(0))
		if diff := l.Pending - want; diff < -1000 || diff > 1000 {
			t.Errorf("at %v %v are pending, want %v", now, l.Pending, want)
		}
	}
	pending(0, 200*second)
	pending(20*second, 180*second)
	pending(500*second, 100*second) // the first is late, the second has not begun
	r.Progress(500*second, a.Reservation, 0, 1)
	pending(500*second, 100*second)
	pending(520*second, 80*second)
}

func TestExpiry(t *testing.T) {
	r := newRouter(t, Config{Expiry: 300 * second}, WorkerSpec{})
	r1 := selected(t, r, 0, Request{PromptTokens: 30, Hashes: hashes(1)})
	r2 := selected(t, r, 0, Request{PromptTokens: 30, Hashes: hashes(1)})
	for _, now := range []time.Duration{20, 31, 250} {
		if got := r.Expire(now*second, nil); got != nil {
			t.Errorf("%v expired at %d s", got, now)
		}
	}
	r.Progress(250*second, r2.Reservation, 0, 0) // progress renews, be it none
	got := r.Expire(310*second, nil)
	if want := []Expired{{r1.Reservation, worker1(0)}}; !slices.Equal(got, want) {
		t.Errorf("%v expired, want %v", got, want)
	}
	if r.Release(310*second, r1.Reservation) || r.Progress(310*second, r1.Reservation, 1, 1) || r.Rollback(310*second, r1.Reservation) {
		t.Error("what expired can be released")
	}
	if got := r.Expire(549*second, nil); got != nil {
		t.Errorf("%v expired before its time", got)
	}
	if got := r.Expire(550*second, nil); len(got) != 1 || loadOf(t, r, worker1(0)) != (Load{Worker: worker1(0)}) {
		t.Errorf("%v expired, %+v is left", got, loadOf(t, r, worker1(0)))
	}
}

func TestWorkersComeAndGo(t *testing.T) {
	r := newRouter(t, Config{Policy: CostLeastLoaded, MaxWorkers: 2}, WorkerSpec{}, WorkerSpec{})
	var size *BlockSizeError
	err := r.Join(0, kv.Rank{Worker: 9}, WorkerSpec{BlockTokens: 64})
	if !errors.As(err, &size) || *size != (BlockSizeError{kv.Rank{Worker: 9}, 64, 16}) || !strings.Contains(err.Error(), "same block size") {
		t.Errorf("another block size: %v", err)
	}
	if err := r.Join(0, kv.Rank{Worker: 9}, WorkerSpec{BlockTokens: 16}); !errors.Is(err, ErrWorkersFull) {
		t.Errorf("a third of two workers: %v", err)
	}
	for _, spec := range []WorkerSpec{{TotalBlocks: -1}, {BatchTokens: -1}, {MaxRequests: -1}, {Profile: Profile{KV: math.NaN()}}} {
		spec.BlockTokens = 16
		if err := r.Join(0, worker1(0), spec); !errors.Is(err, ErrWorkerSpec) {
			t.Errorf("%+v: %v", spec, err)
		}
	}
	req := Request{PromptTokens: 16, Hashes: hashes(1)}
	a, b := selected(t, r, 0, req), selected(t, r, 0, req)
	if a.Worker == b.Worker {
		t.Fatalf("both at %v", a.Worker)
	}
	for _, health := range []Health{Draining, Lost} {
		if err := r.SetHealth(0, a.Worker, health); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			d := selected(t, r, 0, req)
			if d.Worker != b.Worker {
				t.Errorf("a %v worker was chosen", health)
			}
			r.Release(0, d.Reservation)
		}
	}
	if l := loadOf(t, r, a.Worker); l.Requests != 1 || l.Health != Lost {
		t.Errorf("a lost worker has %+v", l)
	}
	if got := r.Leave(0, a.Worker, nil); !slices.Equal(got, []Reservation{a.Reservation}) || r.Release(0, a.Reservation) {
		t.Errorf("%v ended with their worker", got)
	}
	if got := r.Leave(0, a.Worker, nil); got != nil {
		t.Errorf("%v ended twice", got)
	}
	if err := r.SetHealth(0, b.Worker, Draining); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Select(0, &req); !errors.Is(err, ErrNoWorkers) {
		t.Errorf("no healthy worker: %v", err)
	}
	for name, err := range map[string]error{
		"health": r.SetHealth(0, a.Worker, Healthy), "report": r.Report(0, a.Worker, Usage{}),
	} {
		if !errors.Is(err, ErrUnknownWorker) {
			t.Errorf("%s of one that left: %v", name, err)
		}
	}
	// It joins again without reservations, in its former slot.
	if err := r.Join(0, a.Worker, WorkerSpec{BlockTokens: 16}); err != nil {
		t.Fatal(err)
	}
	if l := loadOf(t, r, a.Worker); l != (Load{Worker: a.Worker}) || selected(t, r, 0, req).Worker != a.Worker {
		t.Errorf("a worker that came back has %+v", l)
	}
	// Each rank counts as a worker.
	r.Leave(0, b.Worker, nil)
	if err := r.Join(0, kv.Rank{Worker: a.Worker.Worker, DP: 1}, WorkerSpec{BlockTokens: 16}); err != nil {
		t.Fatal(err)
	}
	if d := selected(t, r, 0, req); d.Worker != (kv.Rank{Worker: a.Worker.Worker, DP: 1}) {
		t.Errorf("%v was chosen", d.Worker)
	}
}

func TestEligibleWorkers(t *testing.T) {
	r := newRouter(t, Config{Policy: CostLeastLoaded}, WorkerSpec{}, WorkerSpec{}, WorkerSpec{})
	pin := worker1(1)
	for range 3 {
		if d := selected(t, r, 0, Request{PromptTokens: 1, Pinned: &pin}); d.Worker != pin || d.Reason != ByPin {
			t.Errorf("%+v, pinned to %v", d, pin)
		}
	}
	for range 4 {
		d := selected(t, r, 0, Request{PromptTokens: 1, Avoid: []kv.Rank{worker1(0), worker1(2), {Worker: 77}}})
		if d.Worker != pin || d.Reason != ByCost {
			t.Errorf("%+v, the others are to be avoided", d)
		}
	}
	for _, req := range []Request{{PromptTokens: 1, Pinned: &kv.Rank{Worker: 77}}, {PromptTokens: 1, Pinned: &pin, Avoid: []kv.Rank{pin}}} {
		if _, err := r.Select(0, &req); !errors.Is(err, ErrNoWorkers) {
			t.Errorf("%+v: %v", req, err)
		}
	}
}

func TestBadRequests(t *testing.T) {
	r := newRouter(t, Config{}, WorkerSpec{})
	nan, negative := DefaultWeights(), DefaultWeights()
	nan.Temperature, negative.Host = math.NaN(), -1
	for name, req := range map[string]Request{
		"PromptTokens is 0":    {},
		"PromptTokens is 1677": {PromptTokens: MaxPromptTokens + 1},
		"another block size":   {PromptTokens: 31, Hashes: hashes(1, 2)},
		"ExpectedOutput is -1": {PromptTokens: 1, ExpectedOutput: -1},
		"Disk:-1":              {PromptTokens: 1, Overlaps: []Overlap{{Disk: -1}}},
		"Temperature is NaN":   {PromptTokens: 1, Weights: &nan},
		"Host is -1":           {PromptTokens: 1, Weights: &negative},
	} {
		for _, err := range []error{errorOf(r.Select(0, &req)), errorOf(r.Wait(0, &req)), errorOf(r.Explain(0, &req))} {
			if !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if m := r.Metrics(); m != (Metrics{}) {
		t.Errorf("after refusals: %+v", m)
	}
}

func errorOf[T any](_ T, err error) error { return err }

func TestBadConfig(t *testing.T) {
	bad := Config{
		BlockTokens: -1, MaxWorkers: 1<<16 + 1, MaxActive: -1, BusyFactor: math.Inf(1), Policy: 99, Order: 99, Expiry: -1, SessionTTL: -1,
		Weights: Weights{Score: math.NaN(), Spread: 9}, Profile: Profile{Step: -1},
	}
	_, err := New(bad)
	for _, want := range []string{"BlockTokens is -1", "MaxWorkers is 65537", "MaxActive", "BusyFactor", "Policy", "Order", "Expiry", "SessionTTL", "Score is NaN", "Spread", "Step is -1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in %v", want, err)
		}
	}
	for _, w := range []Weights{{}, DefaultWeights()} {
		r, err := New(Config{Weights: w})
		if err != nil || r.Weights() != DefaultWeights() {
			t.Errorf("%v, %+v", err, r.Weights())
		}
		if err := r.SetWeights(Weights{Disk: 1.5}); err == nil || r.Weights() != DefaultWeights() {
			t.Errorf("a disk weight of 1.5: %v", err)
		}
	}
}

func TestFullOfReservations(t *testing.T) {
	r := newRouter(t, Config{MaxActive: 2}, WorkerSpec{})
	req := Request{PromptTokens: 1}
	d := selected(t, r, 0, req)
	selected(t, r, 0, req)
	if _, err := r.Select(0, &req); !errors.Is(err, ErrFull) {
		t.Errorf("a third of two: %v", err)
	}
	r.Release(0, d.Reservation)
	if got := selected(t, r, 0, req); got.Reservation == d.Reservation || r.Release(0, d.Reservation) {
		t.Error("a reservation is used again")
	}
}

func TestNames(t *testing.T) {
	for _, p := range Policies() {
		var got Policy
		if err := got.UnmarshalText([]byte(p.String())); err != nil || got != p || len(termNames[p]) > maxTerms {
			t.Errorf("%v: %v, %v", p, got, err)
		}
	}
	if err := new(Policy).UnmarshalText([]byte("2027")); err == nil || !strings.Contains(err.Error(), "credits") {
		t.Error(err)
	}
	var o Order
	var s Spread
	var b Staging
	if o.UnmarshalText([]byte("wspt")) != nil || o != WSPT || s.UnmarshalText([]byte("absolute")) != nil || s != SpreadAbsolute ||
		b.UnmarshalText([]byte("prefix")) != nil || b != ByPrefix || o.UnmarshalText(nil) == nil || s.UnmarshalText(nil) == nil || b.UnmarshalText(nil) == nil {
		t.Error(o, s, b)
	}
}
