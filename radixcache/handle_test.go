package radixcache

import (
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// Resume of an old match returns the same as a new match, whatever happened to the old match's
// node.
func TestResumeEqualsMatch(t *testing.T) {
	tokens := countUp(1, 12)
	for name, change := range map[string]func(checker){
		"nothing":         func(checker) {},
		"a split above":   func(x checker) { x.c.Pin(x.c.Match(x.key(tokens[:4]))) },
		"a fork above":    func(x checker) { x.insert(toks(1, 2, 77, 77), 50, 51) },
		"a longer leaf":   func(x checker) { x.insert(countUp(1, 14), pageRange(0, 7)...) },
		"a trim":          func(x checker) { x.c.Evict(2, nil) },
		"a trim and more": func(x checker) { x.c.Evict(2, nil); x.insert(countUp(1, 10), 0, 1, 2, 60, 61) },
		"an eviction":     func(x checker) { x.c.Evict(6, nil) },
		"another in its slot": func(x checker) {
			x.c.Evict(9, nil)
			x.insert(countUp(101, 12), pageRange(0, 6)...)
		},
		"it again, elsewhere": func(x checker) {
			x.c.Evict(9, nil)
			x.insert(toks(99, 99), 70)
			x.insert(tokens[:8], pageRange(0, 4)...)
		},
		"a join": func(x checker) {
			x.insert(toks(1, 2, 3, 4, 77, 77), 0, 1, 50)
			x.c.Unpin(x.c.Pin(x.c.Match(x.key(tokens))))
			x.evict(1, 50)
			x.c.links.count += 99 // makes tidy join links earlier than it would
			x.c.tidy()
			x.c.links.count -= 99
			if x.c.Stats().Joins != 1 {
				x.Errorf("%d joins, want 1", x.c.Stats().Joins)
			}
		},
		"a flush":          func(x checker) { x.c.Flush() },
		"a flush and more": func(x checker) { x.c.Flush(); x.insert(tokens[:6], pageRange(80, 3)...) },
	} {
		for _, upTo := range []int{1, 2, 6, 12} {
			t.Run(name, func(t *testing.T) {
				x := checker{T: t, c: newCache(t, Config{PageTokens: 2})}
				x.insert(tokens, pageRange(0, 6)...)
				key := x.key(slices.Concat(tokens[:upTo], toks(55)))
				m := x.c.Match(key)
				change(x)
				x.check()
				got, want := x.c.Resume(key, m), x.c.Match(key)
				if got != want {
					t.Errorf("resumed %+v\nmatched %+v", got, want)
				}
				if a, b := x.c.AppendPages(got, nil), x.c.AppendPages(want, nil); !slices.Equal(a, b) {
					t.Errorf("resumed in pages %v, matched in %v", a, b)
				}
			})
		}
	}
}

// A match for a shorter key may be resumed for a longer one.
func TestResumeWithMoreTokens(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 3})}
	x.insert(countUp(1, 12), pageRange(0, 4)...)
	m := x.c.Match(x.key(countUp(1, 7)))
	if got, want := x.c.Resume(x.key(countUp(1, 12)), m), x.c.Match(x.key(countUp(1, 12))); got != want || got.Tokens != 12 {
		t.Errorf("resumed %+v, matched %+v", got, want)
	}
	if got, want := x.c.Resume(x.key(countUp(1, 4)), m), x.c.Match(x.key(countUp(1, 4))); got != want || got.Tokens != 3 {
		t.Errorf("resumed with less %+v, matched %+v", got, want)
	}
}

func TestAppendPagesAppends(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 100})}
	x.insert(countUp(1, 250), 7, 8, 9)
	x.insert(slices.Concat(countUp(1, 100), countUp(500, 100)), 7, 3)
	m := x.c.Match(x.key(slices.Concat(countUp(1, 100), countUp(500, 150))))
	if got := x.c.AppendPages(m, []kv.PageID{1}); !slices.Equal(got, []kv.PageID{1, 7, 3}) {
		t.Errorf("pages %v, want 7, 3 appended to 1", got)
	}
	room := make([]kv.PageID, 1, 9)
	if got := x.c.AppendPages(m, room); &got[0] != &room[0] || len(got) != 3 {
		t.Errorf("%v was not appended in place", got)
	}
	if got := x.c.AppendPages(Match{version: x.c.version}, nil); len(got) != 0 {
		t.Errorf("pages %v of nothing", got)
	}
}

// A sequence published in chunks gives the same tree, pages and order of eviction as one
// Insert of the whole.
func TestExtendEqualsInsert(t *testing.T) {
	for _, page := range []int{1, 3, 16, 100} {
		tokens := countUp(1, 7*page+page/2)
		pages := pageRange(20, kv.CeilPages(len(tokens), page))
		start := func() checker {
			x := checker{T: t, c: newCache(t, Config{PageTokens: page})}
			x.insert(tokens[:2*page], 0, 1)
			x.insert(slices.Concat(tokens[:page], countUp(5000, page)), 0, 2)
			return x
		}
		a, b := start(), start()
		mine, other := slices.Clone(pages), slices.Clone(pages)
		m := a.c.Match(a.key(tokens))
		handle := a.c.Pin(m)
		var freed []kv.PageID
		for n := 3 * page; n <= len(tokens); n += page {
			before := handle
			handle, freed = a.c.Extend(handle, a.key(tokens[:n]), mine[:n/page], freed)
			a.check()
			if a.c.nodes[handle].held != 1 || handle == before || a.c.nodes[before].held != 0 {
				t.Fatalf("page %d: the pin did not move from node %d to %d", page, before, handle)
			}
		}
		handle, freed = a.c.Extend(handle, a.key(tokens), mine, freed)
		a.check()
		b.c.Unpin(b.c.Pin(b.c.Match(b.key(tokens))))
		_, returned := b.insert(tokens, other...)
		slices.Sort(returned)
		if want := pageRange(20, 2); len(freed) != 0 || !slices.Equal(returned, want) || !slices.Equal(mine[2:], other[2:]) {
			t.Errorf("page %d: Extend freed %v, Insert %v, want %v: it does not look at what stood before the handle", page, freed, returned, want)
		}
		if wide := page > 1; wide && a.c.Stats().Tails != 1 {
			t.Errorf("page %d: %d tails", page, a.c.Stats().Tails)
		}
		a.c.Unpin(handle)
		key := a.key(tokens)
		ma, mb := a.c.Match(key), b.c.Match(key)
		if ma.Tokens != mb.Tokens || ma.Partial.Tokens != mb.Partial.Tokens || !slices.Equal(a.c.AppendPages(ma, nil), b.c.AppendPages(mb, nil)) {
			t.Errorf("page %d: %+v, after Insert %+v", page, ma, mb)
		}
		if got, want := a.c.Evict(99, nil), b.c.Evict(99, nil); len(got) != len(want) {
			t.Errorf("page %d: evicted %v, after Insert %v", page, got, want)
		}
	}
}

// Extend with the handle Root begins a sequence. If Extend has nothing to add, it returns the
// handle that it was given.
func TestExtendFromRoot(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 2})}
	id, freed := x.c.Extend(Root, x.key(toks(1)), []kv.PageID{0}, nil)
	if id != Root || len(freed) > 0 {
		t.Errorf("node %d, freed %v for less than a page", id, freed)
	}
	id, freed = x.c.Extend(Root, x.key(toks(1, 2, 3, 4)), []kv.PageID{1, 2}, nil)
	if !slices.Equal(freed, []kv.PageID{0}) {
		t.Errorf("freed %v, want the tail that is redundant now", freed)
	}
	x.sizes(0, 4)
	if same, _ := x.c.Extend(id, x.key(toks(1, 2, 3, 4)), []kv.PageID{1, 2}, nil); same != id || x.c.nodes[id].held != 1 {
		t.Errorf("node %d with %d handles, want %d with 1", same, x.c.nodes[id].held, id)
	}
	if got := x.c.Stats(); got.Lookups != 0 {
		t.Errorf("%d lookups, Extend is none", got.Lookups)
	}
	x.c.Unpin(id)
	x.check()
}

// Two requests compute the same tokens; the later one gets its pages back.
func TestExtendReturnsDuplicates(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 2})}
	first, _ := x.c.Extend(Root, x.key(toks(1, 2)), []kv.PageID{0}, nil)
	second, freed := x.c.Extend(Root, x.key(toks(1, 2)), []kv.PageID{10}, nil)
	if second != first || !slices.Equal(freed, []kv.PageID{10}) || x.c.nodes[first].held != 2 {
		t.Errorf("nodes %d, %d, freed %v, %d handles", first, second, freed, x.c.nodes[first].held)
	}
	x.c.Extend(first, x.key(toks(1, 2, 3, 4, 5, 6)), []kv.PageID{0, 1, 2}, nil)
	pages := []kv.PageID{0, 11, 12}
	third, freed := x.c.Extend(second, x.key(toks(1, 2, 3, 4, 7, 8)), pages, nil)
	x.check()
	if !slices.Equal(freed, []kv.PageID{11}) || !slices.Equal(pages, []kv.PageID{0, 1, 12}) {
		t.Errorf("freed %v, pages %v", freed, pages)
	}
	x.match(toks(1, 2, 3, 4, 7, 8), 0, 1, 12)
	x.c.Unpin(third)
	x.sizes(2, 6)
}

// Tokens added to a flushed tree are removed with it.
func TestExtendOfAFlushedTree(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 2, BlockTokens: 2, Events: true})}
	x.insert(toks(1, 2, 3, 4), 0, 1)
	handle := x.c.Pin(x.c.Match(keyOf(1, 2)))
	x.c.Flush()
	x.check()
	x.c.TakeEvents(nil)
	handle, _ = x.c.Extend(handle, keyOf(1, 2, 7, 8), []kv.PageID{0, 2}, nil)
	x.check()
	x.match(toks(1, 2, 7, 8))
	x.insert(toks(1, 2), 3)
	x.evict(9, 1, 3)
	x.c.Unpin(handle)
	x.insert(toks(5, 6), 4)
	x.evict(1, 2)
	x.evict(1, 0)
	x.match(toks(5, 6), 4)
	for _, ev := range x.c.TakeEvents(nil) {
		if ev.Kind != kv.Stored && ev.Kind != kv.Removed || len(ev.Hashes)+len(ev.Blocks) != 1 {
			t.Errorf("event %+v of a flushed tree", ev)
		}
	}
	if s := x.c.Stats(); s.EvictedPages[ByFlush] != 3 || s.EvictedPages[ByCapacity] != 1 {
		t.Errorf("stats\n%v", s)
	}
}

// Eviction removes the last pages of a leaf first, and withdraws only their blocks.
func TestEvictTrims(t *testing.T) {
	for _, page := range []int{1, 3, 16} {
		x := checker{T: t, c: newCache(t, Config{PageTokens: page, BlockTokens: 2 * page, Events: true})}
		tokens := countUp(1, 6*page)
		id, _ := x.insert(tokens, pageRange(0, 6)...)
		stored := x.c.TakeEvents(nil)[0].Blocks
		x.evict(1, 5) // ends block 2
		x.evict(2, 3, 4)
		x.match(tokens, 0, 1, 2)
		if got := x.c.Match(x.key(tokens)).Node; got != id {
			t.Errorf("page %d: the node was %d, is %d", page, id, got)
		}
		evs := x.c.TakeEvents(nil)
		if len(evs) != 1 || !slices.Equal(evs[0].Hashes, []kv.BlockHash{stored[2].Hash, stored[1].Hash}) {
			t.Errorf("page %d: events %+v, want blocks 2 and 1 of %+v removed", page, evs, stored)
		}
		x.insert(tokens, slices.Concat(pageRange(0, 3), pageRange(10, 3))...)
		if evs := x.c.TakeEvents(nil); len(evs) != 1 || len(evs[0].Blocks) != 2 || evs[0].Parent != stored[0].Hash || evs[0].Blocks[1].Hash != stored[2].Hash {
			t.Errorf("page %d: events %+v, want blocks 1 and 2 stored anew", page, evs)
		}
	}
}

// A tail leaf is evicted as one page, before the run that it ends.
func TestEvictTakesTailsFirst(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 4})}
	x.insert(toks(1, 2, 3, 4, 5, 6, 7, 8, 9), 0, 1, 2)
	x.evict(1, 2)
	x.evict(1, 1)
	x.evict(9, 0)
	if s := x.c.Stats(); s.EvictedTokens[ByCapacity] != 9 || s.EvictedPages[ByCapacity] != 3 {
		t.Errorf("stats\n%v", s)
	}
}
