package radixcache

import (
	"math"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// modeled reports whether the model ranks pages as a policy does. The ranks of other
// policies depend on where nodes end, or have no second implementation: the harness judges
// those by weaker laws.
func modeled(p Policy) bool { return p <= Priority }

// rank returns a page's rank under the model's policy: the page with the lowest rank is
// evicted first, and of pages with equal ranks the least recently used.
func (m *model) rank(e *entry) uint64 {
	switch m.policy {
	case LFU:
		return uint64(e.hits)
	case FIFO:
		return e.created
	case MRU:
		return math.MaxUint64 - e.stamp
	case SLRU:
		return uint64(min(int(e.hits)/m.slruHits, 1))
	case Priority:
		return uint64(int64(e.prio) + 1<<40)
	}
	return 0
}

// victim returns the weakest of the unpinned pages without children that may be evicted.
func (m *model) victim(may func(mkey, *entry) bool) (mkey, bool) {
	var best mkey
	var lead *entry
	for k, e := range m.entries {
		if e.kids > 0 || e.pins > 0 || !may(k, e) {
			continue
		}
		if lead == nil || e.group < lead.group || e.group == lead.group &&
			(m.rank(e) < m.rank(lead) || m.rank(e) == m.rank(lead) && e.stamp < lead.stamp) {
			best, lead = k, e
		}
	}
	return best, lead != nil
}

// take removes a victim: its page, or with WholeLeaves its node.
func (m *model) take(k mkey) []kv.PageID {
	freed := []kv.PageID{m.remove(k)}
	for m.whole {
		up := m.above(k)
		if e := m.entries[up]; e == nil || e.cut || up.mspace != k.mspace {
			break
		}
		freed = append(freed, m.remove(up))
		k = up
	}
	slices.Reverse(freed)
	return freed
}

// pagesOf returns the number of pages of a namespace.
func (m *model) pagesOf(ns int) int {
	n := 0
	for k := range m.entries {
		if k.ns == ns && k.tree == m.epoch {
			n++
		}
	}
	return n
}

// mayGo reports whether Evict, or with all EvictAny, may take page k. Evict may if k is in a
// flushed tree, or if k's namespace has more pages than its MinPages.
func (m *model) mayGo(k mkey, all bool) bool {
	q, bound := m.quotas[k.ns]
	return all || k.tree != m.epoch || !bound || m.pagesOf(k.ns) > q.MinPages
}

func (m *model) evict(pages int, all bool) []kv.PageID {
	var freed []kv.PageID
	for len(freed) < pages {
		k, ok := m.victim(func(k mkey, _ *entry) bool { return k.tree != m.epoch })
		if !ok {
			k, ok = m.victim(func(k mkey, _ *entry) bool { return m.mayGo(k, all) })
		}
		if !ok {
			break
		}
		freed = append(freed, m.take(k)...)
	}
	m.settle()
	return freed
}

// overQuota returns the namespaces of a line that hold more pages than their quota allows.
func (m *model) overQuota(l line) []int {
	if l.tree != m.epoch {
		return nil
	}
	filled := []int{l.ns}
	if m.boundary(l.spec) > 0 {
		filled = append(filled, outerOf(l.ns))
	}
	return slices.DeleteFunc(filled, func(ns int) bool {
		q := m.quotas[ns]
		return q.MaxPages == 0 || m.pagesOf(ns) <= q.MaxPages
	})
}

// keepQuota frees the pages that an insert's namespaces hold beyond their quotas, but not
// the path to end.
func (m *model) keepQuota(l line, end mkey) []kv.PageID {
	var freed []kv.PageID
	m.path(end, func(e *entry) { e.pins++ })
	for _, ns := range m.overQuota(l) {
		for m.pagesOf(ns) > m.quotas[ns].MaxPages {
			k, ok := m.victim(func(k mkey, _ *entry) bool { return k.ns == ns && k.tree == m.epoch })
			if !ok {
				break
			}
			freed = append(freed, m.take(k)...)
		}
	}
	m.path(end, func(e *entry) { e.pins-- })
	m.settle()
	return freed
}

func (m *model) setQuota(ns int, q Quota) {
	if q == (Quota{}) {
		delete(m.quotas, ns)
	} else {
		m.quotas[ns] = q
	}
	m.settle()
}

// settle updates the list of tenants, in the order in which they came: an outer namespace
// before the private one below it.
func (m *model) settle() {
	bound := func(ns int) bool {
		_, ok := m.quotas[ns]
		return ok && m.pagesOf(ns) > 0
	}
	m.tenants = slices.DeleteFunc(m.tenants, func(ns int) bool { return !bound(ns) })
	var came []int
	for ns := range modelNamespaces {
		if bound(ns) && !slices.Contains(m.tenants, ns) {
			came = append(came, ns)
		}
	}
	slices.SortStableFunc(came, func(a, b int) int { return len(modelNamespaces[a].Salt) - len(modelNamespaces[b].Salt) })
	m.tenants = append(m.tenants, came...)
}

// flush makes every living tree dead, in groups that are evicted one after another: each
// tenant's, then all others together.
func (m *model) flush() {
	for k := range m.prefixes {
		m.dropPrefix(k)
	}
	for k, e := range m.entries {
		if k.tree != m.epoch {
			continue
		}
		at := slices.Index(m.tenants, k.ns)
		if at < 0 {
			at = len(m.tenants)
		}
		e.group = m.groups + 1 + at
	}
	m.groups += len(m.tenants) + 1
	m.tenants = nil
	m.epoch++
}

func (m *model) expire(now time.Duration) []kv.PageID {
	for k, until := range m.prefixes {
		if until > 0 && until <= now {
			m.dropPrefix(k)
		}
	}
	if m.ttl == 0 {
		return nil
	}
	if last := len(m.marks) - 1; last < 0 || now-m.marks[last].now >= max(1, m.ttl/ageSteps) {
		m.marks = append(m.marks, ageMark{now, m.clock})
	}
	limit := uint64(0)
	for _, mark := range m.marks {
		if mark.now <= now-m.ttl {
			limit = mark.clock
		}
	}
	var freed []kv.PageID
	for {
		k, ok := m.victim(func(k mkey, e *entry) bool { return k.tree == m.epoch && e.stamp <= limit })
		if !ok {
			m.settle()
			return freed
		}
		freed = append(freed, m.remove(k))
	}
}

// stats returns the gauges that Stats must show, except Nodes.
func (m *model) stats() Stats {
	var s Stats
	spaces := map[mspace]bool{}
	for k, e := range m.entries {
		spaces[k.mspace] = true
		n := len(k.seq) - len(m.above(k).seq)
		if e.pins > 0 {
			s.ProtectedTokens += n
			s.ProtectedPages++
		} else {
			s.EvictableTokens += n
			s.EvictablePages++
		}
		if e.kids == 0 {
			s.Leaves++
		}
		if m.isTail(k) {
			s.Tails++
		}
	}
	s.Tokens, s.Pages = s.EvictableTokens+s.ProtectedTokens, len(m.entries)
	s.Namespaces = len(spaces)
	return s
}

// freshNodes returns the number of nodes of a tree with the same content that was built in
// one go: a node ends where a path has several continuations or none, or one that is no
// run of the same space.
func (m *model) freshNodes() int {
	runs := map[mkey]int{}
	for k := range m.entries {
		if up := m.above(k); up.seq != "" && up.mspace == k.mspace && !m.isTail(k) {
			runs[up]++
		}
	}
	n := 0
	for k, e := range m.entries {
		if e.kids != 1 || runs[k] != 1 {
			n++
		}
	}
	return n
}
