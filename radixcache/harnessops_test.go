package radixcache

import (
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// after runs after each call that changed the tree. If the call made a lossy join, which may
// raise the use of pages, the model takes over the tree's values. Otherwise the values of
// both must agree.
func (h *harness) after() {
	s := h.c.Stats()
	if s.LossyJoins == h.lossy {
		return
	}
	h.lossy = s.LossyJoins
	h.seen["lossy join"]++
	tree, err := readTree(h.c)
	if err != nil {
		h.fail("%v", err)
	}
	for k, e := range h.m.entries {
		p := tree[e.page]
		if p.stamp < e.stamp || h.countsHits() && p.hits < e.hits || p.prio < e.prio || h.m.policy == FIFO && p.mark < e.created {
			h.fail("page %d of %q: a join made %+v of %+v", e.page, k.seq, p, *e)
		}
		e.stamp, e.prio = p.stamp, p.prio
		if h.countsHits() {
			e.hits = p.hits
		}
		if h.m.policy == FIFO {
			e.created = p.mark
		}
	}
}

func (h *harness) lookedUp(asked, found int) {
	h.counts.Lookups++
	h.counts.LookupTokens += uint64(asked)
	h.counts.HitTokens += uint64(found)
	h.counts.Hits += uint64(count(found > 0))
}

func (h *harness) pin() {
	s := h.key()
	h.note("pin %v", s)
	if x, got, page := h.pinMatch(s); x.id != Root {
		h.held = append(h.held, x)
		if h.pick(2) == 0 { // pins nest
			h.hold(x.id, x.end, x.line)
		}
		if got.Partial.Tokens > 0 && h.pick(2) == 0 { // the partial's node outlives the split
			h.holdNode(got.Partial, page)
		}
	}
}

// pinMatch returns the handle, the match and its partial page.
func (h *harness) pinMatch(s spec) (handle, Match, kv.PageID) {
	got, want := h.match(s)
	page := kv.NoPage
	if got.Partial.Tokens > 0 {
		page = h.c.PartialPage(got)
	}
	id := h.c.Pin(got)
	h.lookedUp(len(s.seq), got.Tokens)
	if (id == Root) != (want.end.seq == "") {
		h.fail("pinned node %d of a match of %d tokens", id, len(want.end.seq))
	}
	if id != Root {
		h.m.pin(want.end)
	}
	h.after()
	return handle{id, want.end, h.m.live(s)}, got, page
}

func (h *harness) pinPartial() {
	s := h.key()
	h.note("pin partial of %v", s)
	if got, _ := h.match(s); got.Partial.Tokens > 0 {
		h.holdNode(got.Partial, h.c.PartialPage(got))
	}
}

// holdNode pins the whole node of a partial page.
func (h *harness) holdNode(p Partial, page kv.PageID) {
	n := &h.c.nodes[p.Node]
	if n.space == nil {
		h.fail("the node of partial page %+v has gone", p)
	}
	pages := n.pages.Slice()
	end, ok := h.pageKey(pages[len(pages)-1])
	if !ok || !slices.Contains(pages, page) {
		h.fail("node of partial page %+v has pages %v", p, pages)
	}
	h.hold(p.Node, end, line{})
}

func (h *harness) hold(id NodeID, end mkey, l line) {
	h.c.PinNode(id)
	h.m.hold(end)
	h.held = append(h.held, handle{id, end, l})
}

func (h *harness) unpin() {
	h.note("unpin")
	n := 1
	if len(h.held) > 10 {
		n = 8
	}
	for ; n > 0 && len(h.held) > 0; n-- {
		i := h.pick(len(h.held))
		h.release(h.held[i])
		h.held = slices.Delete(h.held, i, i+1)
	}
}

func (h *harness) release(x handle) {
	h.c.Unpin(x.id)
	if x.id != Root {
		h.m.unhold(x.end)
	}
	h.after()
}

// room evicts until there are this many free pages; false if too much is pinned.
func (h *harness) room(pages int) bool {
	if short := pages - len(h.free); short > 0 {
		h.evict(short, false)
	}
	return len(h.free) >= pages
}

func (h *harness) draw(n int) []kv.PageID {
	out := slices.Clone(h.free[:n])
	h.free = slices.Delete(h.free, 0, n)
	return out
}

func (h *harness) insert() {
	s := h.key()
	h.note("insert %v", s)
	want := kv.CeilPages(len(s.seq), h.m.page)
	if !h.room(want) {
		return
	}
	// Half of the callers bring the matched pages, as after a Pin, half their own.
	var pages []kv.PageID
	l := h.m.live(s)
	tail := h.m.entries[h.m.at(l, len(s.seq))]
	if h.pick(2) == 0 {
		got, _ := h.match(s)
		pages = h.c.AppendPages(got, nil)
	}
	same := len(pages) < want && tail != nil && len(s.seq)%h.m.page != 0 && h.pick(2) == 0
	pages = append(pages, h.draw(want-len(pages)-count(same))...)
	if same {
		pages = append(pages, tail.page)
	}

	key, wantPages := s.key(), slices.Clone(pages)
	end, reused, wantFreed := h.m.insert(l, 0, wantPages)
	if reused > 0 {
		h.m.reuse(h.m.at(l, reused))
	}
	id, freed := h.c.Insert(key, pages, nil)
	h.lookedUp(len(s.seq), reused)
	h.afterInsert(handle{id, end, l}, key, pages, wantPages, freed, wantFreed)
	if id != Root && h.pick(3) == 0 {
		h.hold(id, end, l)
	}
	if k := h.m.at(l, len(s.seq)); h.m.entries[k] != nil && h.m.isTail(k) && h.pick(3) == 0 { // pinned tails hinder nothing
		tree, _ := readTree(h.c)
		h.hold(tree[h.m.entries[k].page].node, k, l)
	}
}

// afterInsert compares the results of Insert or Extend with the model's.
func (h *harness) afterInsert(x handle, key Key, pages, wantPages, freed, wantFreed []kv.PageID) {
	for i := range key.Tokens {
		key.Tokens[i] = 99 // the cache must not have kept the slice
	}
	if !slices.Equal(pages, wantPages) {
		h.fail("pages are now %v, want %v", pages, wantPages)
	}
	if (x.id == Root) != (x.end.seq == "") {
		h.fail("node %d for %d whole tokens", x.id, len(x.end.seq))
	}
	h.free = append(h.free, freed...)
	before := len(wantFreed)
	if !modeled(h.m.policy) {
		extra := without(freed, wantFreed)
		if len(extra)+len(wantFreed) != len(freed) {
			h.fail("freed %v, want %v among them", freed, wantFreed)
		}
		h.byQuota(x, extra)
		h.m.settle()
	} else if wantFreed = append(wantFreed, h.m.keepQuota(x.line, x.end)...); !sameIDs(freed, wantFreed) {
		h.fail("freed %v, want %v", freed, wantFreed)
	}
	if len(freed) > before {
		h.seen["freed by quota"]++
	}
	h.after()
}

// byQuota checks the pages that an insert freed for a quota, under a policy that the model does
// not implement: they must be of the namespaces that the insert grew, and no more than needed.
func (h *harness) byQuota(x handle, freed []kv.PageID) {
	over := h.m.overQuota(x.line)
	for _, p := range freed {
		if k, _ := h.pageKey(p); !slices.Contains(over, k.ns) {
			h.fail("freed page %d of %+v, want it of %v", p, k, over)
		}
	}
	h.m.path(x.end, func(e *entry) { e.pins++ })
	h.removeLeaves(freed)
	for _, ns := range h.m.overQuota(x.line) {
		if k, ok := h.m.victim(func(k mkey, _ *entry) bool { return k.ns == ns && k.tree == h.m.epoch }); ok {
			h.fail("namespace %d holds %d pages, %d are its limit; %+v might go", ns, h.m.pagesOf(ns), h.m.quotas[ns].MaxPages, k)
		}
	}
	for _, ns := range over {
		if held := h.m.pagesOf(ns); !h.m.whole && held < h.m.quotas[ns].MaxPages {
			h.fail("namespace %d holds %d pages of %d after it was cut", ns, held, h.m.quotas[ns].MaxPages)
		}
	}
	h.m.path(x.end, func(e *entry) { e.pins-- })
}

// removeLeaves removes pages from the model, each once no page is below it.
func (h *harness) removeLeaves(pages []kv.PageID) {
	for left := slices.Clone(pages); len(left) > 0; {
		before := len(left)
		left = slices.DeleteFunc(left, func(p kv.PageID) bool {
			k, ok := h.pageKey(p)
			if !ok || h.m.entries[k].kids > 0 || h.m.entries[k].pins > 0 {
				return false
			}
			h.m.remove(k)
			return true
		})
		if len(left) == before {
			h.fail("freed %v of which %v are pinned, or not leaves", pages, left)
		}
	}
}

// begin starts a request: the pages that it finds are pinned, and some of the rest computed.
func (h *harness) begin() {
	if len(h.requests) == 4 {
		h.extend()
		return
	}
	s := h.key()
	h.note("begin %v", s)
	x, _, _ := h.pinMatch(spec{s.ns, s.public, s.seq[:max(0, len(s.seq)-1)]})
	x.line = h.m.live(s)
	h.requests = append(h.requests, x)
}

// extend publishes a chunk of a request, or ends it. Each request continues a little after
// its prompt.
func (h *harness) extend() {
	if len(h.requests) == 0 {
		h.note("no request")
		return
	}
	i := h.pick(len(h.requests))
	x := &h.requests[i]
	if h.pick(4) == 0 || len(x.line.seq) > maxPages*h.m.page {
		h.note("end of request %d", x.id)
		h.release(*x)
		h.requests = slices.Delete(h.requests, i, i+1)
		return
	}
	s, done := x.line.spec, len(x.end.seq)
	for range h.pick(3) {
		s.seq = h.grow(s.seq)
	}
	x.line.spec = s
	s.seq = s.seq[:min(len(s.seq), done+h.pick(3*h.m.page+1))]
	h.note("extend %d from %d: %v", x.id, done, s)
	h.publish(x, s)
}

// publish extends a handle to a longer key.
func (h *harness) publish(x *handle, s spec) {
	want, from := kv.CeilPages(len(s.seq), h.m.page), len(x.end.seq)/h.m.page
	if !h.room(want - from) {
		return
	}
	l := line{s, x.line.tree, x.line.private}
	if x.id == Root {
		l = h.m.live(s)
	}
	public := h.m.boundary(s)
	if l.tree != h.m.epoch {
		h.seen["extend in a dead tree"]++
		if public > 0 && len(s.seq) > public && len(x.end.seq) <= public {
			h.m.privates++
			l.private = h.m.privates
			h.seen["private space in a dead tree"]++
		}
	}
	pages := slices.Repeat([]kv.PageID{kv.NoPage}, from) // not looked at
	if got := h.m.match(l); len(got.pages) > from && h.pick(2) == 0 {
		pages = append(pages, got.pages[from:]...)
	}
	pages = append(pages, h.draw(want-len(pages))...)
	wantPages, key := slices.Clone(pages), s.key()
	end, _, wantFreed := h.m.insert(l, from, wantPages)
	if s.seq == "" || len(end.seq) == len(x.end.seq) {
		end = x.end
	}
	id, freed := h.c.Extend(x.id, key, pages, nil)
	if end != x.end {
		h.m.hold(end)
		if x.id != Root {
			h.m.unhold(x.end)
		}
	} else if id != x.id {
		h.fail("extend moved the handle %d to %d", x.id, id)
	}
	x.id, x.end, x.line.tree, x.line.private = id, end, l.tree, 0
	if end.anchor != "" {
		x.line.private = l.private
	}
	h.afterInsert(handle{id, end, l}, key, pages, wantPages, freed, wantFreed)
}

func (h *harness) prioritize() {
	c, ok := any(h.c).(interface{ Prioritize(NodeID, int32) })
	if all := slices.Concat(h.held, h.requests); ok && len(all) > 0 {
		x, p := all[h.pick(len(all))], int32(h.pick(5)-1)
		h.note("prioritize %d: %d", x.id, p)
		if x.id != Root {
			c.Prioritize(x.id, p)
			h.m.prioritize(x.end, p)
		}
	}
}
