package router

import (
	"container/heap"
	lru "container/list"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/bench"
	"github.com/coppice-llm/coppice/internal/invariants"
	"github.com/coppice-llm/coppice/kv"
)

// This file has a small fleet in virtual time that compares policies. Its workers compute
// prompts in order of arrival, in chunks beside all decoding rows. Each has an LRU of
// blocks, and the router sees its contents at once.

type fleetConfig struct {
	policy   Policy
	weights  Weights
	workers  int
	rate     float64 // requests per second, of all
	blocks   int     // that a worker caches
	believed Profile // of the router; the workers have the default
	requests []fleetRequest
}

type fleetRequest struct {
	hashes []kv.BlockHash
	tokens int
	output int
}

type fleetJob struct {
	req      *fleetRequest
	res      Reservation
	arrived  time.Duration
	left     int // tokens of the prompt
	computed int // with the cached ones
	outputs  int
}

type fleetWorker struct {
	prompts  []*fleetJob
	rows     []*fleetJob
	stepping bool
	chunk    []int // tokens of each of the first prompts in this step
	cache    map[kv.BlockHash]*lru.Element
	order    *lru.List
}

func (w *fleetWorker) cached(hashes []kv.BlockHash) int {
	for i, h := range hashes {
		if w.cache[h] == nil {
			return i
		}
	}
	return len(hashes)
}

// store makes blocks the most recently used ones, the first of a prompt last, so that
// leaves are evicted first.
func (w *fleetWorker) store(hashes []kv.BlockHash, room int) {
	for i := len(hashes) - 1; i >= 0; i-- {
		if e := w.cache[hashes[i]]; e != nil {
			w.order.MoveToBack(e)
		} else {
			w.cache[hashes[i]] = w.order.PushBack(hashes[i])
		}
	}
	for w.order.Len() > room {
		delete(w.cache, w.order.Remove(w.order.Front()).(kv.BlockHash))
	}
}

type fleetEvent struct {
	at     time.Duration
	seq    int
	worker int // -1: a request arrives
}

type fleetEvents []fleetEvent

func (e fleetEvents) Len() int { return len(e) }
func (e fleetEvents) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e fleetEvents) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *fleetEvents) Push(x any)   { *e = append(*e, x.(fleetEvent)) }
func (e *fleetEvents) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

type fleetResult struct {
	hitRate, ttft50, ttft99, itl50, itl99, balance float64
}

func (r fleetResult) String() string {
	return fmt.Sprintf("hit %.3f ttft p50 %.3f p99 %.3f itl p50 %.4f p99 %.4f most/mean %.2f", r.hitRate, r.ttft50, r.ttft99, r.itl50, r.itl99, r.balance)
}

const fleetBatch = 2048

func playFleet(t testing.TB, cfg fleetConfig) fleetResult {
	specs := make([]WorkerSpec, cfg.workers)
	for i := range specs {
		specs[i] = WorkerSpec{TotalBlocks: cfg.blocks, BatchTokens: fleetBatch, Profile: cfg.believed}
	}
	r := newRouter(t, Config{Policy: cfg.policy, Weights: cfg.weights, Seed: 1, ExpectedOutput: 200}, specs...)
	profile := DefaultProfile()
	rng := rand.New(rand.NewPCG(9, 9))
	workers := make([]fleetWorker, cfg.workers)
	for i := range workers {
		workers[i] = fleetWorker{cache: map[kv.BlockHash]*lru.Element{}, order: lru.New()}
	}
	var events fleetEvents
	seq := 0
	push := func(at time.Duration, worker int) {
		heap.Push(&events, fleetEvent{at, seq, worker})
		seq++
	}
	var ttfts, itls []float64
	hits, tokens := 0, 0
	work := make([]float64, cfg.workers)
	begin := func(now time.Duration, i int) {
		w := &workers[i]
		if w.stepping || len(w.prompts)+len(w.rows) == 0 {
			return
		}
		seconds, context := 0.0, 0
		for _, j := range w.rows {
			context += j.req.tokens + j.outputs
		}
		seconds = profile.decode(float64(len(w.rows)), float64(context))
		w.chunk = w.chunk[:0]
		room := fleetBatch
		for _, j := range w.prompts {
			if room == 0 {
				break
			}
			n := min(room, j.left)
			room -= n
			w.chunk = append(w.chunk, n)
			seconds += profile.prefill(float64(n), float64(j.computed))
		}
		w.stepping = true
		work[i] += seconds
		push(now+time.Duration(seconds*1e9), i)
	}
	finish := func(now time.Duration, i int) {
		w := &workers[i]
		w.stepping = false
		rows := w.rows[:0:0]
		for _, j := range w.rows {
			if j.outputs++; j.outputs >= j.req.output {
				itls = append(itls, (now-j.arrived).Seconds()/float64(j.req.output))
				r.Release(now, j.res)
				continue
			}
			if j.outputs%32 == 0 {
				r.Progress(now, j.res, 0, j.outputs)
			}
			rows = append(rows, j)
		}
		done := 0
		for k, n := range w.chunk {
			j := w.prompts[k]
			j.left -= n
			j.computed += n
			r.Progress(now, j.res, j.req.tokens-j.left, 0)
			if j.left == 0 {
				done++
				ttfts = append(ttfts, (now - j.arrived).Seconds())
				j.arrived, j.outputs = now, 1
				r.Progress(now, j.res, 0, 1)
				w.store(j.req.hashes, cfg.blocks)
				rows = append(rows, j)
			}
		}
		w.prompts, w.rows = w.prompts[done:], rows
	}
	next := 0
	push(0, -1)
	for len(events) > 0 {
		e := heap.Pop(&events).(fleetEvent)
		if e.worker >= 0 {
			finish(e.at, e.worker)
			begin(e.at, e.worker)
			continue
		}
		q := &cfg.requests[next]
		if next++; next < len(cfg.requests) {
			push(e.at+time.Duration(rng.ExpFloat64()/cfg.rate*1e9), -1)
		}
		req := Request{PromptTokens: q.tokens, Hashes: q.hashes}
		for i := range workers {
			if n := workers[i].cached(q.hashes); n > 0 {
				req.Overlaps = append(req.Overlaps, Overlap{Worker: worker1(i), Device: n})
			}
		}
		d, err := r.Select(e.at, &req)
		if err != nil {
			t.Fatal(err)
		}
		i := int(d.Worker.Worker) - 1
		have := min(workers[i].cached(q.hashes)*16, q.tokens-1)
		hits += have
		tokens += q.tokens
		workers[i].store(q.hashes[:have/16], cfg.blocks)
		workers[i].prompts = append(workers[i].prompts, &fleetJob{req: q, res: d.Reservation, arrived: e.at, left: q.tokens - have, computed: have})
		begin(e.at, i)
	}
	if m := r.Metrics(); m.Active != 0 || len(ttfts) != len(cfg.requests) {
		t.Fatalf("%d active at the end, %d served", m.Active, len(ttfts))
	}
	at := func(s []float64, q float64) float64 {
		slices.Sort(s)
		return s[int(q*float64(len(s)-1))]
	}
	sum := 0.0
	for _, s := range work {
		sum += s
	}
	return fleetResult{float64(hits) / float64(tokens), at(ttfts, 0.5), at(ttfts, 0.99), at(itls, 0.5), at(itls, 0.99), slices.Max(work) / (sum / float64(len(work)))}
}

func fleetRequests(t testing.TB, kind bench.TraceKind, n int) (all []fleetRequest) {
	trace, err := bench.GenerateTrace(bench.TraceConfig{Kind: kind, Requests: n, Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(4, 4))
	for i := range n {
		tokens := trace.Request(i)
		q := fleetRequest{tokens: len(tokens), output: 1 + min(1500, int(math.Exp(rng.NormFloat64()*0.8+4.9)))}
		h := kv.NewHasher(kv.Namespace{}, 16)
		for ; len(tokens) >= 16; tokens = tokens[16:] {
			hash, _ := h.Next(tokens[:16])
			q.hashes = append(q.hashes, hash)
		}
		all = append(all, q)
	}
	return all
}

// TestLatencyWithAWrongProfile: with a profile that is wrong by a factor of two, prompts
// too slow and the rest too fast or the reverse, CostLatency is still better than policies
// without a profile.
func TestLatencyWithAWrongProfile(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the walks take too long for a fleet")
	}
	right := DefaultProfile()
	cfg := fleetConfig{workers: 8, rate: 88, blocks: 12000, requests: fleetRequests(t, bench.TraceChat, 2500)}
	best := math.Inf(1)
	for _, policy := range []Policy{Cost2026, CostCredits, CostRoundRobin, CostLeastLoaded, CostPrefixHash} {
		cfg.policy = policy
		best = min(best, playFleet(t, cfg).ttft99)
	}
	cfg.policy = CostLatency
	for _, factor := range []float64{0.5, 2} {
		cfg.believed = Profile{
			Step: right.Step / factor, Token: right.Token * factor, Pair: right.Pair * factor, Row: right.Row / factor, KV: right.KV / factor,
		}
		got := playFleet(t, cfg)
		t.Logf("prompts x%v, all else x%v: %v", factor, 1/factor, got)
		if got.ttft99 > best {
			t.Errorf("prompts believed x%v: p99 of TTFT is %.3f s, %.3f s of the best other", factor, got.ttft99, best)
		}
	}
}

// TestLatencyBeatsTheOthers: in virtual time, so the figures are the same on every
// run. -v shows them.
func TestLatencyBeatsTheOthers(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the walks take too long for a fleet")
	}
	for _, tc := range []struct {
		kind bench.TraceKind
		rate float64
		// slack is the factor by which the p99 of TTFT may exceed the lowest one of the
		// other policies.
		slack float64
	}{
		{bench.TraceChat, 48, 1}, {bench.TraceChat, 88, 1}, {bench.TraceFewShot, 88, 1.05}, {bench.TraceTree, 48, 1}, {bench.TraceTree, 88, 1},
		{bench.TraceUnique, 48, 1.05}, // nothing to gain by prefixes: any balance will do
	} {
		cfg := fleetConfig{workers: 8, rate: tc.rate, blocks: 12000, requests: fleetRequests(t, tc.kind, 1200)}
		ours := playFleet(t, cfg)
		t.Logf("%v at %v/s: %-12v %v", tc.kind, tc.rate, cfg.policy, ours)
		for _, policy := range Policies()[1:] {
			cfg.policy = policy
			other := playFleet(t, cfg)
			t.Logf("%v at %v/s: %-12v %v", tc.kind, tc.rate, policy, other)
			if ours.ttft99 > tc.slack*other.ttft99 {
				t.Errorf("%v at %v/s: p99 of TTFT is %.3f s, %.3f s under %v", tc.kind, tc.rate, ours.ttft99, other.ttft99, policy)
			}
		}
	}
}
