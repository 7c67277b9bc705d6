package radixcache

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

func TestInsertReturnsDuplicates(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 2})}
	x.insert(toks(1, 2, 3, 4, 5, 6), 0, 1, 2)
	pages := []kv.PageID{0, 11, 12} // page 0 came from a match
	id, freed := x.insert(toks(1, 2, 3, 4, 7, 8), pages...)
	if !slices.Equal(freed, []kv.PageID{11}) || !slices.Equal(pages, []kv.PageID{0, 1, 12}) {
		t.Errorf("freed %v, pages %v", freed, pages)
	}
	if m := x.match(toks(1, 2, 3, 4, 7, 8), 0, 1, 12); m.Node != id {
		t.Errorf("Insert returned node %d, match ends at %d", id, m.Node)
	}
	if got := x.c.Stats().ReturnedPages; got != 1 {
		t.Errorf("%d returned pages, want 1", got)
	}
}

func TestTailLeaves(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 4})}
	step := func(wantFreed []kv.PageID, wantLast kv.PageID, tokens []kv.Token, pages ...kv.PageID) {
		t.Helper()
		_, freed := x.insert(tokens, pages...)
		if !slices.Equal(freed, wantFreed) || pages[len(pages)-1] != wantLast {
			t.Errorf("insert %v: freed %v, last page %d; want %v, %d", tokens, freed, pages[len(pages)-1], wantFreed, wantLast)
		}
	}
	step(nil, 1, toks(1, 2, 3, 4, 5), 0, 1)
	step(nil, 1, toks(1, 2, 3, 4, 5), 0, 1)                       // the same page again
	step([]kv.PageID{2}, kv.NoPage, toks(1, 2, 3, 4, 5), 0, 2)    // held
	step([]kv.PageID{1}, 3, toks(1, 2, 3, 4, 5, 6), 0, 3)         // longer tail supersedes
	step([]kv.PageID{4}, kv.NoPage, toks(1, 2, 3, 4, 5), 0, 4)    // beginning of a tail
	step(nil, 5, toks(1, 2, 3, 4, 5, 7), 0, 5)                    // a fork inside the page
	step([]kv.PageID{3}, 6, toks(1, 2, 3, 4, 5, 6, 7, 8), 0, 6)   // a whole page supersedes
	step([]kv.PageID{7}, kv.NoPage, toks(1, 2, 3, 4, 5, 6), 0, 7) // beginning of a whole page
	if m := x.match(toks(1, 2, 3, 4, 5, 7, 9), 0); x.c.PartialPage(m) != 5 || m.Partial.Tokens != 2 {
		t.Errorf("partial %+v, want 2 tokens of page 5", m.Partial)
	}
	if s := x.c.Stats(); s.Tails != 1 || s.EvictedPages[BySuperseding] != 2 || s.Pages != 3 {
		t.Errorf("stats\n%v", s)
	}
}

// Pinned tail leaves stay, though a longer child makes them redundant, and unpinned tail
// leaves that sort between them are removed.
func TestPinnedTailsAreNotSuperseded(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 8})}
	var tails []NodeID
	for n := 1; n <= 4; n++ { // 1, 1 2, 1 2 3, 1 2 3 4: each pinned before the next
		x.insert(toks(1, 2, 3, 4)[:n], kv.PageID(n))
		id := x.match(toks(1, 2, 3, 4)[:n]).Partial.Node
		x.c.PinNode(id)
		tails = append(tails, id)
	}
	x.insert(toks(1, 2, 0, 0), 20) // sorts between them
	x.insert(toks(1, 2, 3, 0), 21)
	x.c.Unpin(tails[0])
	x.c.Unpin(tails[2])
	_, freed := x.insert(toks(1, 2, 3, 4, 5, 6, 7, 8), 30)
	if !slices.Equal(freed, []kv.PageID{3, 1}) {
		t.Errorf("freed %v, want the two unpinned tails", freed)
	}
	x.c.Unpin(tails[1])
	x.c.Unpin(tails[3])
	x.insert(toks(1, 2, 3, 4, 5, 6, 7, 9), 31)
	if s := x.c.Stats(); s.Tails != 2 || s.EvictedPages[BySuperseding] != 4 {
		t.Errorf("stats\n%v", s)
	}
}

func TestTailsKeepNoParent(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 4})}
	if id, freed := x.insert(toks(1, 2), 0); id != Root || len(freed) > 0 {
		t.Errorf("node %d, freed %v", id, freed)
	}
	if id, _ := x.insert(nil); id != Root {
		t.Errorf("node %d for no tokens", id)
	}
	if freed := x.c.Evict(1, nil); !slices.Equal(freed, []kv.PageID{0}) || x.c.Stats().Namespaces != 0 {
		t.Errorf("freed %v, left\n%v", freed, x.c.Stats())
	}
}

// Thousands of children that differ inside one page.
func TestWideFork(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 4})}
	const n = 3000
	for i := range kv.Token(n) {
		x.c.Insert(keyOf(7, i%10, i/10%10, i), []kv.PageID{kv.PageID(i)}, nil)
	}
	if err := x.c.Check(); err != nil {
		t.Fatal(err)
	}
	for i := range kv.Token(n) {
		if m := x.match(toks(7, i%10, i/10%10, i), kv.PageID(i)); m.Partial.Tokens != 0 {
			t.Fatalf("partial %+v of a whole match", m.Partial)
		}
		if m := x.match(toks(7, i%10, i/10%10, n+i)); m.Partial.Tokens != 3 {
			t.Fatalf("partial %+v, want 3 tokens", m.Partial)
		}
	}
	if m := x.match(toks(7, 10, 0, 0)); m.Partial.Tokens != 1 {
		t.Errorf("partial %+v, want 1 token", m.Partial)
	}
}

func TestPartialTieGoesToTheLowerSibling(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 4})}
	x.insert(toks(1, 2, 3, 3), 0)
	x.insert(toks(1, 2, 5, 5), 1)
	if m := x.match(toks(1, 2, 4, 4)); x.c.PartialPage(m) != 0 || m.Partial.Tokens != 2 {
		t.Errorf("partial %+v, want 2 tokens of page 0", m.Partial)
	}
	if m := x.match(toks(1, 2)); x.c.PartialPage(m) != 0 || m.Partial.Tokens != 2 {
		t.Errorf("partial %+v, want 2 tokens of page 0", m.Partial)
	}
	if m := x.match(toks(1, 2, 5, 6)); x.c.PartialPage(m) != 1 || m.Partial.Tokens != 3 {
		t.Errorf("partial %+v, want 3 tokens of page 1", m.Partial)
	}
}

// The node of a partial match is valid after the match was pinned, which may have split it:
// the lower half kept the id, and has the page.
func TestPartialOutlivesPin(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 4})}
	x.insert(toks(1, 2, 3, 4, 5, 6, 7, 8), 0, 1)
	m := x.match(toks(1, 2, 3, 4, 5, 6, 9), 0)
	if x.c.PartialPage(m) != 1 || m.Partial.Tokens != 2 {
		t.Fatalf("partial %+v", m.Partial)
	}
	handle := x.c.Pin(m)
	x.c.PinNode(m.Partial.Node)
	if freed := x.c.Evict(9, nil); len(freed) > 0 {
		t.Errorf("evicted %v", freed)
	}
	x.c.Unpin(m.Partial.Node)
	if freed := x.c.Evict(9, nil); !slices.Equal(freed, []kv.PageID{1}) {
		t.Errorf("evicted %v, want page 1", freed)
	}
	x.c.Unpin(handle)
}

func TestEdgesAreCopies(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 2})}
	id, _ := x.insert(toks(1, 2, 3, 4, 5, 6, 7, 8), 0, 1, 2, 3)
	tokens := x.c.nodes[id].tokens.Slice()
	upper := x.c.Pin(x.match(toks(1, 2, 3, 4), 0, 1))
	for _, n := range []*node{&x.c.nodes[upper], &x.c.nodes[id]} {
		if n.tokens.CapBytes() > 16 {
			t.Errorf("half of 4 tokens keeps %d bytes", n.tokens.CapBytes())
		}
		for i := range tokens {
			if &n.tokens.Slice()[0] == &tokens[i] {
				t.Errorf("a half starting at %d lies in the memory of the whole", n.start)
			}
		}
	}
}

func TestCallerBugsPanic(t *testing.T) {
	key := keyOf(1, 2, 3, 4)
	stale := func(change func(*Cache)) func(*Cache, NodeID) {
		return func(c *Cache, _ NodeID) {
			m := c.Match(key)
			change(c)
			c.Pin(m)
		}
	}
	for name, tc := range map[string]struct {
		want string
		do   func(*Cache, NodeID)
	}{
		"unpin below zero": {"not held", func(c *Cache, id NodeID) { c.PinNode(id); c.Unpin(id); c.Unpin(id) }},
		"unpin an ancestor": {"not held (1 pins at or below it)", func(c *Cache, id NodeID) {
			up := c.Pin(c.Match(keyOf(1, 2)))
			c.PinNode(id)
			c.Unpin(up)
			c.Unpin(up)
		}},
		"unknown node":   {"Unpin: no node 77", func(c *Cache, id NodeID) { c.Unpin(77) }},
		"freed node":     {"PinNode: no node", func(c *Cache, id NodeID) { c.Evict(9, nil); c.PinNode(id) }},
		"namespace root": {"PinNode: no node", func(c *Cache, id NodeID) { c.PinNode(c.nodes[id].parent) }},
		"edge of an order": {"PinNode: no node", func(c *Cache, id NodeID) {
			c.Flush()
			c.PinNode(c.common.edge)
		}},
		"too few pages":        {"1 pages for 4 tokens, want 2", func(c *Cache, _ NodeID) { c.Insert(key, pageRange(0, 1), nil) }},
		"too many pages":       {"3 pages for 4 tokens, want 2", func(c *Cache, _ NodeID) { c.Insert(key, pageRange(0, 3), nil) }},
		"no page":              {"pages[1] is -1", func(c *Cache, _ NodeID) { c.Insert(key, []kv.PageID{0, kv.NoPage}, nil) }},
		"match before Insert":  {"stale", stale(func(c *Cache) { c.Insert(keyOf(8, 9), []kv.PageID{5}, nil) })},
		"match before Extend":  {"stale", stale(func(c *Cache) { c.Extend(Root, keyOf(8, 9), []kv.PageID{5}, nil) })},
		"match before Evict":   {"stale", stale(func(c *Cache) { c.Evict(1, nil) })},
		"match before Flush":   {"stale", stale((*Cache).Flush)},
		"match before a split": {"stale", stale(func(c *Cache) { c.Pin(c.Match(keyOf(1, 2))) })},
		"pages of an old match": {"AppendPages: match of 4 tokens", func(c *Cache, _ NodeID) {
			m := c.Match(key)
			c.Evict(1, nil)
			c.AppendPages(m, nil)
		}},
		"growing a tail's page": {"page 6 already belongs to tail leaf", func(c *Cache, _ NodeID) {
			c.Insert(keyOf(8), []kv.PageID{6}, nil)
			c.Insert(keyOf(8, 9), []kv.PageID{6}, nil)
		}},
		"extending without a pin": {"has 0 handles", func(c *Cache, id NodeID) { c.Extend(id, keyOf(1, 2, 3, 4, 5), pageRange(0, 3), nil) }},
		"extending with less": {"ends at token 4", func(c *Cache, id NodeID) {
			c.PinNode(id)
			c.Extend(id, keyOf(1, 2), pageRange(0, 1), nil)
		}},
		"extending by no page": {"pages[2] is -1", func(c *Cache, id NodeID) {
			c.PinNode(id)
			c.Extend(id, keyOf(1, 2, 3, 4, 5), []kv.PageID{0, 1, kv.NoPage}, nil)
		}},
		"prioritizing a freed node": {"Prioritize: no node", func(c *Cache, id NodeID) { c.Evict(9, nil); c.Prioritize(id, 1) }},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCache(t, Config{PageTokens: 2})
			id, _ := c.Insert(key, []kv.PageID{0, 1}, nil)
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, tc.want) || !strings.HasPrefix(got, "radixcache: ") {
					t.Errorf("panic %q, want %q", got, tc.want)
				}
			}()
			tc.do(c, id)
		})
	}
}

// A match stays valid after calls that do not change the tree's shape.
func TestMatchOutlivesCallsThatKeepTheShape(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 2})}
	x.insert(toks(1, 2, 3, 4), 0, 1)
	m := x.match(toks(1, 2, 3, 4), 0, 1)
	first := x.c.Pin(m)
	x.insert(toks(1, 2, 3, 4), 0, 1)
	x.c.Evict(9, nil)
	second := x.c.Pin(m)
	x.c.Unpin(first)
	x.sizes(0, 4)
	x.c.Unpin(second)
	x.sizes(4, 0)
	if x.c.Pin(Match{}) != Root {
		t.Error("an empty match was pinned")
	}
	x.c.PinNode(Root)
	x.c.Unpin(Root)
}

func TestTakenEventsAreFreed(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 1, BlockTokens: 1, Events: true})}
	x.insert(toks(1, 2), 0, 1)
	x.insert(toks(3), 2)
	if evs := x.c.TakeEvents(make([]kv.Event, 1)); len(evs) != 3 {
		t.Errorf("took %d events, want 2 appended to 1", len(evs))
	}
	for _, ev := range x.c.journal.events[:2] {
		if ev.Blocks != nil {
			t.Errorf("journal keeps %+v", ev)
		}
	}
	if evs := x.c.TakeEvents(nil); len(evs) != 0 {
		t.Errorf("took %+v twice", evs)
	}
}

// Removals in a row make one event, unless they are of different namespaces or another event
// lies between them.
func TestRemovedEventsMerge(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 1, BlockTokens: 1, Events: true})}
	other := checker{T: t, c: x.c, ns: kv.Namespace{Salt: "x"}}
	x.insert(toks(1, 2), 0, 1)
	x.insert(toks(1, 3), 0, 2)
	other.insert(toks(4), 3)
	x.insert(toks(5), 4)
	x.c.TakeEvents(nil)
	x.c.Evict(4, nil)
	x.insert(toks(6), 0)
	x.c.Evict(9, nil)
	var got []int
	for _, ev := range x.c.TakeEvents(nil) {
		got = append(got, int(ev.Kind), len(ev.Blocks)+len(ev.Hashes))
	}
	rem, sto := int(kv.Removed), int(kv.Stored)
	if want := []int{rem, 3, rem, 1, sto, 1, rem, 2}; !slices.Equal(got, want) {
		t.Errorf("kinds and sizes %v, want %v", got, want)
	}
}

// The hot path does not allocate.
