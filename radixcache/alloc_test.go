package radixcache

import (
	"testing"

	"github.com/coppice-llm/coppice/internal/invariants"
	"github.com/coppice-llm/coppice/kv"
)

// The calls that a scheduler makes for each waiting request at each pass do not allocate.
func TestMatchAndResumeDoNotAllocate(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 16, Events: true})}
	key := Key{Namespace: kv.Namespace{LoRA: "adapter", Salt: "tenant"}, PublicTokens: 128}
	for i := range 32*16 + 5 {
		key.Tokens = append(key.Tokens, kv.Token(i%50))
	}
	key.Media = []kv.Media{{At: 200, Tokens: 30, Hash: 1}, {At: 400, Tokens: 5, Hash: 2}}
	for _, n := range []int{64, 128, 320, 512, 517} { // a chain of nodes, some in a private space
		part := key
		part.Tokens, part.Media = key.Tokens[:n], nil
		for _, span := range key.Media {
			if span.At+span.Tokens <= n {
				part.Media = append(part.Media, span)
			}
		}
		x.insertKey(part, pageRange(1000, kv.CeilPages(n, 16))...)
	}
	dst := make([]kv.PageID, 0, 64)
	var m Match
	if n := testing.AllocsPerRun(100, func() {
		m = x.c.Match(key)
		dst = x.c.AppendPages(m, dst[:0])
	}); n != 0 || m.Tokens != 512 || len(dst) != 32 {
		t.Errorf("%v allocations per match of %d tokens in %d pages, want 0, 512, 32", n, m.Tokens, len(dst))
	}
	if n := testing.AllocsPerRun(100, func() {
		x.c.version++ // as after any change elsewhere
		m = x.c.Resume(key, m)
	}); n != 0 || m.Tokens != 512 {
		t.Errorf("%v allocations per resumed match of %d tokens, want 0, 512", n, m.Tokens)
	}
}

// In a full pool a request matches, pins, extends twice and unpins, and others are
// evicted for it. It may allocate the memory of what it adds: the token array of each
// leaf and that of its pages, which are not consecutive; and the halves of split nodes.
// Slab, heaps, forks, queues and scratch memory are amortised.
func TestSteadyStateAllocatesLeavesOnly(t *testing.T) {
	if invariants.Enabled {
		t.Skip("Check allocates")
	}
	for _, policy := range []Policy{LRU, LFU, CostAware, Session} {
		c := newCache(t, Config{PageTokens: 16, Policy: policy})
		var free []kv.PageID
		for i := range 4096 {
			free = append(free, kv.PageID(i))
		}
		tokens := make([]kv.Token, 16*16)
		pages, freed := make([]kv.PageID, 0, 16), make([]kv.PageID, 0, 64)
		seed := uint32(1)
		request := func() {
			seed = seed*1664525 + 1013904223
			for i := range tokens {
				tokens[i] = kv.Token(i)
				if i >= 64+int(seed>>28)*8 {
					tokens[i] += kv.Token(seed >> 8)
				}
			}
			key := Key{Tokens: tokens}
			m := c.Match(key)
			pages = c.AppendPages(m, pages[:0])
			handle := c.Pin(m)
			for len(free) < 16 {
				free = c.Evict(16, free)
			}
			for len(pages) < 16 {
				pages, free = append(pages, free[len(free)-1]), free[:len(free)-1]
			}
			for _, n := range []int{max(8, len(pages)/2), 16} {
				key.Tokens = tokens[:16*n]
				if len(key.Tokens) > m.Tokens {
					handle, freed = c.Extend(handle, key, pages[:n], freed[:0])
					free = append(free, freed...)
				}
			}
			c.Unpin(handle)
		}
		for range 3000 {
			request()
		}
		if err := c.Check(); err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(2000, request); n > 5 {
			t.Errorf("%v: %v allocations per request, want at most 5", policy, n)
		}
		if n := testing.AllocsPerRun(100, func() {
			id := c.Pin(c.Match(Key{Tokens: tokens}))
			c.Unpin(id)
		}); n != 0 {
			t.Errorf("%v: %v allocations per pin and unpin of a whole node, want 0", policy, n)
		}
	}
}
