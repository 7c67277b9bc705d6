package fleet

import (
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

func TestTooLargeRequestIsRefused(t *testing.T) {
	w := mockOf(mockSizes{Blocks: 10, BlockTokens: 4})
	if err := w.Submit(0, request(1, tokensFrom(1, 9), 33, 4)); err == nil {
		t.Fatal("41 tokens of KV are accepted")
	}
	if _, ok := w.Wake(); ok || w.Usage() != (Usage{}) {
		t.Fatal("a refused request has woken the worker")
	}
	submit(t, w, 7, request(1, tokensFrom(1, 9), 32, 4)) // 40 tokens of KV: all 10 blocks
	if at, ok := w.Wake(); !ok || at != 7 {
		t.Fatalf("wakes at %v, %v", at, ok)
	}
	drain(t, w, 100)
}

func TestEventsAreVisibleWhenThePassEnds(t *testing.T) {
	w := mockOf(mockSizes{Blocks: 8, BlockTokens: 4})
	first := request(1, tokensFrom(1, 24), 1, 4)
	submit(t, w, 0, first)
	if rep := step(t, w); len(rep.Events) != 0 || w.found(first.Hashes) != 6 {
		t.Fatalf("as the pass begins: %+v, %d blocks", rep, w.found(first.Hashes))
	}
	rep := step(t, w)
	if len(rep.Events) != 1 || len(rep.Events[0].Blocks) != 6 || rep.Events[0].HasParent || len(rep.Ended) != 1 || rep.Computed != 24 {
		t.Fatalf("as it ends: %+v", rep)
	}
	// Four blocks stay cached; the last two must be evicted for a prompt of six blocks.
	second := request(2, append(slices.Clone(first.Tokens[:16]), tokensFrom(2, 16)...), 1, 4)
	submit(t, w, w.until, second)
	if rep = step(t, w); len(rep.Events) != 0 || w.found(first.Hashes) != 4 {
		t.Fatalf("as the second begins: %+v, %d blocks", rep, w.found(first.Hashes))
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
	w := mockOf(mockSizes{Blocks: 40, BlockTokens: 4, MaxSeqs: 4, BatchTokens: 32})
	prompt := tokensFrom(1, 80)
	submit(t, w, 0, request(1, prompt, 2, 4))
	step(t, w)
	step(t, w) // 64 tokens are being computed, 16 are left
	if got := w.found(request(2, prompt, 1, 4).Hashes); got != 16 {
		t.Fatalf("%d blocks are found of 64 tokens", got)
	}
	submit(t, w, w.until, request(2, prompt, 2, 4))
	rep := drain(t, w, 10)
	// The other request enters the pass that computes the last 16, after them.
	if rep.Cached != 79 || rep.Computed != 32+16+1 {
		t.Fatalf("%d tokens cached, %d computed", rep.Cached, rep.Computed)
	}
}

func TestNextTurnFindsTheAnswer(t *testing.T) {
	w := mockOf(mockSizes{Blocks: 40, BlockTokens: 4})
	first := request(1, tokensFrom(1, 10), 15, 4)
	submit(t, w, 0, first)
	drain(t, w, 20)
	// 24 tokens have KV: 6 blocks, 2 of them in the prompt.
	next := request(2, slices.Concat(first.Tokens, first.Answer, tokensFrom(3, 10)), 1, 4)
	submit(t, w, w.until, next)
	if rep := drain(t, w, 5); rep.Cached != 24 || rep.Computed != 35-24 {
		t.Errorf("%d tokens cached, %d computed", rep.Cached, rep.Computed)
	}
}

func TestAdmissionCountsHeldBlocksOnce(t *testing.T) {
	w := mockOf(mockSizes{Blocks: 28, BlockTokens: 4})
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
	w := mockOf(mockSizes{Blocks: 10, BlockTokens: 4})
	w.limit = 8
	for id, tokens := range []int{32, 4} {
		submit(t, w, 0, request(id, tokensFrom(id+1, tokens), 1, 4))
	}
	step(t, w)
	if u := w.Usage(); u.Running != 1 || u.UsedBlocks != 8 {
		t.Fatalf("8 of 10 blocks may be active: %+v", u)
	}
	drain(t, w, 10)
	submit(t, w, w.until, request(3, tokensFrom(3, 39), 1, 4)) // would never fit
	if rep := drain(t, w, 3); len(rep.Ended) != 1 {
		t.Fatalf("%+v", rep)
	}
}

func TestCheckFindsFaults(t *testing.T) {
	for name, plant := range map[string]func(w *mocker){
		"holders":      func(w *mocker) { w.cache.blocks[w.running[0].slots[0]].refs++ },
		"lost block":   func(w *mocker) { w.running[0].slots = w.running[0].slots[:1] },
		"active":       func(w *mocker) { w.cache.active-- },
		"inactive":     func(w *mocker) { w.cache.inactive-- },
		"capacity":     func(w *mocker) { w.cache.capacity = 2 },
		"name":         func(w *mocker) { w.cache.blocks[w.running[0].slots[0]].hash++ },
		"parent":       func(w *mocker) { w.cache.blocks[w.running[0].slots[1]].parent = 0 },
		"hanging":      func(w *mocker) { w.cache.blocks[w.running[0].slots[0]].kids++ },
		"ring's order": func(w *mocker) { w.cache.rotate() },
		"ring's end":   func(w *mocker) { w.cache.blocks[0].prev = w.cache.blocks[0].next },
		"free":         func(w *mocker) { w.cache.free = append(w.cache.free, w.running[0].slots[0]) },
		"lost free":    func(w *mocker) { w.cache.free = nil },
		"overcomputed": func(w *mocker) { w.running[0].computed += 10 },
		"output":       func(w *mocker) { w.running[0].tokens += 10 },
		"idle":         func(w *mocker) { w.busy = false },
		"waiting":      func(w *mocker) { w.waiting[0].chunk = 1 },
	} {
		w := mockOf(mockSizes{Blocks: 12, BlockTokens: 4, MaxSeqs: 1})
		w.limit = 12
		submit(t, w, 0, request(0, tokensFrom(1, 20), 1, 4))
		drain(t, w, 3)
		submit(t, w, w.until, request(1, tokensFrom(2, 10), 5, 4))
		submit(t, w, w.until, request(2, tokensFrom(3, 10), 5, 4))
		step(t, w)
		submit(t, w, w.until, request(3, tokensFrom(4, 3), 5, 4))
		slots, _ := w.cache.use(nil, 1, nil)
		w.cache.drop(slots) // a free block
		if err := w.check(); err != nil {
			t.Fatal(err)
		}
		plant(w)
		if w.check() == nil {
			t.Errorf("%s: not found", name)
		}
	}
}

// rotate makes the most recently used inactive block the least recently used one.
func (c *mockCache) rotate() {
	s, first := c.blocks[0].prev, c.blocks[0].next
	b := &c.blocks[s]
	c.unlink(b)
	c.inactive++
	b.prev, b.next = 0, first
	c.blocks[0].next, c.blocks[first].prev = s, s
}

func TestFailedUseChangesNothing(t *testing.T) {
	c := newMockCache(4)
	var chain []kv.BlockHash
	blocks, _ := c.use(nil, 3, nil)
	parent := slot(0)
	for i, s := range blocks {
		chain = append(chain, kv.BlockHash(i+1))
		parent = c.name(s, parent, chain[i], 0)
	}
	c.drop(blocks)
	held, _ := c.use(chain[:1], 0, nil)
	before := slices.Clone(c.blocks)
	c.events = nil
	if got, ok := c.use(chain[:2], 3, held); ok || !slices.Equal(got, held) {
		t.Fatalf("5 blocks of 4 are taken: %v", got)
	}
	if !slices.Equal(c.blocks, before) || c.active != 1 || c.inactive != 2 || len(c.events) != 0 {
		t.Fatalf("a failed use leaves %+v", c)
	}
	got, ok := c.use(chain[:2], 2, held)
	if !ok || len(got) != 5 || len(c.events) != 1 || !slices.Equal(c.events[0].Hashes, chain[2:]) {
		t.Fatalf("%v, %v; evicted %v", got, ok, c.events)
	}
}

func TestNameOfAnotherBlock(t *testing.T) {
	c := newMockCache(4)
	a, _ := c.use(nil, 1, nil)
	b, _ := c.use(nil, 1, nil)
	if got := c.name(a[0], 0, 5, 0); got != a[0] || len(c.events) != 1 {
		t.Fatalf("%d, %+v", got, c.events)
	}
	if got := c.name(b[0], 0, 5, 0); got != a[0] || len(c.events[0].Blocks) != 1 || c.active != 1 || c.blocks[got].refs != 2 {
		t.Fatalf("%d, %d active", got, c.active)
	}
	c.drop(a)
	c.drop(a)
	b, _ = c.use(nil, 1, nil)
	if got := c.name(b[0], 0, 5, 0); got != a[0] || len(c.events[0].Blocks) != 1 || c.active != 1 || c.inactive != 0 {
		t.Fatalf("from the ring: %d, %d active", got, c.active)
	}
}
