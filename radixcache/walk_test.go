package radixcache

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// TestWalkShowsEverything: nodes, tokens and pages as Stats counts them, parents first.
func TestWalkShowsEverything(t *testing.T) {
	c := grown(t, Config{PageTokens: 2})
	var nodes, leaves, tails, tokens, pages int
	seen := map[NodeID]bool{Root: true}
	for v := range c.Walk() {
		if !seen[v.Parent] || seen[v.ID] {
			t.Errorf("node %d after its parent %d: %v", v.ID, v.Parent, seen[v.Parent])
		}
		seen[v.ID] = true
		nodes++
		leaves += count(v.Leaf)
		tails += count(v.Tail)
		tokens += len(v.Tokens)
		pages += len(v.Pages)
	}
	s := c.Stats()
	if nodes != s.Nodes || leaves != s.Leaves || tails != s.Tails || tokens != s.Tokens || pages != s.Pages || tails == 0 {
		t.Errorf("walked %d nodes, %d leaves, %d tails, %d tokens, %d pages:\n%v", nodes, leaves, tails, tokens, pages, s)
	}
	for range c.Walk() {
		break // an early end does no harm
	}
}

// TestWalkTo: a walk to a depth shows the nodes above it in the order of Walk, and visits no
// other node.
func TestWalkTo(t *testing.T) {
	c := grown(t, Config{PageTokens: 2})
	order, depth, deepest := []NodeID{}, map[NodeID]int{Root: 0}, 0
	for v := range c.Walk() {
		depth[v.ID] = depth[v.Parent] + 1
		order, deepest = append(order, v.ID), max(deepest, depth[v.ID])
	}
	if deepest < 3 {
		t.Fatalf("the tree is %d deep: nothing is tested", deepest)
	}
	for most := deepest + 1; most > 0; most-- {
		var want, got []NodeID
		for _, id := range order {
			if depth[id] <= most {
				want = append(want, id)
			} else {
				c.nodes[id].space = nil // a look at it panics
			}
		}
		for v := range c.WalkTo(most) {
			got = append(got, v.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("to depth %d: %v, want %v", most, got, want)
		}
	}
}

// grown returns a cache with a bit of everything: namespaces, private spaces, media, tails,
// removed and pinned nodes.
func grown(t testing.TB, cfg Config) *Cache {
	c := newCache(t, cfg)
	rng := rand.New(rand.NewPCG(5, 6))
	next := kv.PageID(0)
	for i := range 60 {
		key := Key{Namespace: kv.Namespace{Salt: []string{"", "a", "b"}[rng.IntN(3)], Model: []string{"", "m"}[rng.IntN(2)]}}
		for range 1 + rng.IntN(12) {
			key.Tokens = append(key.Tokens, kv.Token(rng.IntN(3)))
		}
		if rng.IntN(2) == 0 {
			key.PublicTokens = 4
		}
		if rng.IntN(3) == 0 {
			at := rng.IntN(len(key.Tokens))
			key.Media = []kv.Media{{At: at, Tokens: 1 + rng.IntN(len(key.Tokens)-at), Hash: uint64(rng.IntN(2))}}
		}
		m := c.Match(key)
		pages := c.AppendPages(m, nil)
		h := c.Pin(m)
		for len(pages) < kv.CeilPages(len(key.Tokens), c.cfg.PageTokens) {
			pages = append(pages, next)
			next++
		}
		h, _ = c.Extend(h, key, pages, nil)
		c.Prioritize(h, int32(rng.IntN(3)))
		c.Unpin(h)
		if i%7 == 6 {
			c.Evict(2, nil)
		}
	}
	return c
}
