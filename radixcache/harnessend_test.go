package radixcache

import (
	"errors"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// Steps that remove pages, and those that keep them: eviction, quotas, ages, prefix pins,
// flushes.

func (h *harness) evict(pages int, all bool) {
	h.note("evict %d, all %v", pages, all)
	before := h.c.Stats()
	weakest := h.weakest(all)
	var got []kv.PageID
	if !all {
		got = h.c.Evict(pages, nil)
	} else {
		got = h.c.EvictAny(pages, nil)
		h.seen["evict any"]++
	}
	h.free = append(h.free, got...)
	if !modeled(h.m.policy) {
		h.judgeEvict(got, pages, all, weakest)
	} else if want := h.m.evict(pages, all); !sameIDs(got, want) || h.m.whole && !slices.Equal(got, want) {
		h.fail("evict %d, all %v: freed %v, want %v", pages, all, got, want)
	}
	_, was := before.Evicted()
	now, after := h.c.Stats(), uint64(0)
	if _, after = now.Evicted(); now.ProtectedPages != before.ProtectedPages || after-was != uint64(len(got)) {
		h.fail("evict %d: protected pages %d -> %d, %d freed, evicted %d -> %d", pages, before.ProtectedPages, now.ProtectedPages, len(got), was, after)
	}
	h.after()
}

// weakest returns the pages of the living node from which Evict must take first, by a
// search through all nodes.
func (h *harness) weakest(all bool) []kv.PageID {
	if modeled(h.m.policy) {
		return nil
	}
	h.c.settle() // as Evict does first
	best := Root
	for i := range h.c.nodes {
		id, n := NodeID(i), &h.c.nodes[i]
		if n.space == nil || n.flags&isRoot != 0 || n.pins > 0 || !n.isLeaf() || n.space.dead {
			continue
		}
		k, _ := h.pageKey(n.pages.Slice()[0])
		if h.m.mayGo(k, all) && (best == Root || (heapKey{h.c.rank(n), n.stamp, id}).Before(heapKey{h.c.rank(&h.c.nodes[best]), h.c.nodes[best].stamp, best})) {
			best = id
		}
	}
	if best == Root {
		return nil
	}
	return slices.Clone(h.c.nodes[best].pages.Slice())
}

// judgeEvict checks an eviction under a policy whose ranks depend on node ends: the removed
// pages were unpinned leaves, flushed ones first, then the weakest, as many as were asked
// for, and every namespace keeps its MinPages unless all may go.
func (h *harness) judgeEvict(freed []kv.PageID, pages int, all bool, weakest []kv.PageID) {
	dead := h.m.victimOfDead()
	if len(freed) > 0 && dead.seq == "" && !slices.Contains(weakest, freed[0]) {
		h.fail("evict %d, all %v: freed %v, the weakest node had %v", pages, all, freed, weakest)
	}
	held := map[int]int{}
	for ns := range h.m.quotas {
		held[ns] = h.m.pagesOf(ns)
	}
	living := 0
	for _, p := range freed {
		if k, _ := h.pageKey(p); k.tree == h.m.epoch {
			living++
		}
	}
	h.removeLeaves(freed)
	if k := h.m.victimOfDead(); k.seq != "" && (living > 0 || len(freed) < pages) {
		h.fail("evict %d, all %v: freed %v, not the dead page of %+v", pages, all, freed, k)
	}
	for ns, q := range h.m.quotas {
		if now := h.m.pagesOf(ns); !all && now < min(held[ns], q.MinPages) && !h.m.whole {
			h.fail("evict %d, all %v: namespace %d has %d of its %d pages", pages, all, ns, now, q.MinPages)
		}
	}
	if k, ok := h.m.victim(func(k mkey, _ *entry) bool { return h.m.mayGo(k, all) }); ok && len(freed) < pages || len(freed) > pages && !h.m.whole {
		h.fail("evict %d, all %v: freed %v; %+v might go", pages, all, freed, k)
	}
	h.m.settle()
}

func (m *model) victimOfDead() mkey {
	k, _ := m.victim(func(k mkey, _ *entry) bool { return k.tree != m.epoch })
	return k
}

func (h *harness) setQuota() {
	if !h.world.tenants {
		h.note("no quota")
		return
	}
	ns, q := h.namespace(), Quota{}
	if h.pick(4) > 0 {
		q.MinPages = h.pick(6)
		if h.pick(2) == 0 {
			q.MaxPages = q.MinPages + h.pick(8)
		}
	}
	h.note("quota of %d: %+v", ns, q)
	if err := h.c.SetQuota(modelNamespaces[ns], q); err != nil {
		h.fail("%v", err)
	}
	h.m.setQuota(ns, q)
}

func (h *harness) expire() {
	h.now += time.Duration(h.pick(20))
	h.note("expire at %d", h.now)
	got, want := h.c.Expire(h.now, nil), h.m.expire(h.now)
	if !sameIDs(got, want) {
		h.fail("expire: freed %v, want %v", got, want)
	}
	if len(got) > 0 {
		h.seen["expired"]++
	}
	h.free = append(h.free, got...)
	h.after()
}

func (h *harness) pinPrefix() {
	s, until := h.heldKey(), time.Duration(0)
	if h.pick(2) == 0 {
		until = h.now + time.Duration(h.pick(60))
	}
	h.note("pin prefix %v until %d", s, until)
	got, want := h.c.PinPrefix(s.key(), until), h.m.pinPrefix(s, until)
	if !errors.Is(got, want) {
		h.fail("pin prefix: %v, want %v", got, want)
	}
	switch want {
	case nil:
		h.seen["pinned prefix"]++
		h.prefixes = append(h.prefixes[max(0, len(h.prefixes)-3):], s)
	case ErrPinBudget:
		h.seen["budget for prefixes used up"]++
	}
	h.after()
}

// heldKey returns mostly a part of a recent key that is held.
func (h *harness) heldKey() spec {
	if len(h.keys) == 0 || h.pick(4) == 0 {
		return h.key()
	}
	s := h.keys[h.pick(len(h.keys))]
	if got := h.m.match(h.m.live(s)); h.pick(2) == 0 {
		s.seq = got.end.seq
	}
	return s
}

func (h *harness) unpinPrefix() {
	s := h.key()
	if n := len(h.prefixes); n > 0 && h.pick(4) > 0 {
		s = h.prefixes[h.pick(n)]
	}
	h.note("unpin prefix %v", s)
	got, want := h.c.UnpinPrefix(s.key()), h.m.unpinPrefix(s)
	if !errors.Is(got, want) {
		h.fail("unpin prefix: %v, want %v", got, want)
	}
	if want == nil {
		h.seen["unpinned prefix"]++
	}
	h.after()
}

func (h *harness) flush() {
	h.note("flush")
	h.c.Flush()
	h.m.flush()
	h.after()
	h.seen["flush"]++
	if len(h.held)+len(h.requests) > 0 {
		h.seen["flush with handles"]++
	}
	for _, s := range h.keys {
		if m := h.c.Match(s.key()); m.Tokens != 0 || m.Partial.Tokens != 0 {
			h.fail("match after a flush: %+v", m)
		}
	}
}

func sameIDs(a, b []kv.PageID) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// without returns a without the elements of b, each of which is in a once.
func without(a, b []kv.PageID) []kv.PageID {
	return slices.DeleteFunc(slices.Clone(a), func(p kv.PageID) bool { return slices.Contains(b, p) })
}
