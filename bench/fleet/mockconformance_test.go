package fleet

import (
	"fmt"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// This file has the values of the unit tests of upstream's mocker (lib/mocker, formerly
// lib/llm/src/mocker).

// full makes the block named hash active and returns it, as upstream's Use of one block does. If
// there is no such block, it makes one. It returns false if there is no room.
func full(c *mockCache, hash kv.BlockHash) (slot, bool) {
	if found, _ := c.match([]kv.BlockHash{hash}); found == 1 {
		blocks, ok := c.use([]kv.BlockHash{hash}, 0, nil)
		if !ok {
			return 0, false
		}
		return blocks[0], true
	}
	blocks, ok := c.use(nil, 1, nil)
	if !ok {
		return 0, false
	}
	return c.name(blocks[0], 0, hash, 0), true
}

func TestUseUpToCapacity(t *testing.T) {
	c := newMockCache(10)
	for h := range kv.BlockHash(10) {
		if _, ok := full(&c, h); !ok {
			t.Fatalf("block %d of 10 is refused", h)
		}
	}
	if _, ok := full(&c, 10); ok || c.active != 10 {
		t.Fatalf("block 10 is taken beside %d", c.active)
	}
}

func TestLifeOfBlocks(t *testing.T) {
	c := newMockCache(10)
	use := func(h kv.BlockHash) slot {
		t.Helper()
		s, ok := full(&c, h)
		if !ok {
			t.Fatalf("block %d is refused", h)
		}
		return s
	}
	refs := func(want map[kv.BlockHash]int32, inactive ...kv.BlockHash) {
		t.Helper()
		n := 0
		for h := range kv.BlockHash(20) {
			s := c.named[h]
			if s == 0 {
				continue
			}
			if n++; c.blocks[s].refs != want[h] {
				t.Fatalf("block %d has %d holders, want %d", h, c.blocks[s].refs, want[h])
			}
		}
		var line []kv.BlockHash
		for s := c.blocks[0].next; s != 0; s = c.blocks[s].next {
			line = append(line, c.blocks[s].hash)
		}
		if n != len(want)+len(inactive) || !slices.Equal(line, inactive) || c.active != len(want) {
			t.Fatalf("%d blocks, inactive %v, %d active; want %v and %v", n, line, c.active, want, inactive)
		}
	}
	var first, second []slot
	for h := range kv.BlockHash(5) {
		first = append(first, use(h))
	}
	for _, h := range []kv.BlockHash{0, 1, 5, 6} {
		second = append(second, use(h))
	}
	refs(map[kv.BlockHash]int32{0: 2, 1: 2, 2: 1, 3: 1, 4: 1, 5: 1, 6: 1})
	c.drop(first)
	refs(map[kv.BlockHash]int32{0: 1, 1: 1, 5: 1, 6: 1}, 4, 3, 2)
	c.drop(second)
	refs(map[kv.BlockHash]int32{}, 4, 3, 2, 6, 5, 1, 0)
	for _, h := range []kv.BlockHash{0, 1, 2, 7, 8, 9} {
		use(h)
	}
	refs(map[kv.BlockHash]int32{0: 1, 1: 1, 2: 1, 7: 1, 8: 1, 9: 1}, 4, 3, 6, 5)
	if c.events[len(c.events)-1].Kind == kv.Removed {
		t.Fatalf("evicted of a cache just full: %+v", c.events)
	}
	use(10)
	refs(map[kv.BlockHash]int32{0: 1, 1: 1, 2: 1, 7: 1, 8: 1, 9: 1, 10: 1}, 3, 6, 5)
}

// Upstream's evictor can also insert at the front of its list; nothing here needs this.
func TestEvictionIsLeastRecentlyUsed(t *testing.T) {
	c := newMockCache(5)
	for _, h := range []kv.BlockHash{4, 3, 2, 1, 5, 1, 4, 2} {
		s, ok := full(&c, h)
		if !ok {
			t.Fatalf("no room for %d", h)
		}
		c.drop([]slot{s})
	}
	for range 5 {
		c.evict()
	}
	evicted := c.events[len(c.events)-1].Hashes
	if want := []kv.BlockHash{3, 5, 1, 4, 2}; !slices.Equal(evicted, want) || c.blocks[0].next != 0 {
		t.Fatalf("evicted %v, want %v", evicted, want)
	}
}

func TestSequenceTokenByToken(t *testing.T) {
	w := mockOf(mockSizes{Blocks: 10, BlockTokens: 16})
	r := request(1, tokensFrom(1, 15), 60, 16)
	r.Answer = tokensFrom(2, 60)
	hashes := request(2, append(slices.Clone(r.Tokens), r.Answer...), 1, 16).Hashes
	submit(t, w, 0, r)
	step(t, w) // begins the first pass
	if u := w.Usage(); u.UsedBlocks != 1 {
		t.Fatalf("15 tokens are in %d blocks", u.UsedBlocks)
	}
	for tokens := 16; tokens <= 49; tokens++ {
		rep := step(t, w)
		if u := w.Usage(); len(rep.Tokens) != 1 || u.UsedBlocks != kv.CeilPages(tokens, 16) {
			t.Fatalf("%d tokens: %d new, in %d blocks", tokens, len(rep.Tokens), u.UsedBlocks)
		}
		if tokens%16 != 1 {
			if len(rep.Events) != 0 {
				t.Fatalf("%d tokens: %+v", tokens, rep.Events)
			}
			continue
		}
		full := tokens / 16
		e := rep.Events[0]
		if len(rep.Events) != 1 || e.Kind != kv.Stored || len(e.Blocks) != 1 || e.Blocks[0].Hash != hashes[full-1] ||
			e.HasParent != (full > 1) || full > 1 && e.Parent != hashes[full-2] {
			t.Fatalf("%d tokens: %+v", tokens, rep.Events)
		}
	}
	s := w.running[0]
	w.preempt()
	if s.output() != 34 || s.tokens != 49 || w.cache.active != 0 {
		t.Fatalf("preempted with %d tokens of output, %d in all, %d blocks active", s.output(), s.tokens, w.cache.active)
	}
}

func TestTwoHundredRequestsOnFiveHundredBlocks(t *testing.T) {
	preemptions := 0
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprintf("shared=%v", shared), func(t *testing.T) {
			w := mockOf(mockSizes{Blocks: 500, BlockTokens: 64})
			for id := range 200 {
				prompt := tokensFrom(id+1, 1000)
				if shared {
					copy(prompt, tokensFrom(0, 500))
				}
				submit(t, w, 0, request(id, prompt, 100, 64))
			}
			all := drain(t, w, 50_000)
			if len(all.Tokens) != 20_000 || len(all.Ended) != 200 || w.Usage() != (Usage{}) {
				t.Fatalf("%d tokens, %d ends, then %+v", len(all.Tokens), len(all.Ended), w.Usage())
			}
			// 500 shared tokens are 7 full blocks. Blocks evicted in between are computed again.
			if want := 199 * 7 * 64; shared != (all.Cached > 0) || all.Cached > want {
				t.Fatalf("%d tokens cached", all.Cached)
			}
			if all.Cached+all.Computed != 200_000 {
				t.Fatalf("%d tokens cached, %d computed", all.Cached, all.Computed)
			}
			preemptions += len(all.Preempted)
		})
	}
	if preemptions == 0 {
		t.Fatal("no request was preempted")
	}
}

func TestIdenticalPrompts(t *testing.T) {
	for _, at := range []string{"together", "apart"} {
		t.Run(at, func(t *testing.T) {
			w := mockOf(mockSizes{Blocks: 64, BlockTokens: 64})
			var cached, computed int
			for id := range 3 {
				submit(t, w, w.until, request(id, tokensFrom(1, 1024), 10, 64))
				if at == "apart" {
					rep := drain(t, w, 100)
					cached, computed = cached+rep.Cached, computed+rep.Computed
				}
			}
			if at == "together" {
				step(t, w)
				// The 16 blocks of the prompt are shared by all.
				if u := w.Usage(); u.UsedBlocks != 16 || u.Running != 3 {
					t.Fatalf("%+v", u)
				}
				rep := drain(t, w, 100)
				cached, computed = rep.Cached, rep.Computed
			}
			if cached != 2*1023 || computed != 1024+2 {
				t.Fatalf("%d tokens cached, %d computed", cached, computed)
			}
		})
	}
}
