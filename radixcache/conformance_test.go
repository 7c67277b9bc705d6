package radixcache

import (
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// The cases named C… are those of SGLang's unit tests that map to this tree,
// by the numbers of the project's list of them.

func newCache(t testing.TB, cfg Config) *Cache {
	t.Helper()
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// checker wraps calls in the short forms that the cases need.
type checker struct {
	*testing.T
	c  *Cache
	ns kv.Namespace
}

func (x checker) key(tokens []kv.Token) Key { return Key{Namespace: x.ns, Tokens: tokens} }

func (x checker) insert(tokens []kv.Token, pages ...kv.PageID) (NodeID, []kv.PageID) {
	x.Helper()
	return x.insertKey(x.key(tokens), pages...)
}

func (x checker) insertKey(key Key, pages ...kv.PageID) (NodeID, []kv.PageID) {
	x.Helper()
	id, freed := x.c.Insert(key, pages, nil)
	x.check()
	return id, freed
}

func (x checker) check() {
	x.Helper()
	if err := x.c.Check(); err != nil {
		x.Fatal(err)
	}
}

func (x checker) match(tokens []kv.Token, want ...kv.PageID) Match {
	x.Helper()
	return x.matchKey(x.key(tokens), want...)
}

func (x checker) matchKey(key Key, want ...kv.PageID) Match {
	x.Helper()
	m := x.c.Match(key)
	if got := x.c.AppendPages(m, nil); !slices.Equal(got, want) || m.Tokens != len(want)*x.c.cfg.PageTokens {
		x.Errorf("match %+v: %d tokens in pages %v, want %v", key, m.Tokens, got, want)
	}
	return m
}

// evict frees this many pages and compares.
func (x checker) evict(pages int, want ...kv.PageID) {
	x.Helper()
	if freed := x.c.Evict(pages, nil); !slices.Equal(freed, want) {
		x.Errorf("Evict(%d) freed %v, want %v", pages, freed, want)
	}
	x.check()
}

func (x checker) sizes(evictable, protected int) {
	x.Helper()
	s := x.c.Stats()
	if s.EvictableTokens != evictable || s.ProtectedTokens != protected || s.Tokens != evictable+protected {
		x.Errorf("%d evictable and %d protected of %d tokens, want %d and %d", s.EvictableTokens, s.ProtectedTokens, s.Tokens, evictable, protected)
	}
}

func toks(t ...kv.Token) []kv.Token { return t }

// countUp returns n tokens, counting up from first.
func countUp(first kv.Token, n int) []kv.Token {
	tokens := make([]kv.Token, n)
	for i := range tokens {
		tokens[i] = first + kv.Token(i)
	}
	return tokens
}

func pageRange(first kv.PageID, n int) []kv.PageID {
	pages := make([]kv.PageID, n)
	for i := range pages {
		pages[i] = first + kv.PageID(i)
	}
	return pages
}

func keyOf(tokens ...kv.Token) Key { return Key{Tokens: tokens} }

// C4: compare, pages of one token.
func TestCommonPrefixLengths(t *testing.T) {
	for _, tc := range []struct {
		held, key []kv.Token
		want      int
	}{
		{toks(1, 2, 3, 4), toks(1, 2, 3, 4), 4},
		{toks(1, 2, 3, 4), toks(1, 2, 9, 9), 2},
		{toks(9, 2, 3), toks(1, 2, 3), 0},
		{toks(1, 2, 3, 4), toks(1, 2, 3), 3},
		{toks(1, 2, 3), toks(1, 2, 3, 4), 3},
		{toks(1, 2, 3), nil, 0},
		{nil, toks(1, 2, 3), 0},
		{nil, nil, 0},
	} {
		c := newCache(t, Config{PageTokens: 1})
		c.Insert(keyOf(tc.held...), pageRange(0, len(tc.held)), nil)
		if got := c.Match(keyOf(tc.key...)).Tokens; got != tc.want {
			t.Errorf("%v holds %d tokens of %v, want %d", tc.held, got, tc.key, tc.want)
		}
	}
}

// C14, C15, C17.
func TestInsertAndMatch(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 1})}
	if _, freed := x.insert(toks(1, 2, 3), 10, 20, 30); len(freed) > 0 {
		t.Errorf("freed %v", freed)
	}
	x.sizes(3, 0)
	x.match(toks(1, 2, 3), 10, 20, 30)
	x.match(toks(1, 2), 10, 20)
	x.insert(toks(4, 5), 40, 50)
	x.sizes(5, 0)
	x.c.Flush()
	x.check()
	x.match(toks(1, 2, 3))
	freed := x.c.Evict(9, nil)
	slices.Sort(freed)
	if want := []kv.PageID{10, 20, 30, 40, 50}; !slices.Equal(freed, want) {
		t.Errorf("after Flush Evict freed %v, want %v", freed, want)
	}
	x.sizes(0, 0)
	if s := x.c.Stats(); s.Nodes+s.Leaves+s.Namespaces+s.Pages != 0 {
		t.Errorf("after Flush and Evict:\n%v", s)
	}
}

// C21, C22.
func TestNamespacesShareNothing(t *testing.T) {
	c := newCache(t, Config{PageTokens: 1})
	tokens := toks(1, 2, 3)
	for i, ns := range []kv.Namespace{{LoRA: "key1"}, {LoRA: "key2"}, {}, {LoRA: "bc", Salt: "a"}, {LoRA: "c", Salt: "ab"}, {Salt: "key1"}, {Model: "key1"}} {
		p := kv.PageID(30*i + 10)
		checker{t, c, ns}.insert(tokens, p, p+10, p+20)
		defer checker{t, c, ns}.match(tokens, p, p+10, p+20)
	}
	checker{t, c, kv.Namespace{LoRA: "nonexistent"}}.match(tokens)
	if got := c.Stats().Namespaces; got != 7 {
		t.Errorf("%d namespaces, want 7", got)
	}
}

// C23: salted events.
func TestSaltedEvents(t *testing.T) {
	hashes := func(ns kv.Namespace) []kv.BlockHash {
		x := checker{t, newCache(t, Config{PageTokens: 2, BlockTokens: 2, Events: true}), ns}
		x.insert(toks(1, 2, 3, 4), 0, 1)
		x.c.Evict(2, nil)
		evs := x.c.TakeEvents(nil)
		if len(evs) != 2 || evs[0].Kind != kv.Stored || evs[0].HasParent || evs[0].Namespace != ns || len(evs[0].Blocks) != 2 {
			t.Fatalf("events %+v", evs)
		}
		stored := []kv.BlockHash{evs[0].Blocks[0].Hash, evs[0].Blocks[1].Hash}
		if evs[1].Kind != kv.Removed || evs[1].Namespace != ns || !slices.Equal(evs[1].Hashes, stored) {
			t.Fatalf("removed %+v, stored %v", evs[1], stored)
		}
		return stored
	}
	plain, salted := hashes(kv.Namespace{}), hashes(kv.Namespace{Salt: "tenant-a"})
	if plain[0] == salted[0] || plain[1] == salted[1] {
		t.Errorf("salt does not change the hashes %v, %v", plain, salted)
	}
}

// C25, C35: locks protect, and only as long as they last.
func TestPinProtects(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 1, WholeLeaves: true})}
	x.insert(toks(1, 2, 3), 10, 20, 30)
	x.insert(toks(7, 8), 70, 80)
	id := x.c.Pin(x.match(toks(1, 2, 3), 10, 20, 30))
	x.sizes(2, 3)
	x.evict(100, 70, 80)
	x.match(toks(1, 2, 3), 10, 20, 30)
	x.c.Unpin(id)
	x.sizes(3, 0)
	x.evict(100, 10, 20, 30)
}

// A pin of a part of a node leaves the rest to be evicted.
func TestPinSplits(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 2})}
	whole, _ := x.insert(toks(1, 2, 3, 4, 5, 6), 0, 1, 2)
	x.c.PinNode(whole)
	m := x.match(toks(1, 2, 3, 4), 0, 1)
	upper := x.c.Pin(m)
	if upper == whole || x.c.Stats().Splits != 1 {
		t.Fatalf("Pin of a part of node %d returned %d, %d splits", whole, upper, x.c.Stats().Splits)
	}
	x.sizes(0, 6)
	x.c.Unpin(whole) // the handle means the lower half now
	x.sizes(2, 4)
	x.evict(9, 2)
	x.c.Unpin(upper)
	x.sizes(4, 0)
}

// C26, C34.
func TestEvictWholeLeaves(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 1, WholeLeaves: true})}
	x.evict(5)
	x.insert(toks(1, 2), 10, 20)
	x.insert(toks(3, 4), 30, 40)
	x.evict(0)
	if freed := x.c.Evict(1, []kv.PageID{9}); !slices.Equal(freed, []kv.PageID{9, 10, 20}) {
		t.Errorf("Evict(1) freed %v, want the older leaf appended", freed)
	}
	x.sizes(2, 0)
}

func TestEvictLeastRecentlyUsedFirst(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 1})}
	x.insert(toks(1, 2), 0, 1)
	x.insert(toks(1, 3), 0, 3)
	x.insert(toks(4), 4)
	x.c.Unpin(x.c.Pin(x.match(toks(1, 2), 0, 1))) // a pin refreshes, a match does not
	x.match(toks(1, 3), 0, 3)
	for _, want := range []kv.PageID{3, 4, 1, 0} {
		x.evict(1, want)
	}
}

// C27: a match is a multiple of the page.
func TestMatchIsWholePages(t *testing.T) {
	for _, tc := range []struct{ page, length, want int }{{1, 5, 5}, {2, 5, 2}, {4, 6, 1}, {3, 7, 2}, {3, 9, 3}, {100, 250, 2}, {100, 99, 0}, {MaxPageTokens, 2*MaxPageTokens + 1, 2}} {
		x := checker{T: t, c: newCache(t, Config{PageTokens: tc.page})}
		key := countUp(1, tc.length)
		x.insert(key, pageRange(0, kv.CeilPages(tc.length, tc.page))...)
		x.match(key, pageRange(0, tc.want)...)
	}
}

// C29: hashes and splits.
func TestHashesPerNode(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 4, BlockTokens: 4, Events: true})}
	id, _ := x.insert(toks(1, 2, 3, 4, 5, 6, 7, 8), 0, 1)
	x.c.TakeEvents(nil)
	want := []kv.BlockHash{14643705804678351452, 4945711292740353085} // Dynamo's vectors
	if got := *x.c.nodes[id].hashes; !slices.Equal(got, want) {
		t.Errorf("hashes %v, want %v", got, want)
	}

	x.c = newCache(t, Config{PageTokens: 4, BlockTokens: 4, Events: true})
	x.insert(toks(1, 2, 3, 4, 1, 2, 3, 4), 0, 1)
	evs := x.c.TakeEvents(nil)
	if len(evs) != 1 || evs[0].HasParent || len(evs[0].Blocks) != 2 || evs[0].Blocks[0].Hash == evs[0].Blocks[1].Hash || evs[0].Blocks[0].Local != evs[0].Blocks[1].Local {
		t.Errorf("events of a repeated page: %+v", evs)
	}

	x.c = newCache(t, Config{PageTokens: 2, BlockTokens: 2, Events: true})
	x.insert(toks(1, 2, 3, 4), 0, 1)
	x.insert(toks(1, 2, 5, 6), 9, 2)
	evs = x.c.TakeEvents(nil)
	if shared := x.match(toks(1, 2), 0).Node; len(*x.c.nodes[shared].hashes) != 1 {
		t.Errorf("shared node has hashes %v, want 1", *x.c.nodes[shared].hashes)
	}
	if len(evs) != 2 || len(evs[1].Blocks) != 1 || !evs[1].HasParent || evs[1].Parent != evs[0].Blocks[0].Hash {
		t.Errorf("events of a split: %+v", evs)
	}
}

// C49: unaligned queries.
func TestUnalignedQueries(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 4})}
	x.insert(toks(1, 2, 3, 4, 5, 6, 7, 8), 0, 1)
	x.match(toks(1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9), 0, 1)
	x.match(toks(1, 2, 3))
	x.match(toks(1, 2, 3, 4, 5, 9, 7, 8), 0)
	x.match(toks(1, 9, 3, 4, 5, 6, 7, 8))
}
