package radixcache

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/coppice-llm/coppice/kv"
)

// model is the naive twin of Cache: a map with one entry per page held. It
// knows nothing of nodes but where they end (cut), which Evict depends on.
type model struct {
	page, block int
	clock       uint64
	entries     map[mkey]*entry
}

// mkey is a sequence up to and including the tokens of one page, a byte each.
type mkey struct {
	ns  int
	seq string
}

type entry struct {
	page  kv.PageID
	stamp uint64
	cut   bool // a node ends here
	held  int
	hash  kv.BlockHash // if a block ends here
}

var modelNamespaces = []kv.Namespace{{}, {LoRA: "a", Salt: "bc"}, {LoRA: "ab", Salt: "c"}}

func newModel(page, block int) *model {
	return &model{page: page, block: block, entries: map[mkey]*entry{}}
}

func (m *model) isTail(k mkey) bool { return len(k.seq)%m.page != 0 }

// above is the whole pages before k's page.
func (m *model) above(k mkey) mkey {
	return mkey{k.ns, k.seq[:(len(k.seq)-1)/m.page*m.page]}
}

// children are the pages that directly follow k, in order.
func (m *model) children(k mkey) []mkey {
	var out []mkey
	for e := range m.entries {
		if e.ns == k.ns && len(e.seq) > len(k.seq) && m.above(e) == k {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b mkey) int { return cmp.Compare(a.seq, b.seq) })
	return out
}

func (m *model) pinned(k mkey) bool {
	for e, x := range m.entries {
		// A longer page may start with a tail's tokens, but is no child of it.
		if x.held > 0 && (e == k || e.ns == k.ns && !m.isTail(k) && strings.HasPrefix(e.seq, k.seq)) {
			return true
		}
	}
	return false
}

// nodeEnd is where the node that holds k ends.
func (m *model) nodeEnd(k mkey) mkey {
	for !m.entries[k].cut {
		k = m.children(k)[0]
	}
	return k
}

type modelMatch struct {
	end     mkey
	pages   []kv.PageID
	partial mkey // the page, if tokens > 0
	tokens  int
}

func (m *model) match(ns int, seq string) modelMatch {
	out := modelMatch{end: mkey{ns, ""}}
	for n := m.page; n <= len(seq); n += m.page {
		e := m.entries[mkey{ns, seq[:n]}]
		if e == nil {
			break
		}
		out.end.seq = seq[:n]
		out.pages = append(out.pages, e.page)
	}
	whole := len(out.end.seq)
	for _, k := range m.children(out.end) { // ascending: the last lower one wins, then the first higher one
		shared := commonBytes(k.seq[whole:], seq[whole:])
		if shared > out.tokens || shared == out.tokens && shared > 0 && k.seq < seq {
			out.partial, out.tokens = k, shared
		}
	}
	return out
}

func commonBytes(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// use cuts at k and makes the path to it recent.
func (m *model) use(k mkey) {
	if k.seq != "" {
		m.entries[k].cut = true
	}
	for n := m.page; n <= len(k.seq); n += m.page {
		m.entries[mkey{k.ns, k.seq[:n]}].stamp = m.clock
	}
}

func (m *model) pin(k mkey) {
	m.clock++
	m.use(k)
	m.entries[k].held++
}

// insert changes pages as Insert must and returns what it must free, in any order.
func (m *model) insert(ns int, seq string, pages []kv.PageID) []kv.PageID {
	if seq == "" {
		return nil
	}
	m.clock++
	var freed []kv.PageID
	got := m.match(ns, seq)
	for i, p := range got.pages {
		if pages[i] != p {
			freed = append(freed, pages[i])
			pages[i] = p
		}
	}
	m.use(got.end)
	whole := len(seq) / m.page * m.page
	for n := len(got.end.seq) + m.page; n <= whole; n += m.page {
		k := mkey{ns, seq[:n]}
		m.entries[k] = &entry{page: pages[n/m.page-1], stamp: m.clock, cut: n == whole, hash: m.hash(k)}
		if n == len(got.end.seq)+m.page {
			freed = append(freed, m.dropTails(k)...)
		}
	}
	if whole == len(seq) {
		return freed
	}
	for _, k := range m.children(mkey{ns, seq[:whole]}) {
		if strings.HasPrefix(k.seq, seq) {
			if k.seq == seq {
				m.entries[k].stamp = m.clock
			}
			last := &pages[len(pages)-1]
			freed = append(freed, *last)
			*last = kv.NoPage
			return freed
		}
	}
	k := mkey{ns, seq}
	m.entries[k] = &entry{page: pages[len(pages)-1], stamp: m.clock, cut: true}
	return append(freed, m.dropTails(k)...)
}

func (m *model) dropTails(k mkey) []kv.PageID {
	var freed []kv.PageID
	for _, t := range m.children(m.above(k)) {
		if t != k && m.isTail(t) && strings.HasPrefix(k.seq, t.seq) && m.entries[t].held == 0 {
			freed = append(freed, m.entries[t].page)
			delete(m.entries, t)
		}
	}
	return freed
}

func (m *model) evict(pages int) []kv.PageID {
	var freed []kv.PageID
	for len(freed) < pages {
		var victim mkey
		for k, e := range m.entries {
			if e.cut && !m.pinned(k) && len(m.children(k)) == 0 && (victim.seq == "" || e.stamp < m.entries[victim].stamp) {
				victim = k
			}
		}
		if victim.seq == "" {
			break
		}
		var node []kv.PageID
		for {
			node = append(node, m.entries[victim].page)
			delete(m.entries, victim)
			victim = m.above(victim)
			if e := m.entries[victim]; e == nil || e.cut {
				break
			}
		}
		slices.Reverse(node)
		freed = append(freed, node...)
	}
	return freed
}

// hash of the block that ends at k, from scratch.
func (m *model) hash(k mkey) kv.BlockHash {
	if len(k.seq)%m.block != 0 {
		return 0
	}
	h := kv.NewHasher(modelNamespaces[k.ns], m.block)
	var last kv.BlockHash
	for n := m.block; n <= len(k.seq); n += m.block {
		last, _ = h.Next(tokensOf(k.seq[n-m.block : n]))
	}
	return last
}

// stats are the gauges that Stats must show.
func (m *model) stats() Stats {
	var s Stats
	spaces := map[int]bool{}
	for k, e := range m.entries {
		spaces[k.ns] = true
		n := len(k.seq) - len(m.above(k).seq)
		s.Tokens += n
		s.Pages++
		if m.pinned(k) {
			s.ProtectedTokens += n
			s.ProtectedPages++
		} else {
			s.EvictableTokens += n
			s.EvictablePages++
		}
		if e.cut {
			s.Nodes++
			if len(m.children(k)) == 0 {
				s.Leaves++
			}
		}
		if m.isTail(k) {
			s.Tails++
		}
	}
	s.Namespaces = len(spaces)
	return s
}

func tokensOf(seq string) []kv.Token {
	out := make([]kv.Token, len(seq))
	for i := range out {
		out[i] = kv.Token(seq[i])
	}
	return out
}

// contents walks the tree and lists what it holds in the model's terms.
func contents(c *Cache) (map[mkey]kv.PageID, error) {
	out := map[mkey]kv.PageID{}
	var walk func(ns int, id NodeID, prefix string) error
	walk = func(ns int, id NodeID, prefix string) error {
		n := &c.nodes[id]
		for i, p := range n.pages {
			var b []byte
			for _, t := range n.tokens[:min(len(n.tokens), (i+1)*c.cfg.PageTokens)] {
				b = append(b, byte(t))
			}
			k := mkey{ns, prefix + string(b)}
			if other, dup := out[k]; dup {
				return fmt.Errorf("%q is held twice, by pages %d and %d", k.seq, other, p)
			}
			out[k] = p
			if i == len(n.pages)-1 {
				prefix = k.seq
			}
		}
		for kid := range c.children(id) {
			if err := walk(ns, kid, prefix); err != nil {
				return err
			}
		}
		return nil
	}
	for i, ns := range modelNamespaces {
		if sp := c.spaces[ns]; sp != nil {
			if err := walk(i, sp.root, ""); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}
