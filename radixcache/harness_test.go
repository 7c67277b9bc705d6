package radixcache

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// maxPages is about the largest number of pages of a key.
const maxPages = 10

// world is the configuration of a harness, and whether it may make other calls than the
// plain ones.
type world struct {
	Config
	tenants bool // quotas, public prefixes, media
}

// harness drives a Cache and its model through the same steps and compares everything
// visible after each.
type harness struct {
	t        testing.TB
	pick     func(n int) int // a number in [0, n)
	name     string          // how to replay
	world    world
	c        *Cache
	m        *model
	free     []kv.PageID // pages that the tree does not hold
	pages    int
	held     []handle
	requests []handle // that publish as they go
	keys     []spec   // recent keys, to share prefixes with
	old      []oldMatch
	prefixes []spec // latest pinned
	now      time.Duration
	lossy    uint64 // joins seen so far
	counts   Stats  // the counts of lookups that Stats must show
	log      []string
	index    map[kv.Namespace]map[kv.BlockHash]int // fed by events alone
	given    []given                               // events of the last steps
	seen     map[string]int                        // number of events of each kind, by name
}

// handle is a pin, with the key that it was made for.
type handle struct {
	id   NodeID
	end  mkey
	line line
}

type oldMatch struct {
	spec spec
	m    Match
}

func newHarness(t testing.TB, name string, w world, pick func(int) int) *harness {
	c, err := New(w.Config)
	if err != nil {
		t.Fatal(err)
	}
	w.Config = c.cfg
	h := &harness{t: t, pick: pick, name: name, world: w, c: c, m: newModel(w.Config), pages: 64,
		index: map[kv.Namespace]map[kv.BlockHash]int{}, seen: map[string]int{}}
	for i := range h.pages {
		h.free = append(h.free, kv.PageID(i))
	}
	return h
}

func (h *harness) fail(format string, args ...any) {
	h.t.Helper()
	last := h.log[max(0, len(h.log)-25):]
	h.t.Fatalf("%s: step %d: %s\nlast steps:\n  %s\ntree:\n%s", h.name, len(h.log), fmt.Sprintf(format, args...), strings.Join(last, "\n  "), dump(h.c))
}

func (h *harness) note(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

func (h *harness) step() {
	h.c.nodes = slices.Clip(h.c.nodes) // a new slot moves the slab: no *node may be kept
	switch op := h.pick(32); {
	case op < 7:
		h.insert()
	case op < 10:
		h.resume()
	case op < 12:
		h.pin()
	case op < 13:
		h.pinPartial()
	case op < 16:
		h.unpin()
	case op < 18:
		h.begin()
	case op < 21:
		h.extend()
	case op < 22:
		h.prioritize()
	case op < 25:
		h.evict(h.pick(6), false)
	case op < 26:
		h.evict(h.pick(6), true)
	case op < 27:
		h.setQuota()
	case op < 29:
		h.expire()
	case op < 30:
		h.pinPrefix()
	case op < 31:
		h.unpinPrefix()
	case h.pick(10) == 0:
		h.flush()
	default:
		h.insert()
	}
	h.compare()
}

func (h *harness) namespace() int {
	if h.world.tenants {
		return h.pick(len(modelNamespaces))
	}
	return h.pick(3)
}

// key returns a key: mostly the beginning of an earlier one with new tokens after it.
func (h *harness) key() spec {
	s := spec{ns: h.namespace()}
	if n := len(h.keys); n > 0 && h.pick(8) > 0 {
		old := h.keys[h.pick(n)]
		if h.pick(4) > 0 {
			s.ns, s.public = old.ns, old.public
		}
		s.seq = old.seq[:h.pick(len(old.seq)+1)]
	}
	page := h.m.page
	for range min(h.pick(2*page+3), maxPages*page+2-len(s.seq)) {
		s.seq = h.grow(s.seq)
	}
	if h.world.tenants && h.pick(4) == 0 {
		s.public = h.pick(4*page + 2)
	}
	if len(h.keys) < 12 {
		h.keys = append(h.keys, s)
	} else {
		h.keys[h.pick(12)] = s
	}
	return s
}

// grow adds a token, plain, of a new medium or of the last one.
func (h *harness) grow(seq string) string {
	kinds := 3
	if h.m.page == 1 {
		kinds = plainKinds
	}
	e := byte(h.pick(kinds))
	if h.world.tenants {
		switch n := h.pick(8); {
		case n < 2:
			e |= byte(1+n)<<hashShift | firstOfSpan
		case n < 5 && len(seq) > 0 && hashOf(seq[len(seq)-1]) != 0:
			e |= byte(hashOf(seq[len(seq)-1])) << hashShift
		}
	}
	return seq + string([]byte{e})
}

func (h *harness) match(s spec) (Match, modelMatch) {
	got := h.c.Match(s.key())
	want := h.m.match(h.m.live(s))
	h.judge(s, got, want)
	if h.world.tenants && s.public == 0 && h.pick(4) == 0 { // half a medium is none
		key := s.key()
		key.Tokens = append(key.Tokens, 1, 1)
		key.Media = append(key.Media, kv.Media{At: len(s.seq), Tokens: 3, Hash: 1})
		if half := h.c.Match(key); half.Tokens != got.Tokens || half.Partial != got.Partial {
			h.fail("match %q and half a medium: %+v, without it %+v", s.seq, half, got)
		}
	}
	return got, want
}

func (h *harness) judge(s spec, got Match, want modelMatch) {
	if got.Tokens != len(want.end.seq) || (got.Node == Root) != (got.Tokens == 0) {
		h.fail("match %v: node %d, %d tokens, want %d", s, got.Node, got.Tokens, len(want.end.seq))
	}
	if pages := h.c.AppendPages(got, nil); !slices.Equal(pages, want.pages) {
		h.fail("match %v: pages %v, want %v", s, pages, want.pages)
	}
	if got.Partial.Tokens != want.tokens {
		h.fail("match %v: partial %+v, want %d tokens", s, got.Partial, want.tokens)
	}
	if want.tokens == 0 {
		return
	}
	// The model does not know the order of siblings that begin with media.
	p, ok := h.pageKey(h.c.PartialPage(got))
	switch {
	case !ok || p.mspace != want.partial.mspace || h.m.above(p).seq != s.seq[:got.Tokens] || commonBytes(p.seq, s.seq) != got.Tokens+want.tokens:
		h.fail("match %v: partial %+v is page %+v", s, got.Partial, p)
	case !h.world.tenants && p != want.partial:
		h.fail("match %v: partial %+v is %q, want %q", s, got.Partial, p.seq, want.partial.seq)
	}
}

// pageKey returns the model's key of a page.
func (h *harness) pageKey(page kv.PageID) (mkey, bool) {
	for k, e := range h.m.entries {
		if e.page == page {
			return k, true
		}
	}
	return mkey{}, false
}

// resume continues an older match, and takes a new one.
func (h *harness) resume() {
	h.note("resume")
	if n := len(h.old); n > 0 {
		o := &h.old[h.pick(n)]
		got := h.c.Resume(o.spec.key(), o.m)
		if fresh := h.c.Match(o.spec.key()); got != fresh {
			h.fail("resume of %v from %+v: %+v, afresh %+v", o.spec, o.m, got, fresh)
		}
		h.judge(o.spec, got, h.m.match(h.m.live(o.spec)))
		if got.Tokens < o.m.Tokens {
			h.seen["resume after a removal"]++
		} else if got.Tokens > o.m.Tokens && o.m.Tokens > 0 {
			h.seen["resume after growth"]++
		}
		o.m = got
	}
	s := h.key()
	m, _ := h.match(s)
	if len(h.old) < 6 {
		h.old = append(h.old, oldMatch{s, m})
	} else {
		h.old[h.pick(6)] = oldMatch{s, m}
	}
}

// compare checks the tree, its sums, the page ledger and the events' mirror.
func (h *harness) compare() {
	if err := h.c.Check(); err != nil {
		h.fail("%v", err)
	}
	tree, err := readTree(h.c)
	if err != nil {
		h.fail("%v", err)
	}
	owned := make([]int, h.pages)
	for _, p := range h.free {
		owned[p]++
	}
	for p := range tree {
		owned[p]++
	}
	if i := slices.IndexFunc(owned, func(n int) bool { return n != 1 }); i >= 0 {
		h.fail("page %d has %d owners", i, owned[i])
	}
	if len(tree) != len(h.m.entries) {
		h.fail("tree holds %d pages, want %d", len(tree), len(h.m.entries))
	}
	for k, e := range h.m.entries {
		h.comparePage(k, e, tree[e.page])
	}
	h.compareHandles()
	h.compareSums()
	h.mirror()
}

func (h *harness) comparePage(k mkey, e *entry, p treePage) {
	if p.node == Root || p.dead != (k.tree != h.m.epoch) || p.ns != k.ns || p.anchor != k.anchor || p.seq != k.seq {
		h.fail("page %d: tree has it for %+v, want %+v", e.page, p, k)
	}
	if p.pinned != (e.pins > 0) {
		h.fail("page %d of %q: pinned %v in the tree, has %d pins", e.page, k.seq, p.pinned, e.pins)
	}
	if h.m.whole && p.end != e.cut {
		h.fail("page %d of %q: node ends with it: %v, want %v", e.page, k.seq, p.end, e.cut)
	}
	if p.stamp != e.stamp {
		h.fail("page %d of %q: stamp %d, want %d", e.page, k.seq, p.stamp, e.stamp)
	}
	if h.countsHits() && p.hits != e.hits {
		h.fail("page %d of %q: hits %d, want %d", e.page, k.seq, p.hits, e.hits)
	}
	if h.m.policy == Priority && p.prio != e.prio {
		h.fail("page %d of %q: priority %d, want %d", e.page, k.seq, p.prio, e.prio)
	}
	if h.m.policy == FIFO && p.mark != e.created {
		h.fail("page %d of %q: came at %d, want %d", e.page, k.seq, p.mark, e.created)
	}
}

// countsHits reports whether the policy keeps hits exact across joins.
func (h *harness) countsHits() bool {
	p := h.m.policy
	return h.m.whole || p == LFU || p == SLRU || p == CostAware
}

func (h *harness) compareHandles() {
	for _, x := range slices.Concat(h.held, h.requests) {
		if x.id == Root {
			continue
		}
		n := &h.c.nodes[x.id]
		if e := h.m.entries[x.end]; e == nil || n.space == nil || n.end() != len(x.end.seq) || n.pages.Slice()[n.pages.Len()-1] != e.page {
			h.fail("handle %d of %q: its node ends after %d tokens", x.id, x.end.seq, n.end())
		}
	}
}

// statsFields has the fields of Stats without its String, which leaves some out.
type statsFields Stats

func (h *harness) compareSums() {
	if h.c.clock != h.m.clock || h.c.Epoch() != uint64(h.m.epoch) {
		h.fail("clock %d, epoch %d, want %d, %d", h.c.clock, h.c.Epoch(), h.m.clock, h.m.epoch)
	}
	got, want := h.c.Stats(), h.m.stats()
	gauges := got
	gauges.Lookups, gauges.LookupTokens, gauges.Hits, gauges.HitTokens = 0, 0, 0, 0
	gauges.Inserts, gauges.Splits, gauges.Joins, gauges.LossyJoins, gauges.ReturnedPages = 0, 0, 0, 0, 0
	gauges.EvictedTokens, gauges.EvictedPages, gauges.EvictedAges = want.EvictedTokens, want.EvictedPages, want.EvictedAges
	gauges.Nodes = 0
	if gauges != want {
		h.fail("stats\n%+v, want\n%+v", statsFields(gauges), statsFields(want))
	}
	if c := h.counts; got.Lookups != c.Lookups || got.LookupTokens != c.LookupTokens || got.Hits != c.Hits || got.HitTokens != c.HitTokens {
		h.fail("stats\n%+v, want\n%+v", statsFields(got), statsFields(c))
	}
	if n, _ := h.c.PinnedPrefixes(); n != len(h.m.prefixes) {
		h.fail("%d pinned prefixes, want %d", n, len(h.m.prefixes))
	}
	h.compareNodes(got.Nodes)
	h.compareMedia()
}

// compareNodes checks that the tree has at most twice the nodes of a fresh tree, not counting
// pinned links.
func (h *harness) compareNodes(nodes int) {
	pinned := 0
	for i := range h.c.nodes {
		if n := &h.c.nodes[i]; n.space != nil && n.pins > 0 && h.c.isLink(n) {
			pinned++
		}
	}
	if fresh := h.m.freshNodes(); !h.m.whole && nodes > 2*fresh+pinned {
		h.fail("%d nodes, of them %d pinned links; a fresh tree has %d", nodes, pinned, fresh)
	}
}

// compareMedia checks that media that left the tree have no number.
func (h *harness) compareMedia() {
	known := map[byte]bool{}
	for k := range h.m.entries {
		for i := len(h.m.above(k).seq); i < len(k.seq); i++ {
			if hashOf(k.seq[i]) != 0 {
				known[k.seq[i]&^firstOfSpan] = true
			}
		}
	}
	if len(h.c.media.ids) != len(known) {
		h.fail("%d media have numbers, %d are held", len(h.c.media.ids), len(known))
	}
}

// given holds events that the cache gave out, and a copy made then.
type given struct{ events, were []kv.Event }

// own checks that events of the last steps are as the cache gave them out, and that the tree
// does not need them: other goroutines read them, and the owner may do with them what it likes.
func (h *harness) own(events []kv.Event) {
	for i := range h.given {
		if g := &h.given[i]; !reflect.DeepEqual(g.events, g.were) {
			h.fail("given out as %v, the events are now %v", g.were, g.events)
		}
	}
	if len(events) > 0 {
		were := slices.Clone(events)
		for i := range were {
			ev := &were[i]
			ev.Hashes, ev.Blocks = slices.Clone(ev.Hashes), slices.Clone(ev.Blocks)
			for j := range ev.Blocks {
				b := &ev.Blocks[j]
				b.Tokens, b.Media = slices.Clone(b.Tokens), slices.Clone(b.Media)
			}
		}
		h.given = append(h.given, given{events, were})
	}
	if len(h.given) < 5 {
		return
	}
	for _, ev := range h.given[0].events {
		clear(ev.Hashes)
		for _, b := range ev.Blocks {
			clear(b.Tokens)
			clear(b.Media)
		}
		clear(ev.Blocks)
	}
	h.given = h.given[1:]
}

// mirror applies the events as a router's index would, and compares the result.
func (h *harness) mirror() {
	events := h.c.TakeEvents(nil)
	for _, ev := range events {
		if err := applyEvent(h.index, ev); err != nil {
			h.fail("%v", err)
		}
	}
	if !h.world.Events {
		return
	}
	h.own(events)
	want := map[kv.Namespace]map[kv.BlockHash]int{}
	for k, e := range h.m.entries {
		if k.tree != h.m.epoch || len(k.seq)%h.m.block != 0 {
			continue
		}
		ns := modelNamespaces[k.ns]
		if want[ns] == nil {
			want[ns] = map[kv.BlockHash]int{}
		}
		want[ns][e.hash]++
	}
	for ns := range want {
		for hash, n := range want[ns] {
			if h.index[ns][hash] != n {
				h.fail("index has block %d of %+v %d times, want %d", hash, ns, h.index[ns][hash], n)
			}
		}
	}
	for ns, set := range h.index {
		if len(set) > len(want[ns]) {
			h.fail("index has %d blocks of %+v, the tree %d", len(set), ns, len(want[ns]))
		}
	}
}

// applyEvent applies one event to an index, and fails if a parent is stored after its child or
// removed before it. The index counts each hash, as two blocks of a namespace can have the same
// hash: if the same block follows two public prefixes that end inside it, or if a block has the
// same media in another order.
func applyEvent(index map[kv.Namespace]map[kv.BlockHash]int, ev kv.Event) error {
	if ev.Kind == kv.Cleared {
		clear(index)
		return nil
	}
	set := index[ev.Namespace]
	if set == nil {
		set = map[kv.BlockHash]int{}
		index[ev.Namespace] = set
	}
	for _, hash := range ev.Hashes {
		if set[hash] == 0 {
			return fmt.Errorf("removed unknown block %d", hash)
		}
		if set[hash]--; set[hash] == 0 {
			delete(set, hash)
		}
	}
	outer := ev.Namespace
	outer.Salt = ""
	if ev.HasParent && set[ev.Parent] == 0 && index[outer][ev.Parent] == 0 {
		return fmt.Errorf("stored below unknown parent %d", ev.Parent)
	}
	last, has := ev.Parent, ev.HasParent
	for _, b := range ev.Blocks {
		if !slices.IsSorted(b.Media) {
			return fmt.Errorf("stored block with media %v", b.Media)
		}
		local := localHash(b.Tokens, b.Media, ev.Namespace)
		hash := kv.BlockHash(local)
		if has {
			hash = kv.Chain(last, local)
		}
		if local != b.Local || hash != b.Hash {
			return fmt.Errorf("stored block %+v: want local %d, hash %d", b, local, hash)
		}
		set[b.Hash]++
		last, has = hash, true
	}
	return nil
}
