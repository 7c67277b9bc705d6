package radixcache

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/internal/invariants"
	"github.com/coppice-llm/coppice/kv"
)

// Distrusted pages without a pin are purged, with everything below them and their events;
// the pages before them stay.
func TestDistrustRemoves(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 2, Events: true, BlockTokens: 2})}
	x.insert(countUp(1, 10), pageRange(0, 5)...)
	x.insert(append(countUp(1, 6), 77, 78), 0, 1, 2, 20)                // differs after 6 tokens
	x.insert(append(countUp(1, 10), 88, 89, 90), 0, 1, 2, 3, 4, 30, 31) // continues it, with a tail
	x.c.TakeEvents(nil)
	x.c.Distrust(x.key(countUp(1, 10)), 5) // in the page from 4 on
	if m := x.match(countUp(1, 10), 0, 1); !m.Distrusted || m.Partial.Tokens != 0 {
		t.Errorf("match %+v", m)
	}
	if e := x.c.Explain(x.key(countUp(1, 10))); e.Why != WhyDistrusted {
		t.Errorf("explained by %v", e.Why)
	}
	freed := x.c.Purge(nil)
	x.check()
	if slices.Sort(freed); !slices.Equal(freed, []kv.PageID{2, 3, 4, 20, 30, 31}) {
		t.Errorf("freed %v", freed)
	}
	removed := 0
	for _, e := range x.c.TakeEvents(nil) {
		if e.Kind != kv.Removed {
			t.Errorf("an event %v", e.Kind)
		}
		removed += len(e.Hashes)
	}
	if removed != 5 || x.c.Distrusted() != 0 || x.c.Stats().EvictedPages[ByDistrust] != 6 {
		t.Errorf("%d blocks removed, %d nodes distrusted, %v", removed, x.c.Distrusted(), x.c.Stats())
	}
	x.match(countUp(1, 10), 0, 1)
	x.insert(countUp(1, 10), 0, 1, 40, 41, 42) // computed again
	x.match(countUp(1, 10), 0, 1, 40, 41, 42)
}

// Distrusted pages that a request holds stay for that request and are hidden from others
// until the request trusts them. If it does not, Purge removes them after its last Unpin.
// Distrusted pages below the held ones are purged at once.
func TestDistrustHidesPinnedNodes(t *testing.T) {
	for _, trusted := range []bool{true, false} {
		x := checker{T: t, c: newCache(t, Config{PageTokens: 2, PinnedTokens: 100})}
		x.insert(countUp(1, 12), pageRange(0, 6)...)
		handle := x.c.Pin(x.c.Match(x.key(countUp(1, 8))))
		old := x.c.Match(x.key(countUp(1, 12)))
		if err := x.c.PinPrefix(x.key(countUp(1, 4)), 0); err != nil {
			t.Fatal(err)
		}
		x.c.Distrust(x.key(countUp(1, 12)), 2)
		if freed := x.c.Purge(nil); !slices.Equal(freed, []kv.PageID{4, 5}) {
			t.Errorf("freed %v", freed)
		}
		x.check()
		x.match(countUp(1, 12), 0)
		if m := x.c.Resume(x.key(countUp(1, 12)), old); m.Tokens != 2 || !m.Distrusted {
			t.Errorf("resumed %+v", m)
		}
		if n, _ := x.c.PinnedPrefixes(); n != 0 {
			t.Errorf("%d prefixes are pinned", n)
		}
		if err := x.c.PinPrefix(x.key(countUp(1, 4)), 0); !errors.Is(err, ErrNotCached) {
			t.Errorf("a distrusted prefix can be pinned: %v", err)
		}
		if trusted {
			x.c.Trust(handle)
			x.match(countUp(1, 12), 0, 1, 2, 3)
		}
		x.c.Unpin(handle)
		freed := x.c.Purge(nil)
		x.check()
		if slices.Sort(freed); trusted && len(freed) > 0 || !trusted && !slices.Equal(freed, []kv.PageID{1, 2, 3}) {
			t.Errorf("trusted %v: freed %v", trusted, freed)
		}
		if x.c.Distrusted() != 0 {
			t.Errorf("%d nodes are distrusted", x.c.Distrusted())
		}
	}
}

// A split of a distrusted node gives two such nodes, and a tail that continues the key is
// distrusted too.
func TestDistrustSplitsAndTails(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 4})}
	x.insert(countUp(1, 19), pageRange(0, 5)...) // 16 and a tail of 3
	deep := x.c.Pin(x.c.Match(x.key(countUp(1, 16))))
	x.c.Distrust(x.key(countUp(1, 20)), 8)
	x.c.Distrust(x.key(countUp(1, 20)), 4) // marks the node above as well
	if freed := x.c.Purge(nil); !slices.Equal(freed, []kv.PageID{4}) {
		t.Errorf("freed %v", freed)
	}
	x.match(countUp(1, 19), 0)
	x.insert(append(countUp(1, 12), 77, 77, 77, 77), 0, 1, 2, 50) // splits a distrusted node
	x.check()
	x.match(countUp(1, 12), 0)
	x.c.Trust(deep)
	x.match(append(countUp(1, 12), 77, 77, 77, 77), 0, 1, 2, 50)
	x.c.Unpin(deep)
	x.check()

	x.c.Distrust(x.key(countUp(1, 3)), 3) // nothing from there on
	x.c.Distrust(x.key(toks(99, 99, 99, 99)), 0)
	x.c.Distrust(Key{Namespace: kv.Namespace{Salt: "unused"}, Tokens: countUp(1, 8)}, 0)
	if x.c.Distrusted() != 0 {
		t.Errorf("%d nodes are distrusted", x.c.Distrusted())
	}
}

// A node that shares more tokens with the key than are known to be sound may be a copy, and
// is purged; a node that shares no more than the sound tokens stays.
func TestDistrustTakesCopies(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 4})}
	x.insert(toks(1, 2, 3, 4), 0)
	x.insert(toks(1, 2, 3, 4, 5, 6, 70, 70, 70), 0, 1, 2)
	x.insert(toks(1, 2, 3, 4, 5, 6, 7, 80, 80), 0, 3, 4)
	x.c.Distrust(x.key(toks(1, 2, 3, 4, 5, 6, 7, 8, 9)), 6)
	freed := x.c.Purge(nil)
	x.check()
	if slices.Sort(freed); !slices.Equal(freed, []kv.PageID{3, 4}) {
		t.Errorf("freed %v", freed)
	}
	x.match(toks(1, 2, 3, 4, 5, 6, 70, 70, 70), 0, 1)
}

// Random requests share, pin and extend prefixes, fail (Distrust) and succeed (Trust). A match
// never returns a distrusted page, and after Purge only pages that a request holds are
// distrusted.
func TestDistrustAtRandom(t *testing.T) {
	seeds := 300
	if invariants.Enabled {
		seeds = 30
	}
	hidden, removed, vouched := 0, 0, 0
	for seed := range seeds {
		w := newDoubtWorld(t, uint64(seed))
		for range 150 {
			w.step()
			if err := w.c.Check(); err != nil {
				t.Fatalf("seed %d: %v\n%v", seed, err, w.log[max(0, len(w.log)-10):])
			}
		}
		hidden, removed, vouched = hidden+w.hidden, removed+w.removed, vouched+w.vouched
	}
	if least := seeds / 4; hidden < least || removed < least || vouched < least {
		t.Errorf("%d matches stopped at marks, %d pages removed, %d vouched for: too easy", hidden, removed, vouched)
	}
}

// doubtWorld records for each page whether it is distrusted.
type doubtWorld struct {
	*testing.T
	c       *Cache
	rng     *rand.Rand
	next    kv.PageID
	bad     map[kv.PageID]bool
	handles []doubtHandle
	matches []doubtHandle // of old
	log     []string

	hidden, removed, vouched int
}

type doubtHandle struct {
	id     NodeID
	tokens []kv.Token
	m      Match
}

func newDoubtWorld(t *testing.T, seed uint64) *doubtWorld {
	page := 1 + int(seed%3)
	return &doubtWorld{T: t, c: newCache(t, Config{PageTokens: page, Events: seed%2 == 0, Policy: Policy(seed % 2)}), rng: rand.New(rand.NewPCG(seed, 1)), bad: map[kv.PageID]bool{}}
}

func (w *doubtWorld) step() {
	tokens := make([]kv.Token, 1+w.rng.IntN(12))
	for i := range tokens {
		tokens[i] = kv.Token(w.rng.IntN(2))
	}
	key := Key{Tokens: tokens}
	m := w.look(key)
	switch w.rng.IntN(7) {
	case 0, 1: // computed and published, unless it meets a mark
		if !m.Distrusted {
			pages := make([]kv.PageID, kv.CeilPages(len(tokens), w.c.cfg.PageTokens))
			for i := range pages {
				pages[i] = w.next
				w.next++
			}
			w.note("insert %v", tokens)
			w.c.Insert(key, pages, nil)
		}
	case 2:
		w.note("pin %v", tokens)
		w.handles = append(w.handles, doubtHandle{id: w.c.Pin(m), tokens: tokens[:m.Tokens]})
	case 3:
		if n := len(w.handles); n > 0 {
			i := w.rng.IntN(n)
			w.note("unpin %v", w.handles[i].tokens)
			w.c.Unpin(w.handles[i].id)
			w.handles = slices.Delete(w.handles, i, i+1)
			w.purge()
		}
	case 4:
		w.distrust(key, m)
	case 5:
		if n := len(w.handles); n > 0 {
			h := w.handles[w.rng.IntN(n)]
			w.note("trust %v", h.tokens)
			w.c.Trust(h.id)
			for _, id := range w.c.appendPath(h.id, len(h.tokens), nil) {
				if w.bad[id] {
					w.vouched++
				}
				delete(w.bad, id)
			}
		}
	case 6:
		if w.rng.IntN(4) == 0 {
			w.note("evict")
			for _, id := range w.c.Evict(1+w.rng.IntN(3), nil) {
				delete(w.bad, id)
			}
		}
	}
}

// look matches a key and resumes an old match of it: both must agree.
func (w *doubtWorld) look(key Key) Match {
	m := w.c.Match(key)
	w.judge(m)
	if n := len(w.matches); n > 0 {
		old := w.matches[w.rng.IntN(n)]
		k := Key{Tokens: old.tokens}
		if got, want := w.c.Resume(k, old.m), w.c.Match(k); got != want {
			w.Fatalf("resumed %+v, matched %+v\n%v", got, want, w.log)
		}
	}
	w.matches = append(w.matches, doubtHandle{tokens: slices.Clone(key.Tokens), m: m})
	return m
}

func (w *doubtWorld) judge(m Match) {
	if m.Distrusted {
		w.hidden++
	}
	pages := w.c.AppendPages(m, nil)
	if m.Partial.Tokens > 0 {
		pages = append(pages, w.c.PartialPage(m))
	}
	for _, id := range pages {
		if w.bad[id] {
			w.Fatalf("a match gives page %d, which is distrusted\n%v", id, w.log)
		}
	}
}

// distrust marks the held pages of a key, which the nodes give without regard to marks.
func (w *doubtWorld) distrust(key Key, m Match) {
	from := w.rng.IntN(len(key.Tokens) + 1)
	w.note("distrust %v from %d", key.Tokens, from)
	page := w.c.cfg.PageTokens
	r := route{ns: &key.Namespace}
	r.tokens, r.public = w.c.read(&key)
	if root, ok := w.c.enter(r.outer(), Root); ok {
		cur, _ := w.c.follow(cursor{node: root}, &r, len(r.tokens), false)
		for i, id := range w.c.appendPath(cur.node, cur.tokens, nil) {
			if i >= from/page {
				w.bad[id] = true
			}
		}
	}
	w.c.Distrust(key, from)
	w.purge()
}

func (w *doubtWorld) purge() {
	for _, id := range w.c.Purge(nil) {
		w.removed++
		delete(w.bad, id)
	}
	if len(w.handles) == 0 && (w.c.Distrusted() > 0 || len(w.bad) > 0) {
		w.Fatalf("without handles, %d nodes and pages %v are distrusted\n%v", w.c.Distrusted(), w.bad, w.log)
	}
}

func (w *doubtWorld) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}
