package radixcache

import (
	"slices"
	"strings"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// model is the reference model of Cache: a map with one entry per page held. It has no
// nodes; it only records where nodes end (cut), which only matters for Evict with
// WholeLeaves. Each call that makes pages recent writes to every page of the path at once.
type model struct {
	page, block int
	policy      Policy
	slruHits    int
	whole       bool // WholeLeaves
	clock       uint64
	epoch       int
	privates    int // private spaces opened in dead trees
	groups      int // orders that died
	entries     map[mkey]*entry

	quotas  map[int]Quota
	tenants []int // namespaces with a quota that hold something, as they came

	ttl      time.Duration
	marks    []ageMark
	prefixes map[mkey]time.Duration
	budget   int
}

type entry struct {
	page    kv.PageID
	stamp   uint64 // last walk
	hits    uint32
	prio    int32
	created uint64
	held    int  // handles that end here
	pins    int  // handles that end here or below
	kids    int  // pages that directly follow
	cut     bool // a node ends here, with WholeLeaves
	group   int  // of the dead orders
	hash    kv.BlockHash
}

func newModel(cfg Config) *model {
	return &model{
		page: cfg.PageTokens, block: cfg.BlockTokens, policy: cfg.Policy, slruHits: cfg.SLRUHits, whole: cfg.WholeLeaves,
		entries: map[mkey]*entry{}, quotas: map[int]Quota{}, ttl: cfg.TTL,
		prefixes: map[mkey]time.Duration{}, budget: cfg.PinnedTokens,
	}
}

// path visits the pages from k up to the first.
func (m *model) path(k mkey, visit func(*entry)) {
	for ; k.seq != ""; k = m.above(k) {
		visit(m.entries[k])
	}
}

func (m *model) add(k mkey, page kv.PageID, cut bool) {
	e := &entry{page: page, stamp: m.clock, created: m.clock, cut: cut, hash: m.hash(k)}
	if up := m.entries[m.above(k)]; up != nil {
		up.kids++
		if k.tree != m.epoch {
			e.group = up.group
		}
	}
	m.entries[k] = e
}

func (m *model) remove(k mkey) kv.PageID {
	page := m.entries[k].page
	delete(m.entries, k)
	if up := m.entries[m.above(k)]; up != nil {
		up.kids--
	}
	return page
}

func (m *model) hold(k mkey) {
	m.path(k, func(e *entry) { e.pins++ })
	m.entries[k].held++
}

func (m *model) unhold(k mkey) {
	m.path(k, func(e *entry) { e.pins-- })
	m.entries[k].held--
}

// siblings returns the pages of a space that directly follow a sequence, in order.
func (m *model) siblings(sp mspace, seq string) []mkey {
	var out []mkey
	for k := range m.entries {
		if k.mspace == sp && len(k.seq) > len(seq) && m.floor(len(k.seq)-1) == len(seq) && strings.HasPrefix(k.seq, seq) {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(a, b mkey) int { return strings.Compare(a.seq, b.seq) })
	return out
}

type modelMatch struct {
	end     mkey
	pages   []kv.PageID
	partial mkey // the page, if tokens > 0
	tokens  int
}

func (m *model) match(l line) modelMatch {
	var out modelMatch
	for n := m.page; n <= len(l.seq); n += m.page {
		k := m.at(l, n)
		e := m.entries[k]
		if e == nil {
			break
		}
		out.end = k
		out.pages = append(out.pages, e.page)
	}
	whole := len(out.end.seq)
	if whole == len(l.seq) {
		return out
	}
	// Ascending: the last lower one wins, then the first higher one.
	for _, k := range m.siblings(m.at(l, whole+1).mspace, l.seq[:whole]) {
		shared := commonBytes(k.seq[whole:], l.seq[whole:])
		if shared > out.tokens || shared == out.tokens && shared > 0 && k.seq < l.seq {
			out.partial, out.tokens = k, shared
		}
	}
	return out
}

// reuse counts a reuse, as Pin does, and an Insert that finds something.
func (m *model) reuse(k mkey) {
	m.path(k, func(e *entry) { e.hits++ })
}

func (m *model) pin(k mkey) {
	m.clock++
	m.path(k, func(e *entry) { e.stamp = m.clock })
	m.entries[k].cut = true
	m.reuse(k)
	m.hold(k)
}

// insert does what Insert and Extend must do, and changes pages[from:] as they must. It returns
// where the whole pages end, how many tokens were held before, and the pages to free, in any
// order.
func (m *model) insert(l line, from int, pages []kv.PageID) (mkey, int, []kv.PageID) {
	if l.seq == "" {
		return mkey{}, 0, nil
	}
	m.clock++
	var freed []kv.PageID
	got := m.match(l)
	for i := from; i < len(got.pages); i++ {
		if pages[i] != got.pages[i] {
			freed = append(freed, pages[i])
			pages[i] = got.pages[i]
		}
	}
	end, reused, whole := got.end, len(got.end.seq), m.floor(len(l.seq))
	if reused > 0 {
		m.entries[end].cut = true
	}
	for n := reused + m.page; n <= whole; n += m.page {
		end = m.at(l, n)
		m.add(end, pages[n/m.page-1], n == whole || n == m.boundary(l.spec))
		if n == reused+m.page {
			freed = append(freed, m.dropTails(end)...)
		}
	}
	m.path(end, func(e *entry) { e.stamp = m.clock })
	if whole < len(l.seq) {
		freed = append(freed, m.insertTail(m.at(l, len(l.seq)), &pages[len(pages)-1])...)
	}
	return end, reused, freed
}

func (m *model) insertTail(k mkey, page *kv.PageID) []kv.PageID {
	held := false
	for _, other := range m.siblings(k.mspace, m.above(k).seq) {
		held = held || strings.HasPrefix(other.seq, k.seq)
	}
	if !held {
		m.add(k, *page, true)
		return m.dropTails(k)
	}
	if e := m.entries[k]; e != nil {
		e.stamp = m.clock
		if e.page == *page {
			return nil
		}
	}
	freed := []kv.PageID{*page}
	*page = kv.NoPage
	return freed
}

// dropTails removes the tails that k makes redundant.
func (m *model) dropTails(k mkey) []kv.PageID {
	var freed []kv.PageID
	for _, t := range m.siblings(k.mspace, m.above(k).seq) {
		if t != k && m.isTail(t) && strings.HasPrefix(k.seq, t.seq) && m.entries[t].pins == 0 {
			freed = append(freed, m.remove(t))
		}
	}
	return freed
}

func (m *model) prioritize(k mkey, priority int32) {
	m.path(k, func(e *entry) { e.prio = max(e.prio, priority) })
}

// pinPrefix returns nil, ErrNotCached or ErrPinBudget, as PinPrefix does.
func (m *model) pinPrefix(s spec, until time.Duration) error {
	got, whole := m.match(m.live(s)), m.floor(len(s.seq))
	used := 0
	for k := range m.prefixes {
		used += len(k.seq)
	}
	_, again := m.prefixes[got.end]
	switch {
	case whole == 0 || len(got.end.seq) < whole:
		return ErrNotCached
	case !again && used+whole > m.budget:
		return ErrPinBudget
	case !again:
		m.entries[got.end].cut = true
		m.hold(got.end)
	}
	m.prefixes[got.end] = until
	return nil
}

func (m *model) unpinPrefix(s spec) error {
	got := m.match(m.live(s))
	if _, ok := m.prefixes[got.end]; !ok || len(got.end.seq) < m.floor(len(s.seq)) {
		return ErrNotCached
	}
	m.dropPrefix(got.end)
	return nil
}

func (m *model) dropPrefix(k mkey) {
	m.unhold(k)
	delete(m.prefixes, k)
}
