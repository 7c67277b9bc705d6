package radixcache

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// MinPages protects a namespace from Evict, not from EvictAny.
func TestQuotaMinPages(t *testing.T) {
	c := newCache(t, Config{PageTokens: 1})
	a, b := checker{t, c, kv.Namespace{Salt: "a"}}, checker{t, c, kv.Namespace{Salt: "b"}}
	if err := c.SetQuota(a.ns, Quota{MinPages: 2}); err != nil {
		t.Fatal(err)
	}
	a.insert(toks(1, 2, 3, 4), 0, 1, 2, 3)
	b.insert(toks(1, 2), 10, 11)
	a.evict(3, 2, 3, 11) // a is the older, down to its due
	a.evict(9, 10)
	a.evict(9)
	if freed := c.EvictAny(1, nil); !slices.Equal(freed, []kv.PageID{1}) {
		t.Errorf("EvictAny freed %v", freed)
	}
	if err := c.SetQuota(a.ns, Quota{}); err != nil {
		t.Fatal(err)
	}
	a.evict(9, 0)
	if s := c.Stats(); s.EvictedPages[ByCapacity] != 6 || s.EvictedPages[ByQuota] != 0 {
		t.Errorf("stats\n%v", s)
	}
}

// MaxPages is enforced by the namespace's own inserts, on nodes that they do not return.
func TestQuotaMaxPages(t *testing.T) {
	c := newCache(t, Config{PageTokens: 1})
	a, b := checker{t, c, kv.Namespace{Salt: "a"}}, checker{t, c, kv.Namespace{Salt: "b"}}
	a.insert(toks(1, 2), 0, 1)
	b.insert(toks(1, 2), 10, 11)
	if err := c.SetQuota(a.ns, Quota{MaxPages: 3}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		tokens []kv.Token
		pages  []kv.PageID
		freed  []kv.PageID
	}{
		{toks(3), []kv.PageID{2}, nil},            // at the limit
		{toks(4), []kv.PageID{3}, []kv.PageID{1}}, // one above
		{toks(5, 6, 7, 8), pageRange(4, 4), []kv.PageID{0, 2, 3}},
	} {
		if _, freed := a.insert(step.tokens, step.pages...); !slices.Equal(freed, step.freed) {
			t.Errorf("insert %v freed %v, want %v", step.tokens, freed, step.freed)
		}
	}
	id := c.Pin(a.match(toks(5, 6, 7, 8), 4, 5, 6, 7)) // one more than the limit, and pinned
	if got, freed := c.Extend(id, a.key(toks(5, 6, 7, 8, 9)), []kv.PageID{4, 5, 6, 7, 8}, nil); len(freed) > 0 {
		t.Errorf("Extend to node %d freed %v", got, freed)
	}
	b.match(toks(1, 2), 10, 11)
	if s := c.Stats(); s.EvictedPages[ByQuota] != 4 {
		t.Errorf("stats\n%v", s)
	}
	for _, q := range []Quota{{MinPages: -1}, {MaxPages: -1}, {MinPages: 2, MaxPages: 1}} {
		if err := c.SetQuota(a.ns, q); err == nil {
			t.Errorf("%+v was taken", q)
		}
	}
}

// Private tokens after public prefixes count for their namespace, the prefix does not.
func TestQuotaAfterPublicPrefixes(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 1})}
	if err := x.c.SetQuota(tenantKey("a", 0).Namespace, Quota{MaxPages: 3}); err != nil {
		t.Fatal(err)
	}
	x.insertKey(tenantKey("a", 2, 1, 2, 3, 4), 0, 1, 2, 3)
	_, freed := x.insertKey(tenantKey("a", 2, 5, 6, 7, 8), 5, 6, 7, 8)
	if !slices.Equal(freed, []kv.PageID{3}) {
		t.Errorf("freed %v, want one page of the older sequence", freed)
	}
	if err := x.c.SetQuota(tenantKey("a", 0).Namespace, Quota{}); err != nil {
		t.Fatal(err)
	}
	x.check()
}

func TestExpire(t *testing.T) {
	for _, policy := range []Policy{LRU, LFU, CostAware} {
		x := checker{T: t, c: newCache(t, Config{PageTokens: 1, Policy: policy, TTL: 64 * time.Second})}
		expire := func(seconds int, want ...kv.PageID) {
			t.Helper()
			freed := x.c.Expire(time.Duration(seconds)*time.Second, nil)
			x.check()
			if slices.Sort(freed); !slices.Equal(freed, want) {
				t.Errorf("%v: at %d s freed %v, want %v", policy, seconds, freed, want)
			}
		}
		expire(0)
		x.insert(toks(1, 2), 0, 1)
		expire(10)
		x.insert(toks(1, 3), 0, 3)
		pinned := x.c.Pin(x.c.Match(keyOf(1, 3)))
		expire(20)
		expire(73)
		expire(74, 1) // one TTL after the call that followed its last use
		expire(200)
		x.c.Unpin(pinned)
		expire(201, 0, 3)
		x.insert(toks(9), 9)
		expire(202)
		expire(265)
		expire(266, 9)
		if s := x.c.Stats(); s.EvictedPages[ByAge] != 4 || s.Nodes != 0 {
			t.Errorf("%v: stats\n%v", policy, s)
		}
	}
}

// There are few marks of time, however often Expire is called.
func TestExpireKeepsFewMarks(t *testing.T) {
	c := newCache(t, Config{PageTokens: 1, TTL: time.Second})
	for i := range 5000 {
		c.Insert(keyOf(kv.Token(i%7)), []kv.PageID{kv.PageID(i % 7)}, nil)
		c.Expire(time.Duration(i)*time.Millisecond, nil)
	}
	if got := len(c.ages.marks); got > ageSteps+2 {
		t.Errorf("%d marks of time", got)
	}
}

func TestPinPrefix(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 2, PinnedTokens: 6})}
	x.insert(toks(1, 2, 3, 4, 5, 6), 0, 1, 2)
	x.insert(toks(7, 8, 9, 9), 3, 4)
	pin := func(want error, until time.Duration, tokens ...kv.Token) {
		t.Helper()
		if err := x.c.PinPrefix(x.key(tokens), until); !errors.Is(err, want) {
			t.Errorf("pinning %v: %v, want %v", tokens, err, want)
		}
		x.check()
	}
	pinned := func(wantCount, wantTokens int) {
		t.Helper()
		if count, tokens := x.c.PinnedPrefixes(); count != wantCount || tokens != wantTokens {
			t.Errorf("%d prefixes of %d tokens are pinned, want %d of %d", count, tokens, wantCount, wantTokens)
		}
	}
	pin(ErrNotCached, 0, 1, 2, 9, 9)
	pin(ErrNotCached, 0, 1)
	pin(nil, time.Minute, 1, 2, 3, 4, 7) // the last token is not a page
	pinned(1, 4)
	pin(ErrPinBudget, 0, 7, 8, 9, 9)
	pin(nil, 0, 7, 8) // at the limit
	pin(nil, time.Second, 7, 8)
	pinned(2, 6)
	x.evict(9, 2, 4)
	x.match(toks(1, 2, 3, 4), 0, 1)
	x.c.Expire(time.Second, nil)
	x.check()
	pinned(1, 4)
	x.evict(9, 3)
	if err := x.c.UnpinPrefix(keyOf(1, 2)); !errors.Is(err, ErrNotCached) {
		t.Errorf("unpinning a prefix that is not pinned: %v", err)
	}
	if err := x.c.UnpinPrefix(keyOf(1, 2, 3, 4)); err != nil {
		t.Error(err)
	}
	x.check()
	pinned(0, 0)
	pin(nil, 0, 1, 2)
	x.c.Flush()
	x.check()
	pinned(0, 0)
	x.evict(9, 1, 0)
}

// Flushed trees are evicted first, as far as they have no pins; later entries of the same
// keys are kept apart from them.
func TestFlushWithPins(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 1, BlockTokens: 1, Events: true})}
	x.insert(toks(1, 2, 3), 0, 1, 2)
	x.insertKey(tenantKey("a", 1, 5, 6), 3, 4)
	handle := x.c.Pin(x.match(toks(1, 2), 0, 1))
	m := x.c.Match(keyOf(1, 2, 3))
	x.c.TakeEvents(nil)
	x.c.Flush()
	x.check()
	if evs := x.c.TakeEvents(nil); len(evs) != 1 || evs[0].Kind != kv.Cleared || x.c.Epoch() != 1 {
		t.Errorf("events %+v, epoch %d", evs, x.c.Epoch())
	}
	if got := x.c.Resume(keyOf(1, 2, 3), m); got.Tokens != 0 {
		t.Errorf("resumed %+v of a flushed tree", got)
	}
	x.insert(toks(1, 2, 3), 10, 11, 12)
	x.match(toks(1, 2, 3), 10, 11, 12)
	x.c.Flush()
	x.insert(toks(1), 20)
	x.evict(3, 2, 4, 3)
	x.evict(9, 10, 11, 12, 20)
	x.c.Unpin(handle)
	x.insert(toks(1), 20)
	x.evict(1, 1)
	x.evict(9, 0, 20)
	for _, ev := range x.c.TakeEvents(nil) {
		if ev.Kind == kv.Removed && len(ev.Hashes) != 1 {
			t.Errorf("event %+v of a flushed tree", ev)
		}
	}
	if s := x.c.Stats(); s.Pages != 0 || s.Namespaces != 0 || s.EvictedPages[ByFlush] != 8 {
		t.Errorf("stats\n%v", s)
	}
}

// The first victim of each policy among five leaves. Before the first eviction CostAware
// equals LRU.
func TestPoliciesChoose(t *testing.T) {
	for policy, want := range map[Policy]kv.PageID{LRU: 1, LFU: 2, FIFO: 0, MRU: 0, SLRU: 2, Priority: 3, CostAware: 1} {
		x := checker{T: t, c: newCache(t, Config{PageTokens: 1, Policy: policy})}
		for i := range kv.PageID(5) { // FIFO: 0 is the first
			id, _ := x.insert(toks(kv.Token(i)), i)
			x.c.Prioritize(id, map[kv.PageID]int32{3: -1, 4: 2}[i])
			x.c.Prioritize(id, map[kv.PageID]int32{0: 1, 1: 1, 2: 1}[i])
		}
		for _, t := range []kv.Token{1, 1, 3, 3, 4, 4, 0, 0} { // LFU, SLRU: never 2
			x.c.Unpin(x.c.Pin(x.c.Match(keyOf(t))))
		}
		for range 2 { // LRU: 1 is the least recent; 2 is refreshed without a reuse
			x.c.touch(x.c.Match(keyOf(2)).Node)
			x.c.Unpin(x.c.Pin(x.c.Match(keyOf(0))))
		}
		x.check()
		x.evict(1, want)
	}
}

// A reuse counts at once even if the leaf stays in the heap: by an Insert that adds
// nothing.
func TestReuseByInsertIsRanked(t *testing.T) {
	for _, policy := range []Policy{LFU, SLRU} {
		x := checker{T: t, c: newCache(t, Config{PageTokens: 1, Policy: policy})}
		x.insert(toks(1), 1)
		x.insert(toks(1), 1)
		x.insert(toks(2), 2)
		x.evict(1, 2)
	}
}

// A leaf in the late heap does not enter the line as well.
func TestLateLeafIsNotInTheLine(t *testing.T) {
	x := checker{T: t, c: newCache(t, Config{PageTokens: 1, Policy: CostAware, TTL: time.Hour})}
	for i := range kv.PageID(4) {
		x.insert(toks(kv.Token(10*i), kv.Token(10*i+1), kv.Token(10*i+2)), 3*i, 3*i+1, 3*i+2)
	}
	var ids []NodeID
	for i := range kv.Token(3) {
		ids = append(ids, x.c.Pin(x.c.Match(keyOf(10*i, 10*i+1, 10*i+2))))
		x.check()
	}
	x.c.oldest(x.c.common) // drops the pinned leaf
	for _, id := range []NodeID{ids[2], ids[0], ids[1]} {
		x.c.Unpin(id)
	}
	x.check()
	late := len(x.c.common.late.Items)
	x.c.Pin(x.c.Match(keyOf(20, 21, 22)))
	x.c.Pin(x.c.Match(keyOf(10)))
	x.check()
	x.c.Evict(1, nil)
	x.check()
	if late == 0 {
		t.Error("no leaf was late")
	}
}

// The queue of links whose joining loses something stays bounded.
func TestStiffLinksAreForgotten(t *testing.T) {
	c := newCache(t, Config{PageTokens: 1})
	var free []kv.PageID
	for i := range 400 {
		free = append(free, kv.PageID(i))
	}
	for i := range kv.Token(5000) {
		if len(free) < 4 {
			free = c.Evict(40, free)
		}
		c.Insert(keyOf(i, 1, 2), slices.Clone(free[:3]), nil)
		free = free[3:]
		c.Unpin(c.Pin(c.Match(keyOf(i, 1)))) // after its child: stiff
		if i%50 == 0 {
			if err := c.Check(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := len(c.links.stiff) + len(c.links.loose); got > 128+10*c.links.count {
		t.Errorf("%d links queued, there are %d", got, c.links.count)
	}
}
