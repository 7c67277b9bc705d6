package mocker

import (
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
	r := &Request{ID: id, Tokens: prompt, OutputTokens: output, Output: tokensFrom(2000+id, output)}
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

func newWorker(t testing.TB, cfg Config) *Worker {
	t.Helper()
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func submit(t testing.TB, w *Worker, now time.Duration, r *Request) {
	t.Helper()
	if err := w.Submit(now, r); err != nil {
		t.Fatal(err)
	}
}

// step runs one pass and checks all invariants.
func step(t testing.TB, w *Worker) *Report {
	t.Helper()
	var rep Report
	at, ok := w.Wake()
	if !ok {
		t.Fatal("nothing to do")
	}
	if err := w.Pass(at, &rep); err != nil {
		t.Fatal(err)
	}
	if err := w.Check(); err != nil {
		t.Fatal(err)
	}
	return &rep
}

// drain runs passes until the worker is idle, at most limit, and returns their joint report.
func drain(t testing.TB, w *Worker, limit int) *Report {
	t.Helper()
	var all Report
	for range limit {
		at, ok := w.Wake()
		if !ok {
			return &all
		}
		if err := w.Pass(at, &all); err != nil {
			t.Fatal(err)
		}
		if err := w.Check(); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatalf("not done after %d passes: %+v", limit, w.Usage())
	return nil
}

// world plays a random load on a random worker and checks its reports.
type world struct {
	t         testing.TB
	rng       *rand.Rand
	w         *Worker
	index     *kvindex.Index
	holder    kv.Rank
	seq       uint64
	requests  []*Request
	got       []int // output tokens of each request
	over      []bool
	disturbed []bool // preempted
	total     Report
}

func newWorld(t testing.TB, seed uint64) *world {
	rng := rand.New(rand.NewPCG(seed, 1))
	cfg := Config{
		Blocks: 8 + rng.IntN(60), BlockTokens: 2 + rng.IntN(7), MaxSeqs: 1 + rng.IntN(8),
	}
	cfg.MaxBatchedTokens = cfg.MaxSeqs + rng.IntN(40)
	index, err := kvindex.New(kvindex.Config{})
	if err != nil {
		t.Fatal(err)
	}
	x := &world{t: t, rng: rng, w: newWorker(t, cfg), index: index, holder: kv.Rank{Worker: 7}}
	x.w.limit = []int{x.w.limit, cfg.Blocks - cfg.Blocks/5, cfg.Blocks}[rng.IntN(3)]
	return x
}

// submit sends a request that begins with one of a few stems, or continues an earlier one.
func (x *world) submit() {
	cfg := &x.w.cfg
	most := cfg.Blocks * cfg.BlockTokens
	var prompt []kv.Token
	if n := len(x.requests); n > 0 && x.rng.IntN(2) == 0 {
		r := x.requests[x.rng.IntN(n)]
		prompt = append(append(prompt, r.Tokens...), r.Output...)
	} else {
		prompt = tokensFrom(1+x.rng.IntN(3), 1+x.rng.IntN(most/2))
	}
	for range x.rng.IntN(2 * cfg.BlockTokens) {
		prompt = append(prompt, kv.Token(x.rng.IntN(3)))
	}
	prompt = prompt[:min(len(prompt), most)]
	r := request(len(x.requests), prompt, 1+x.rng.IntN(min(most-len(prompt)+1, 6*cfg.BlockTokens)), cfg.BlockTokens)
	if x.rng.IntN(3) > 0 {
		for i := range r.Output {
			r.Output[i] = kv.Token(x.rng.IntN(2))
		}
	}
	submit(x.t, x.w, x.w.now+min(time.Duration(x.rng.IntN(1000)), max(0, x.w.until-x.w.now)), r)
	x.requests = append(x.requests, r)
	x.got, x.over, x.disturbed = append(x.got, 0), append(x.over, false), append(x.disturbed, false)
}

// pass runs the two halves of Worker.Pass with checks in between.
func (x *world) pass() {
	var rep Report
	x.w.now = x.w.until
	x.w.end(&rep)
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
	x.check()
	x.w.begin()
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
	if held, has := x.index.Held(x.holder), x.w.cache.table.used; held != has {
		x.t.Fatalf("the index holds %d blocks, the worker has %d", held, has)
	}
	for i := range x.w.cache.blocks {
		if b := &x.w.cache.blocks[i]; b.named && !x.index.Holds(x.holder, b.hash) {
			x.t.Fatalf("the index lacks %#x", b.hash)
		}
	}
}

func (x *world) check() {
	if err := x.w.Check(); err != nil {
		x.t.Fatal(err)
	}
	if len(x.requests) == 0 {
		return
	}
	hashes := x.requests[x.rng.IntN(len(x.requests))].Hashes
	found, active := 0, 0 // match by linear search, without its assumption of prefixes
	for _, h := range hashes {
		s := x.w.cache.table.find(x.w.cache.blocks, h)
		if s == none {
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
	var sum Stats
	dry := 0
	for seed := range uint64(300) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			x := newWorld(t, seed)
			x.play(60)
			st := x.w.Stats()
			sum.Cached += st.Cached
			sum.Recomputed += st.Recomputed
			sum.Preemptions += st.Preemptions
			sum.Evicted += st.Evicted
			if st.Preemptions == 0 {
				dry++
			}
		})
	}
	if sum.Cached == 0 || sum.Recomputed == 0 || sum.Preemptions < 1000 || sum.Evicted < 1000 || dry < 20 {
		t.Fatalf("the worlds are too quiet, or too loud: %+v, %d without a preemption", sum, dry)
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
		return fmt.Sprintf("%+v %+v %d", x.total, x.w.Stats(), x.w.now)
	}
	if a, b := run(), run(); a != b {
		t.Fatalf("%s\n%s", a, b)
	}
}
