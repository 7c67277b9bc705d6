package fleet

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router/kvindex"
)

// request makes a request with this id and prompt, the hashes of its prompt's blocks, and output
// answer tokens, which no other id has.
func request(id int, prompt []kv.Token, output, blockTokens int) *Request {
	r := &Request{ID: id, Tokens: prompt, OutputTokens: output, Answer: tokensFrom(2000+id, output)}
	h := kv.NewHasher(kv.Namespace{}, blockTokens)
	for at := 0; at+blockTokens <= len(prompt); at += blockTokens {
		hash, local := h.Next(prompt[at : at+blockTokens])
		r.Hashes, r.Locals = append(r.Hashes, hash), append(r.Locals, local)
	}
	return r
}

// tokensFrom returns n tokens that differ from those of any other first token.
func tokensFrom(first, n int) []kv.Token {
	tokens := make([]kv.Token, n)
	for i := range tokens {
		tokens[i] = kv.Token(first*1_000_000 + i)
	}
	return tokens
}

// mockSizes are the sizes of a mocker. Zeros mean upstream's defaults.
type mockSizes struct{ Blocks, BlockTokens, MaxSeqs, BatchTokens int }

func mockOf(s mockSizes) *mocker {
	return newMocker(cmp.Or(s.Blocks, 16384), cmp.Or(s.BlockTokens, 64), cmp.Or(s.MaxSeqs, 256), cmp.Or(s.BatchTokens, 8192))
}

// found returns the number of leading blocks that a prompt with these hashes would find now, including
// those that the pass in progress computes.
func (w *mocker) found(hashes []kv.BlockHash) int {
	blocks, _ := w.cache.match(hashes)
	return blocks
}

// mockReport is a Report in which Computed counts only tokens computed for the first time.
type mockReport struct {
	Report
	Recomputed int   // tokens computed again after preemptions
	Preempted  []int // IDs of the requests preempted when the pass began
}

// pass ends the pass in progress of w and adds its outcome to r.
func (r *mockReport) pass(w *mocker) {
	before := w.recomputed
	r.Preempted = append(r.Preempted, w.preempted...)
	w.end(&r.Report)
	r.Recomputed += w.recomputed - before
	r.Computed -= w.recomputed - before
}

func submit(t testing.TB, w *mocker, now time.Duration, r *Request) {
	t.Helper()
	if err := w.Submit(now, r); err != nil {
		t.Fatal(err)
	}
}

// step runs one pass and checks all invariants.
func step(t testing.TB, w *mocker) *mockReport {
	t.Helper()
	if !w.busy {
		t.Fatal("nothing to do")
	}
	return drainPasses(t, w, 1)
}

// drain runs passes until the worker is idle, at most limit, and returns their joint report.
func drain(t testing.TB, w *mocker, limit int) *mockReport {
	t.Helper()
	all := drainPasses(t, w, limit)
	if w.busy {
		t.Fatalf("not done after %d passes: %+v", limit, w.Usage())
	}
	return all
}

// drainPasses runs passes until the worker is idle, at most limit, and checks all invariants after each.
func drainPasses(t testing.TB, w *mocker, limit int) *mockReport {
	t.Helper()
	var all mockReport
	for range limit {
		if !w.busy {
			break
		}
		all.pass(w)
		w.begin(w.until)
		if err := w.check(); err != nil {
			t.Fatal(err)
		}
	}
	return &all
}

// world plays a random load on a random worker and checks its reports.
type world struct {
	t         testing.TB
	rng       *rand.Rand
	w         *mocker
	index     *kvindex.Index
	holder    kv.Rank
	seq       uint64
	requests  []*Request
	got       []int // output tokens of each request
	over      []bool
	disturbed []bool // preempted
	total     mockReport

	preemptions, evictions int
}

func newWorld(t testing.TB, seed uint64) *world {
	rng := rand.New(rand.NewPCG(seed, 1))
	cfg := mockSizes{
		Blocks: 8 + rng.IntN(60), BlockTokens: 2 + rng.IntN(7), MaxSeqs: 1 + rng.IntN(8),
	}
	cfg.BatchTokens = cfg.MaxSeqs + rng.IntN(40)
	index, err := kvindex.New(kvindex.Config{})
	if err != nil {
		t.Fatal(err)
	}
	x := &world{t: t, rng: rng, w: mockOf(cfg), index: index, holder: kv.Rank{Worker: 7}}
	x.w.limit = []int{x.w.limit, cfg.Blocks - cfg.Blocks/5, cfg.Blocks}[rng.IntN(3)]
	return x
}

// submit sends a request that begins with one of a few stems, or continues an earlier one.
func (x *world) submit() {
	blockTokens := x.w.blockTokens
	most := x.w.cache.capacity * blockTokens
	var prompt []kv.Token
	if n := len(x.requests); n > 0 && x.rng.IntN(2) == 0 {
		r := x.requests[x.rng.IntN(n)]
		prompt = append(append(prompt, r.Tokens...), r.Answer...)
	} else {
		prompt = tokensFrom(1+x.rng.IntN(3), 1+x.rng.IntN(most/2))
	}
	for range x.rng.IntN(2 * blockTokens) {
		prompt = append(prompt, kv.Token(x.rng.IntN(3)))
	}
	prompt = prompt[:min(len(prompt), most)]
	r := request(len(x.requests), prompt, 1+x.rng.IntN(min(most-len(prompt)+1, 6*blockTokens)), blockTokens)
	if x.rng.IntN(3) > 0 {
		for i := range r.Answer {
			r.Answer[i] = kv.Token(x.rng.IntN(2))
		}
	}
	submit(x.t, x.w, x.w.until, r)
	x.requests = append(x.requests, r)
	x.got, x.over, x.disturbed = append(x.got, 0), append(x.over, false), append(x.disturbed, false)
}

// pass runs the two halves of mocker.Pass with checks in between.
func (x *world) pass() {
	var rep mockReport
	rep.pass(x.w)
	for _, id := range rep.Tokens {
		if x.got[id]++; x.over[id] {
			x.t.Fatalf("request %d outputs after its end", id)
		}
	}
	for _, id := range rep.Ended {
		if x.over[id] || x.got[id] != x.requests[id].OutputTokens {
			x.t.Fatalf("request %d ends with %d of %d tokens, over before: %v", id, x.got[id], x.requests[id].OutputTokens, x.over[id])
		}
		x.over[id] = true
	}
	for _, id := range rep.Preempted {
		x.disturbed[id] = true
	}
	x.follow(rep.Events)
	x.total.Computed += rep.Computed
	x.total.Cached += rep.Cached
	x.total.Recomputed += rep.Recomputed
	x.preemptions += len(rep.Preempted)
	for _, e := range rep.Events {
		x.evictions += len(e.Hashes)
	}
	x.check()
	x.w.begin(x.w.until)
	x.check()
}

// follow applies events to an index, which then must hold exactly the worker's blocks.
func (x *world) follow(events []kv.Event) {
	for _, e := range events {
		if e.Seq != x.seq {
			x.t.Fatalf("event %d, want %d", e.Seq, x.seq)
		}
		x.seq++
		if e.Kind == kv.Removed {
			for _, h := range e.Hashes { // one by one, so that no removal implies that of another block
				if !x.index.Holds(x.holder, h) {
					x.t.Fatalf("removed %#x is not held", h)
				}
				if before := x.index.Held(x.holder); x.index.Remove(x.holder, []kv.BlockHash{h}) != 1 || x.index.Held(x.holder) != before-1 {
					x.t.Fatalf("removing %#x takes %d blocks", h, before-x.index.Held(x.holder))
				}
			}
			continue
		}
		before := x.index.Held(x.holder)
		if err := x.index.Apply(x.holder, e); err != nil {
			x.t.Fatalf("event %+v: %v", e, err)
		}
		if n := x.index.Held(x.holder) - before; n != len(e.Blocks) {
			x.t.Fatalf("%d blocks stored, %d of them new", len(e.Blocks), n)
		}
	}
	if held, has := x.index.Held(x.holder), len(x.w.cache.named); held != has {
		x.t.Fatalf("the index holds %d blocks, the worker has %d", held, has)
	}
	for hash := range x.w.cache.named {
		if !x.index.Holds(x.holder, hash) {
			x.t.Fatalf("the index lacks %#x", hash)
		}
	}
}

func (x *world) check() {
	if err := x.w.check(); err != nil {
		x.t.Fatal(err)
	}
	if len(x.requests) == 0 {
		return
	}
	hashes := x.requests[x.rng.IntN(len(x.requests))].Hashes
	found, active := 0, 0 // match by linear search, without its assumption of prefixes
	for _, h := range hashes {
		s := x.w.cache.named[h]
		if s == 0 {
			break
		}
		found++
		if x.w.cache.blocks[s].refs > 0 {
			active++
		}
	}
	if f, a := x.w.cache.match(hashes); f != found || a != active {
		x.t.Fatalf("match gives %d blocks, %d active, want %d, %d", f, a, found, active)
	}
}

func (x *world) play(requests int) {
	for left := requests; left > 0; {
		switch n := x.rng.IntN(8); {
		case n == 0:
			x.submit()
			left--
		case x.w.busy:
			x.pass()
		}
	}
	for limit := 0; x.w.busy; limit++ {
		x.pass()
		if limit > 200_000 {
			x.t.Fatalf("no end: %+v", x.w.Usage())
		}
	}
	want, disturbed := 0, false
	for id, over := range x.over {
		if !over {
			x.t.Fatalf("request %d has no end", id)
		}
		want += len(x.requests[id].Tokens)
		disturbed = disturbed || x.disturbed[id]
	}
	if sum := x.total.Cached + x.total.Computed; sum > want || sum != want && !disturbed {
		x.t.Fatalf("%d tokens cached and %d computed of %d in prompts", x.total.Cached, x.total.Computed, want)
	}
	if u := x.w.Usage(); u != (Usage{}) {
		x.t.Fatalf("at the end %+v", u)
	}
}

func TestRandomWorlds(t *testing.T) {
	cached, recomputed, preemptions, evictions, dry := 0, 0, 0, 0, 0
	for seed := range uint64(300) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			x := newWorld(t, seed)
			x.play(60)
			cached += x.total.Cached
			recomputed += x.total.Recomputed
			preemptions += x.preemptions
			evictions += x.evictions
			if x.preemptions == 0 {
				dry++
			}
		})
	}
	if cached == 0 || recomputed == 0 || preemptions < 1000 || evictions < 1000 || dry < 20 {
		t.Fatalf("the worlds are too quiet, or too loud: %d cached, %d recomputed, %d preemptions, %d evictions, %d without a preemption", cached, recomputed, preemptions, evictions, dry)
	}
}

func FuzzWorld(f *testing.F) {
	f.Add(uint64(1), uint8(20))
	f.Add(uint64(1<<40), uint8(90))
	f.Fuzz(func(t *testing.T, seed uint64, requests uint8) {
		newWorld(t, seed).play(int(requests))
	})
}

func TestEqualCallsGiveEqualReports(t *testing.T) {
	run := func() (log string) {
		x := newWorld(t, 12)
		x.play(60)
		return fmt.Sprintf("%+v %d %d %d", x.total, x.preemptions, x.evictions, x.w.until)
	}
	if a, b := run(), run(); a != b {
		t.Fatalf("%s\n%s", a, b)
	}
}
