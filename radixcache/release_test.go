package radixcache

import (
	"math/rand/v2"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// TestReleasePredictsUnpin: the pages that EvictableBeside and Release count can be evicted
// once the match is pinned and the handles are unpinned; and counting changes nothing.
func TestReleasePredictsUnpin(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := emptyCache(t, Config{PageTokens: 1 << rng.IntN(3)})
		next := kv.PageID(0)
		key := func() Key {
			tokens := make([]kv.Token, 1+rng.IntN(24))
			for i := range tokens {
				tokens[i] = kv.Token(rng.IntN(2))
			}
			return Key{Tokens: tokens}
		}
		var handles []NodeID
		var r Release
		for range 200 {
			k := key()
			pages := make([]kv.PageID, kv.CeilPages(len(k.Tokens), c.cfg.PageTokens))
			for i := range pages {
				pages[i] = next
				next++
			}
			c.Insert(k, pages, nil)
			if id := c.Pin(c.Match(key())); id != Root {
				handles = append(handles, id)
			}
			m := c.Match(key())
			partial := m.Partial.Tokens > 0 && rng.IntN(2) == 0
			before, version := c.Stats(), c.version
			want := c.EvictableBeside(m, partial)
			r.Reset(c, m, partial)
			gone := 0
			for gone < len(handles) && rng.IntN(4) > 0 {
				want += r.Unpin(handles[gone])
				gone++
			}
			if c.Stats() != before || c.version != version {
				t.Fatalf("seed %d: counting changed the tree", seed)
			}
			pin := c.Pin(m)
			if partial {
				c.PinNode(m.Partial.Node)
			}
			source := m.Partial.Node
			for _, id := range handles[:gone] {
				c.Unpin(id)
			}
			handles = handles[gone:]
			if got := c.Stats().EvictablePages; got != want {
				t.Fatalf("seed %d: %d pages can be evicted with a match of %d tokens (partial %v) after %d unpins, foretold %d",
					seed, got, m.Tokens, partial, gone, want)
			}
			if partial {
				c.Unpin(source)
			}
			c.Unpin(pin)
			c.Evict(rng.IntN(4), nil)
		}
	}
}
