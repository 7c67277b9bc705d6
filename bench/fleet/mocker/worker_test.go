package mocker

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

func TestConfigFaultsAllAtOnce(t *testing.T) {
	if err := (Config{}).Validate(); err != nil {
		t.Fatal(err)
	}
	d := Config{}.WithDefaults()
	if d.Blocks != 16384 || d.BlockTokens != 64 || d.MaxSeqs != 256 || d.MaxBatchedTokens != 8192 {
		t.Fatalf("%+v", d)
	}
	bad := Config{Blocks: -1, BlockTokens: 1, MaxSeqs: MaxRunning + 1, MaxBatchedTokens: 3, MaxWaiting: -2}
	_, err := New(bad)
	if !errors.Is(err, ErrConfig) {
		t.Fatalf("%v", err)
	}
	for _, field := range []string{"Blocks is", "BlockTokens is", "MaxSeqs is", "MaxBatchedTokens is", "MaxWaiting is"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%q is not in %v", field, err)
		}
	}
	for _, c := range []Config{{BlockTokens: 2}, {Blocks: 1}, {Blocks: MaxBlocks}, {MaxSeqs: 7, MaxBatchedTokens: 7}} {
		if err := c.Validate(); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
	for _, c := range []Config{{Blocks: MaxBlocks + 1}, {MaxSeqs: 8, MaxBatchedTokens: 7}} {
		if err := c.Validate(); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestRefusedRequests(t *testing.T) {
	w := newWorker(t, Config{Blocks: 10, BlockTokens: 4, MaxWaiting: 2})
	change := func(f func(*Request)) *Request {
		r := request(1, tokensFrom(1, 9), 32, 4) // 40 tokens of KV: all 10 blocks
		f(r)
		return r
	}
	for name, c := range map[string]struct {
		want error
		r    *Request
	}{
		"no prompt":       {ErrRequest, change(func(r *Request) { r.Tokens = nil })},
		"no output":       {ErrRequest, change(func(r *Request) { r.OutputTokens = 0 })},
		"some of output":  {ErrRequest, change(func(r *Request) { r.Output = tokensFrom(2, 31) })},
		"no answer":       {ErrRequest, change(func(r *Request) { r.Output = nil })},
		"too large":       {ErrTooLarge, change(func(r *Request) { r.OutputTokens, r.Output = 33, tokensFrom(2, 33) })},
		"endless":         {ErrRequest, change(func(r *Request) { r.OutputTokens = MaxTokens })},
		"hashes missing":  {ErrRequest, change(func(r *Request) { r.Hashes = r.Hashes[:1] })},
		"locals missing":  {ErrRequest, change(func(r *Request) { r.Locals = nil })},
		"hashes of other": {ErrRequest, change(func(r *Request) { r.Hashes[1]++ })},
		"first hash":      {ErrRequest, change(func(r *Request) { r.Hashes[0]++ })},
	} {
		if err := w.Submit(0, c.r); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if _, ok := w.Wake(); ok || w.Usage() != (Usage{}) {
		t.Fatal("a refused request has woken the worker")
	}
	var rep Report
	if err := w.Pass(0, &rep); err == nil {
		t.Error("an idle worker passes")
	}
	submit(t, w, 7, change(func(*Request) {}))
	submit(t, w, 7, change(func(*Request) {}))
	if err := w.Submit(7, change(func(*Request) {})); !errors.Is(err, ErrQueueFull) {
		t.Errorf("%v, want %v", err, ErrQueueFull)
	}
	for _, now := range []time.Duration{6, 8} {
		if err := w.Pass(now, &rep); err == nil {
			t.Errorf("a pass at %v passes", now)
		}
	}
	if w.Submit(6, change(func(*Request) {})) == nil || w.Submit(8, change(func(*Request) {})) == nil {
		t.Error("a submit goes back, or past the pass that is due")
	}
	drain(t, w, 100)
}

func TestEventsAreVisibleWhenThePassEnds(t *testing.T) {
	w := newWorker(t, Config{Blocks: 8, BlockTokens: 4})
	first := request(1, tokensFrom(1, 24), 1, 4)
	submit(t, w, 0, first)
	if rep := step(t, w); len(rep.Events) != 0 || w.Overlap(first.Hashes) != 6 {
		t.Fatalf("as the pass begins: %+v, %d blocks", rep, w.Overlap(first.Hashes))
	}
	rep := step(t, w)
	if len(rep.Events) != 1 || len(rep.Events[0].Blocks) != 6 || rep.Events[0].HasParent || len(rep.Ended) != 1 || rep.Computed != 24 {
		t.Fatalf("as it ends: %+v", rep)
	}
	// Four blocks stay cached; the last two must be evicted for a prompt of six blocks.
	second := request(2, append(slices.Clone(first.Tokens[:16]), tokensFrom(2, 16)...), 1, 4)
	submit(t, w, w.now, second)
	if rep = step(t, w); len(rep.Events) != 0 || w.Overlap(first.Hashes) != 4 {
		t.Fatalf("as the second begins: %+v, %d blocks", rep, w.Overlap(first.Hashes))
	}
	rep = step(t, w)
	if len(rep.Events) != 2 || rep.Cached != 16 || rep.Computed != 16 {
		t.Fatalf("as it ends: %+v", rep)
	}
	gone, stored := rep.Events[0], rep.Events[1]
	if gone.Kind != kv.Removed || !slices.Equal(gone.Hashes, []kv.BlockHash{first.Hashes[5], first.Hashes[4]}) || gone.Seq != 1 {
		t.Fatalf("%+v", gone)
	}
	if stored.Kind != kv.Stored || stored.Parent != first.Hashes[3] || !stored.HasParent || len(stored.Blocks) != 4 || stored.Seq != 2 {
		t.Fatalf("%+v", stored)
	}
}

func TestUncomputedBlocksAreNotFound(t *testing.T) {
	w := newWorker(t, Config{Blocks: 40, BlockTokens: 4, MaxSeqs: 4, MaxBatchedTokens: 32})
	prompt := tokensFrom(1, 80)
	submit(t, w, 0, request(1, prompt, 2, 4))
	step(t, w)
	step(t, w) // 64 tokens are being computed, 16 are left
	if got := w.Overlap(request(2, prompt, 1, 4).Hashes); got != 16 {
		t.Fatalf("%d blocks are found of 64 tokens", got)
	}
	submit(t, w, w.now, request(2, prompt, 2, 4))
	rep := drain(t, w, 10)
	// The other request enters the pass that computes the last 16, after them.
	if rep.Cached != 79 || rep.Computed != 32+16+1 {
		t.Fatalf("%d tokens cached, %d computed", rep.Cached, rep.Computed)
	}
}

func TestNextTurnFindsTheAnswer(t *testing.T) {
	w := newWorker(t, Config{Blocks: 40, BlockTokens: 4})
	first := request(1, tokensFrom(1, 10), 15, 4)
	submit(t, w, 0, first)
	drain(t, w, 20)
	// 24 tokens have KV: 6 blocks, 2 of them in the prompt.
	next := request(2, slices.Concat(first.Tokens, first.Output, tokensFrom(3, 10)), 1, 4)
	submit(t, w, w.now, next)
	if rep := drain(t, w, 5); rep.Cached != 24 || rep.Computed != 35-24 {
		t.Errorf("%d tokens cached, %d computed", rep.Cached, rep.Computed)
	}
}

func TestAdmissionCountsHeldBlocksOnce(t *testing.T) {
	w := newWorker(t, Config{Blocks: 28, BlockTokens: 4})
	w.limit = 28
	for id := range 9 { // 12 blocks shared, 1 of its own each
		submit(t, w, 0, request(id, append(tokensFrom(1, 48), tokensFrom(id+2, 3)...), 1, 4))
	}
	step(t, w)
	if u := w.Usage(); u.Running != 9 || u.UsedBlocks != 21 {
		t.Errorf("%+v", u)
	}
}

func TestWatermark(t *testing.T) {
	w := newWorker(t, Config{Blocks: 10, BlockTokens: 4})
	w.limit = 8
	for id, tokens := range []int{32, 4} {
		submit(t, w, 0, request(id, tokensFrom(id+1, tokens), 1, 4))
	}
	step(t, w)
	if u := w.Usage(); u.Running != 1 || u.UsedBlocks != 8 {
		t.Fatalf("8 of 10 blocks may be active: %+v", u)
	}
	drain(t, w, 10)
	submit(t, w, w.now, request(3, tokensFrom(3, 39), 1, 4)) // would never fit
	if rep := drain(t, w, 3); len(rep.Ended) != 1 {
		t.Fatalf("%+v", rep)
	}
}

func TestCheckFindsFaults(t *testing.T) {
	for name, plant := range map[string]func(w *Worker){
		"holders":      func(w *Worker) { w.cache.blocks[w.running[0].slots[0]].refs++ },
		"lost block":   func(w *Worker) { w.running[0].slots = w.running[0].slots[:1] },
		"active":       func(w *Worker) { w.cache.active-- },
		"capacity":     func(w *Worker) { w.cache.capacity = 2 },
		"name":         func(w *Worker) { w.cache.blocks[w.running[0].slots[0]].hash++ },
		"parent":       func(w *Worker) { w.cache.blocks[w.running[0].slots[1]].parent = none },
		"hanging":      func(w *Worker) { w.cache.blocks[w.running[0].slots[0]].kids++ },
		"line's order": func(w *Worker) { s := w.cache.last; w.cache.removeLRU(s); w.cache.push(s) },
		"line's end":   func(w *Worker) { w.cache.last = w.cache.first },
		"free":         func(w *Worker) { w.cache.free = none },
		"overcomputed": func(w *Worker) { w.running[0].computed += 10 },
		"output":       func(w *Worker) { w.running[0].tokens += 10 },
		"idle":         func(w *Worker) { w.busy = false },
		"waiting":      func(w *Worker) { w.waiting[0].chunk = 1 },
	} {
		w := newWorker(t, Config{Blocks: 12, BlockTokens: 4, MaxSeqs: 1})
		w.limit = 12
		submit(t, w, 0, request(0, tokensFrom(1, 20), 1, 4))
		drain(t, w, 3)
		submit(t, w, w.now, request(1, tokensFrom(2, 10), 5, 4))
		submit(t, w, w.now, request(2, tokensFrom(3, 10), 5, 4))
		step(t, w)
		submit(t, w, w.now, request(3, tokensFrom(4, 3), 5, 4))
		w.cache.drop(w.mustUse(t)) // a free block
		if err := w.Check(); err != nil {
			t.Fatal(err)
		}
		plant(w)
		if w.Check() == nil {
			t.Errorf("%s: not found", name)
		}
	}
}

// mustUse takes an unnamed block that belongs to no sequence.
func (w *Worker) mustUse(t *testing.T) []slot {
	slots, ok := w.cache.use(nil, 1, nil, &w.logs[w.current])
	if !ok {
		t.Fatal("no room")
	}
	return slots
}

// push puts a block at the front of the LRU list.
func (c *cache) push(s slot) {
	c.blocks[s].next = c.first
	c.blocks[c.first].prev = s
	c.first = s
	c.inactive++
}

func TestFailedUseChangesNothing(t *testing.T) {
	c, log := newCache(4), log{}
	var chain []kv.BlockHash
	slots, _ := c.use(nil, 3, nil, &log)
	for i := range slots {
		parent := none
		if i > 0 {
			parent = slots[i-1]
		}
		chain = append(chain, kv.BlockHash(i+1))
		c.name(slots[i], parent, chain[i])
	}
	c.drop(slots)
	held, _ := c.use(chain[:1], 0, nil, &log)
	before := c
	before.blocks = slices.Clone(c.blocks)
	if got, ok := c.use(chain[:2], 3, held, &log); ok || !slices.Equal(got, held) {
		t.Fatalf("5 blocks of 4 are taken: %v", got)
	}
	if !slices.Equal(c.blocks, before.blocks) || c.active != 1 || c.inactive != 2 || len(log.entries) != 0 || c.first != before.first {
		t.Fatalf("a failed use leaves %+v", c)
	}
	got, ok := c.use(chain[:2], 2, held, &log)
	if !ok || len(got) != 5 || !slices.Equal(log.hashes, chain[2:]) {
		t.Fatalf("%v, %v; evicted %v", got, ok, log.hashes)
	}
}

func TestNameOfAnotherBlock(t *testing.T) {
	c, log := newCache(4), log{}
	a, _ := c.use(nil, 1, nil, &log)
	b, _ := c.use(nil, 1, nil, &log)
	if s, fresh := c.name(a[0], none, 5); s != a[0] || !fresh {
		t.Fatalf("%d, %v", s, fresh)
	}
	if s, fresh := c.name(b[0], none, 5); s != a[0] || fresh || c.active != 1 || c.blocks[s].refs != 2 {
		t.Fatalf("%d, %v, %d active", s, fresh, c.active)
	}
	c.drop(a)
	c.drop(a)
	b, _ = c.use(nil, 1, nil, &log)
	if s, fresh := c.name(b[0], none, 5); s != a[0] || fresh || c.active != 1 || c.inactive != 0 {
		t.Fatalf("from the line: %d, %v, %d active", s, fresh, c.active)
	}
}
