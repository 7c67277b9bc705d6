package radixcache

import (
	"maps"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

func tenantKey(salt string, public int, tokens ...kv.Token) Key {
	return Key{Namespace: kv.Namespace{Model: "m", Salt: salt}, Tokens: tokens, PublicTokens: public}
}

// Tenants share the public part, and no token after it.
func TestPublicTokens(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 2})}
	x.insertKey(tenantKey("a", 4, 1, 2, 3, 4, 5, 6, 7), 0, 1, 2, 3)
	x.matchKey(tenantKey("a", 4, 1, 2, 3, 4, 5, 6), 0, 1, 2)
	if m := x.matchKey(tenantKey("b", 4, 1, 2, 3, 4, 5, 6), 0, 1); m.Partial.Tokens != 0 {
		t.Errorf("partial %+v across the boundary", m.Partial)
	}
	if m := x.matchKey(tenantKey("b", 5, 1, 2, 3, 4, 5, 9), 0, 1); m.Partial.Tokens != 0 {
		t.Errorf("partial %+v across the boundary, which is rounded down", m.Partial)
	}
	if m := x.matchKey(tenantKey("b", 4, 1, 2, 3, 9, 5, 6), 0); x.c.PartialPage(m) != 1 || m.Partial.Tokens != 1 {
		t.Errorf("partial %+v, want 1 token of the public page 1", m.Partial)
	}
	if m := x.matchKey(tenantKey("a", 4, 1, 2, 3, 4, 5, 6, 7, 8), 0, 1, 2); x.c.PartialPage(m) != 3 {
		t.Errorf("partial %+v, want the tenant's own tail", m.Partial)
	}
	x.matchKey(tenantKey("a", 2, 1, 2, 3, 4, 5, 6), 0)
	x.matchKey(tenantKey("a", 0, 1, 2, 3, 4, 5, 6))
	x.matchKey(tenantKey("", 9, 1, 2, 3, 4, 5, 6), 0, 1)
	x.matchKey(tenantKey("b", 1, 1, 2, 3, 4))

	_, freed := x.insertKey(tenantKey("b", 4, 1, 2, 3, 4, 5, 6), 10, 11, 12)
	if !slices.Equal(freed, []kv.PageID{10, 11}) {
		t.Errorf("freed %v, want b's copies of the public pages", freed)
	}
	x.matchKey(tenantKey("b", 4, 1, 2, 3, 4, 5, 6), 0, 1, 12)
	x.matchKey(tenantKey("a", 4, 1, 2, 3, 4, 5, 6), 0, 1, 2)
	if s := x.c.Stats(); s.Namespaces != 3 || s.Nodes != 4 {
		t.Errorf("stats\n%v", s)
	}
	pages := map[string]int{} // by salt
	for v := range x.c.Walk() {
		pages[v.Namespace.Salt] += len(v.Pages)
	}
	if want := map[string]int{"": 2, "a": 2, "b": 1}; !maps.Equal(pages, want) {
		t.Errorf("the salts hold pages %v, want %v", pages, want)
	}
	x.evict(9, 3, 2, 12, 0, 1)
	if x.c.Stats().Namespaces != 0 {
		t.Errorf("stats\n%v", x.c.Stats())
	}
}

// A pin in a private space protects the public part too, and a public node with a private
// space below is no leaf.
func TestPinsReachPublicPrefixes(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 2})}
	id, _ := x.insertKey(tenantKey("a", 2, 1, 2, 3, 4), 0, 1)
	x.insertKey(tenantKey("b", 2, 1, 2, 5, 6), 0, 2)
	x.c.PinNode(id)
	x.check()
	x.sizes(2, 4)
	x.evict(9, 2)
	x.c.Unpin(id)
	x.evict(1, 1)
	x.evict(1, 0)
}

func TestEventsOfPrivateSpaces(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 2, BlockTokens: 4, Events: true})}
	key := tenantKey("a", 6, countUp(1, 12)...) // block 1 begins in public
	x.insertKey(key, pageRange(0, 6)...)
	evs := x.c.TakeEvents(nil)
	public := kv.Namespace{Model: "m"}
	if len(evs) != 2 || evs[0].Namespace != public || len(evs[0].Blocks) != 1 || evs[0].HasParent {
		t.Fatalf("events %+v", evs)
	}
	if ev := evs[1]; ev.Namespace != key.Namespace || len(ev.Blocks) != 2 || !ev.HasParent || ev.Parent != evs[0].Blocks[0].Hash || !slices.Equal(ev.Blocks[0].Tokens, countUp(5, 4)) {
		t.Errorf("private event %+v", ev)
	}
	h := kv.NewHasher(key.Namespace, 4)
	h.Resume(evs[0].Blocks[0].Hash)
	if want, _ := h.Next(countUp(5, 4)); evs[1].Blocks[0].Hash != want {
		t.Errorf("block %x, want %x under the tenant's seed", evs[1].Blocks[0].Hash, want)
	}
	x.c.Evict(6, nil)
	gone := x.c.TakeEvents(nil)
	if len(gone) != 2 || gone[0].Namespace != key.Namespace || gone[1].Namespace != public {
		t.Errorf("events %+v", gone)
	}
}

func mediaKeyOf(spans []kv.Media, tokens ...kv.Token) Key { return Key{Tokens: tokens, Media: spans} }

// Equal placeholders of different media share nothing from the span on.
func TestMedia(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 1, BlockTokens: 4, Events: true})}
	cat, dog := []kv.Media{{At: 1, Tokens: 2, Hash: 7}}, []kv.Media{{At: 1, Tokens: 2, Hash: 8}}
	tokens := toks(1, 9, 9, 4)
	x.insertKey(mediaKeyOf(cat, tokens...), 0, 1, 2, 3)
	x.matchKey(mediaKeyOf(cat, tokens...), 0, 1, 2, 3)
	x.matchKey(mediaKeyOf(dog, tokens...), 0)
	x.matchKey(mediaKeyOf(nil, tokens...), 0)
	x.matchKey(mediaKeyOf([]kv.Media{{At: 1, Tokens: 1, Hash: 7}, {At: 2, Tokens: 1, Hash: 7}}, tokens...), 0, 1)
	x.insertKey(mediaKeyOf(dog, tokens...), 0, 11, 12, 13)
	x.matchKey(mediaKeyOf(dog, tokens...), 0, 11, 12, 13)
	x.matchKey(mediaKeyOf([]kv.Media{{At: 1, Tokens: 2, Hash: 9}}, tokens...), 0)
	x.matchKey(mediaKeyOf(cat, 1, 9, 8, 4), 0, 1) // another placeholder is another medium

	evs := x.c.TakeEvents(nil)
	if len(evs) != 2 || !slices.Equal(evs[0].Blocks[0].Media, []uint64{7}) || !slices.Equal(evs[0].Blocks[0].Tokens, tokens) || evs[0].Blocks[0].Hash == evs[1].Blocks[0].Hash {
		t.Errorf("events %+v", evs)
	}
	if want, _ := kv.HashLocalMedia(tokens, []uint64{7}, (kv.Namespace{}).Seed(), nil); evs[0].Blocks[0].Local != want {
		t.Errorf("local hash %x, want %x", evs[0].Blocks[0].Local, want)
	}
	if got := len(x.c.media.ids); got != 2 {
		t.Errorf("%d media have numbers, want 2", got)
	}
	x.c.Evict(3, nil) // the cat's pages, from its end
	x.check()
	if got := len(x.c.media.ids); got != 1 {
		t.Errorf("%d media have numbers, want 1", got)
	}
	x.matchKey(mediaKeyOf(cat, tokens...), 0)
	x.insertKey(mediaKeyOf([]kv.Media{{At: 0, Tokens: 3, Hash: 5}}, 9, 9, 9), 20, 21, 22)
	if got := len(x.c.media.entries); got != 2 {
		t.Errorf("%d entries, want 2: numbers are used again", got)
	}
	x.c.Evict(99, nil)
	x.check()
	if m := &x.c.media; len(m.ids) != 0 || len(m.free) != 2 {
		t.Errorf("media %+v, want none", m.ids)
	}
}

// An insert that adds nothing leaves no number of a medium in use, and a medium that does
// not fit the key cuts it short.
func TestRefusedMediaAreForgotten(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 2})}
	x.insert(toks(1, 2), 0)
	for _, span := range []kv.Media{{At: 3, Tokens: 2, Hash: 1}, {At: -1, Tokens: 2, Hash: 1}, {At: 2, Tokens: 0, Hash: 1}, {At: 9, Tokens: 1, Hash: 1}} {
		key := mediaKeyOf([]kv.Media{span}, 1, 2, 3, 4)
		want := min(max(span.At, 0), 4) / 2 * 2
		if m := x.c.Match(key); m.Tokens != min(want, 2) {
			t.Errorf("%+v: matched %d tokens", span, m.Tokens)
		}
	}
	// Half a medium at the end: of its page nothing is taken, nor of the tail.
	id, freed := x.insertKey(mediaKeyOf([]kv.Media{{At: 2, Tokens: 3, Hash: 1}}, 1, 2, 9, 9), 0, 5)
	if m := x.c.Match(keyOf(1, 2)); id != m.Node || len(freed) > 0 || x.c.Stats().Pages != 1 || len(x.c.media.ids) != 0 {
		t.Errorf("node %d, freed %v, %d pages, media %v", id, freed, x.c.Stats().Pages, x.c.media.ids)
	}
	// One that leaves a tail: its page is the tail's, the others stay the caller's.
	_, freed = x.insertKey(mediaKeyOf([]kv.Media{{At: 3, Tokens: 4, Hash: 1}}, 1, 2, 3, 9, 9, 9), 0, 30, 31)
	if m := x.c.Match(keyOf(1, 2, 3)); x.c.PartialPage(m) != 30 || len(freed) > 0 || x.c.Stats().Pages != 2 {
		t.Errorf("partial %+v, freed %v, %d pages", m.Partial, freed, x.c.Stats().Pages)
	}
	// A tail that a child holds already.
	x.insertKey(mediaKeyOf([]kv.Media{{At: 2, Tokens: 2, Hash: 1}}, 1, 2, 9, 9), 0, 6)
	_, freed = x.insertKey(mediaKeyOf([]kv.Media{{At: 2, Tokens: 1, Hash: 1}}, 1, 2, 9), 0, 7)
	if !slices.Equal(freed, []kv.PageID{7}) || len(x.c.media.ids) != 1 {
		t.Errorf("freed %v, media %v", freed, x.c.media.ids)
	}
}
