package radixcache

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/internal/invariants"
	"github.com/coppice-llm/coppice/kv"
)

// harness drives a Cache and its model through the same steps and compares
// all that can be seen after each.
type harness struct {
	t     testing.TB
	pick  func(n int) int // a number in [0, n)
	name  string          // how to replay
	c     *Cache
	m     *model
	free  []kv.PageID // pages that the tree does not hold
	pages int
	held  []handle
	keys  []mkey // recent keys, to share prefixes with
	log   []string
	index map[kv.Namespace]map[kv.BlockHash]bool // fed by events alone
}

type handle struct {
	id  NodeID
	end mkey
}

func newHarness(t testing.TB, name string, cfg Config, pick func(int) int) *harness {
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h := &harness{t: t, pick: pick, name: name, c: c, pages: 40, index: map[kv.Namespace]map[kv.BlockHash]bool{},
		m: newModel(c.Config().PageTokens, c.Config().BlockTokens)}
	for i := range h.pages {
		h.free = append(h.free, kv.PageID(i))
	}
	return h
}

func (h *harness) fail(format string, args ...any) {
	h.t.Helper()
	var tree strings.Builder
	h.c.WriteTo(&tree)
	last := h.log[max(0, len(h.log)-12):]
	h.t.Fatalf("%s: step %d: %s\nlast steps:\n  %s\ntree:\n%s", h.name, len(h.log), fmt.Sprintf(format, args...), strings.Join(last, "\n  "), tree.String())
}

func (h *harness) step() {
	switch op := h.pick(16); {
	case op < 6:
		h.insert()
	case op < 8:
		h.log = append(h.log, "match")
		h.match(h.key())
	case op < 10:
		h.pin()
	case op < 11:
		h.pinPartial()
	case op < 14:
		h.unpin()
	case op < 15 || h.pick(8) > 0:
		h.evict(h.pick(6))
	default:
		h.clear()
	}
	h.compare()
}

// key is mostly a beginning of an earlier key with something new behind it.
func (h *harness) key() mkey {
	k := mkey{ns: h.pick(len(modelNamespaces))}
	if n := len(h.keys); n > 0 && h.pick(8) > 0 {
		old := h.keys[h.pick(n)]
		if h.pick(4) > 0 {
			k.ns = old.ns
		}
		k.seq = old.seq[:h.pick(len(old.seq)+1)]
	}
	more := h.pick(2*h.m.page + 3)
	for range min(more, 6*h.m.page+6-len(k.seq)) {
		k.seq += string(rune(h.pick(3)))
	}
	if len(h.keys) < 12 {
		h.keys = append(h.keys, k)
	} else {
		h.keys[h.pick(12)] = k
	}
	return k
}

func (h *harness) match(k mkey) (Match, modelMatch) {
	h.t.Helper()
	got := h.c.Match(modelNamespaces[k.ns], tokensOf(k.seq), nil)
	want := h.m.match(k.ns, k.seq)
	if got.Tokens != len(want.end.seq) || !slices.Equal(got.Pages, want.pages) {
		h.fail("match %q: %d tokens, pages %v, want %d, %v", k.seq, got.Tokens, got.Pages, len(want.end.seq), want.pages)
	}
	if (got.Node == Root) != (got.Tokens == 0) {
		h.fail("match %q: node %d for %d tokens", k.seq, got.Node, got.Tokens)
	}
	if got.Partial.Tokens != want.tokens {
		h.fail("match %q: partial %+v, want %d tokens", k.seq, got.Partial, want.tokens)
	}
	if want.tokens > 0 && got.Partial.Page != h.m.entries[want.partial].page {
		h.fail("match %q: partial %+v, want page %d", k.seq, got.Partial, h.m.entries[want.partial].page)
	}
	return got, want
}

func (h *harness) pin() {
	k := h.key()
	h.log = append(h.log, fmt.Sprintf("pin %d %q", k.ns, k.seq))
	got, want := h.match(k)
	id := h.c.Pin(got)
	if want.end.seq == "" {
		if id != Root {
			h.fail("pinned node %d of an empty match", id)
		}
		return
	}
	h.m.pin(want.end)
	h.held = append(h.held, handle{id, want.end})
	if h.pick(2) == 0 { // pins nest
		h.c.PinNode(id)
		h.m.entries[want.end].held++
		h.held = append(h.held, handle{id, want.end})
	}
	if got.Partial.Tokens > 0 && h.pick(2) == 0 { // the partial's node outlives the split
		h.hold(got.Partial.Node, h.m.nodeEnd(want.partial))
	}
}

func (h *harness) pinPartial() {
	k := h.key()
	h.log = append(h.log, fmt.Sprintf("pin partial of %d %q", k.ns, k.seq))
	if got, want := h.match(k); want.tokens > 0 {
		h.hold(got.Partial.Node, h.m.nodeEnd(want.partial))
	}
}

func (h *harness) hold(id NodeID, end mkey) {
	h.c.PinNode(id)
	h.m.entries[end].held++
	h.held = append(h.held, handle{id, end})
}

func (h *harness) unpin() {
	h.log = append(h.log, "unpin")
	n := 1
	if len(h.held) > 10 {
		n = 8
	}
	for ; n > 0 && len(h.held) > 0; n-- {
		i := h.pick(len(h.held))
		h.c.Unpin(h.held[i].id)
		h.m.entries[h.held[i].end].held--
		h.held = slices.Delete(h.held, i, i+1)
	}
}

func (h *harness) insert() {
	k := h.key()
	h.log = append(h.log, fmt.Sprintf("insert %d %q", k.ns, k.seq))
	want := kv.CeilPages(len(k.seq), h.m.page)
	if short := want - len(h.free); short > 0 {
		h.evict(short)
		if len(h.free) < want {
			return // too much is pinned
		}
	}
	// Half of the callers bring the matched pages, as after a Pin, half their own.
	var pages []kv.PageID
	if h.pick(2) == 0 {
		got, _ := h.match(k)
		pages = got.Pages
	}
	fresh := want - len(pages)
	pages = append(pages, h.free[:fresh]...)
	h.free = slices.Delete(h.free, 0, fresh)

	tokens, wantPages := tokensOf(k.seq), slices.Clone(pages)
	wantFreed := h.m.insert(k.ns, k.seq, wantPages)
	id, freed := h.c.Insert(modelNamespaces[k.ns], tokens, pages, nil)
	for i := range tokens {
		tokens[i] = 99 // the cache must not have kept the slice
	}
	h.free = append(h.free, freed...)
	if slices.Sort(freed); !slices.Equal(freed, sorted(wantFreed)) {
		h.fail("insert freed %v, want %v", freed, wantFreed)
	}
	if !slices.Equal(pages, wantPages) {
		h.fail("insert left pages %v, want %v", pages, wantPages)
	}
	whole := mkey{k.ns, k.seq[:len(k.seq)/h.m.page*h.m.page]}
	if (id == Root) != (whole.seq == "") {
		h.fail("insert returned node %d for %d whole tokens", id, len(whole.seq))
	}
	if id != Root && h.pick(3) == 0 {
		h.hold(id, whole)
	}
}

func sorted(ids []kv.PageID) []kv.PageID {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	return ids
}

func (h *harness) evict(pages int) {
	h.log = append(h.log, fmt.Sprintf("evict %d", pages))
	before := h.c.Stats()
	got, want := h.c.Evict(pages, nil), h.m.evict(pages)
	if !slices.Equal(got, want) {
		h.fail("evict %d: freed %v, want %v", pages, got, want)
	}
	after := h.c.Stats()
	if after.ProtectedPages != before.ProtectedPages || after.EvictedPages-before.EvictedPages != uint64(len(got)) {
		h.fail("evict %d: protected pages %d -> %d, %d freed, evicted %d -> %d", pages, before.ProtectedPages, after.ProtectedPages, len(got), before.EvictedPages, after.EvictedPages)
	}
	h.free = append(h.free, got...)
}

func (h *harness) clear() {
	h.log = append(h.log, "clear")
	freed, err := h.c.Clear(nil)
	if pinned := len(h.held) > 0; pinned != errors.Is(err, ErrPinned) {
		h.fail("clear with %d handles: %v", len(h.held), err)
	}
	if err != nil {
		if len(freed) > 0 {
			h.fail("refused clear freed %v", freed)
		}
		return
	}
	h.free = append(h.free, freed...)
	clear(h.m.entries)
}

// compare checks the tree, its sums, the page ledger and the events' mirror.
func (h *harness) compare() {
	h.t.Helper()
	if err := h.c.Check(); err != nil {
		h.fail("%v", err)
	}
	held, err := contents(h.c)
	if err != nil {
		h.fail("%v", err)
	}
	if len(held) != len(h.m.entries) {
		h.fail("tree holds %d pages, want %d", len(held), len(h.m.entries))
	}
	owned := make([]int, h.pages)
	for _, p := range h.free {
		owned[p]++
	}
	for k, p := range held {
		owned[p]++
		if e := h.m.entries[k]; e == nil || e.page != p {
			h.fail("tree holds page %d for %q, want %+v", p, k.seq, e)
		}
	}
	if i := slices.IndexFunc(owned, func(n int) bool { return n != 1 }); i >= 0 {
		h.fail("page %d has %d owners", i, owned[i])
	}
	got, want := h.c.Stats(), h.m.stats()
	want.Inserts, want.Splits, want.ReturnedPages, want.SupersededTails = got.Inserts, got.Splits, got.ReturnedPages, got.SupersededTails
	want.EvictedNodes, want.EvictedPages, want.EvictedTokens = got.EvictedNodes, got.EvictedPages, got.EvictedTokens
	if got != want {
		h.fail("stats\n%v, want\n%v", got, want)
	}
	h.mirror()
}

// mirror applies the events as a router's index would, and compares.
func (h *harness) mirror() {
	h.t.Helper()
	for _, ev := range h.c.TakeEvents(nil) {
		if err := applyEvent(h.index, ev); err != nil {
			h.fail("%v", err)
		}
	}
	blocks := 0
	for _, set := range h.index {
		blocks += len(set)
	}
	for k, e := range h.m.entries {
		if !h.c.cfg.Events || len(k.seq)%h.m.block != 0 {
			continue
		}
		blocks--
		if !h.index[modelNamespaces[k.ns]][e.hash] {
			h.fail("index lacks block %d of %q", e.hash, k.seq)
		}
	}
	if blocks != 0 {
		h.fail("index has %d blocks more than the tree", blocks)
	}
}

// applyEvent is strict: parents first, children gone first, nothing twice.
func applyEvent(index map[kv.Namespace]map[kv.BlockHash]bool, ev kv.Event) error {
	set := index[ev.Namespace]
	switch ev.Kind {
	case kv.Stored:
		if ev.HasParent && !set[ev.Parent] {
			return fmt.Errorf("stored below unknown parent %d", ev.Parent)
		}
		if set == nil {
			set = map[kv.BlockHash]bool{}
			index[ev.Namespace] = set
		}
		last, has := ev.Parent, ev.HasParent
		for _, b := range ev.Blocks {
			local, _ := kv.HashLocal(b.Tokens, ev.Namespace.Seed(), nil)
			hash := kv.BlockHash(local)
			if has {
				hash = kv.Chain(last, local)
			}
			if local != b.Local || hash != b.Hash || set[b.Hash] {
				return fmt.Errorf("stored block %+v: want local %d, hash %d; known: %v", b, local, hash, set[b.Hash])
			}
			set[b.Hash] = true
			last, has = hash, true
		}
	case kv.Removed:
		for _, hash := range ev.Hashes {
			if !set[hash] {
				return fmt.Errorf("removed unknown block %d", hash)
			}
			delete(set, hash)
		}
	case kv.Cleared:
		clear(index)
	}
	return nil
}

// TestAgainstModel is the fuzz test with fixed seeds.
func TestAgainstModel(t *testing.T) {
	steps := 12000
	if invariants.Enabled {
		steps = 6000
	}
	for _, cfg := range []Config{
		{PageTokens: 1, BlockTokens: 1, Events: true},
		{PageTokens: 1, BlockTokens: 4, Events: true},
		{PageTokens: 2, BlockTokens: 6, Events: true},
		{PageTokens: 4, BlockTokens: 4, Events: true},
		{PageTokens: 4, BlockTokens: 8},
		{PageTokens: 16, Events: true},
	} {
		name := fmt.Sprintf("page=%d/block=%d/events=%v", cfg.PageTokens, cfg.BlockTokens, cfg.Events)
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(3) {
				rng := rand.New(rand.NewPCG(seed, 7))
				h := newHarness(t, fmt.Sprintf("seed %d, go test -run 'TestAgainstModel/%s'", seed, name), cfg, rng.IntN)
				for range steps / 3 {
					h.step()
				}
				s := h.c.Stats()
				if s.Splits == 0 || s.EvictedNodes == 0 || s.ReturnedPages == 0 || cfg.PageTokens > 2 && s.SupersededTails == 0 {
					t.Errorf("seed %d did not get everywhere:\n%v", seed, s)
				}
			}
		})
	}
}

// FuzzCache reads the page size and then one choice per byte. Run it with
// -fuzzminimizetime 10x: by default each new input is minimized for a minute.
func FuzzCache(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 2))
	for page := range byte(4) {
		seed := []byte{page}
		for range 600 {
			seed = append(seed, byte(rng.IntN(256)))
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 {
			return
		}
		cfg := Config{PageTokens: []int{1, 2, 4, 16}[data[0]%4], Events: true}
		cfg.BlockTokens = cfg.PageTokens * (1 + int(data[0]/4%3))
		data = data[1:min(len(data), 4000)]
		h := newHarness(t, "fuzz input", cfg, func(n int) int {
			if len(data) == 0 {
				return 0
			}
			b := data[0]
			data = data[1:]
			return int(b) % n
		})
		for len(data) > 0 {
			h.step()
		}
	})
}
