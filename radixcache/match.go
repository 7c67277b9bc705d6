package radixcache

import (
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// Match is what the tree holds of a key. It is valid until the tree's shape
// changes: an Insert that adds something, an Evict that removes something, a
// Clear, or a Pin that splits.
type Match struct {
	Node    NodeID      // deepest node that the matched whole pages reach, maybe ending inside it; Root if none
	Tokens  int         // whole pages matched, in tokens
	Pages   []kv.PageID // dst with the Tokens/PageTokens pages appended, ascending token position
	Partial Partial     // the page that shares most of the next page's tokens; Tokens 0 if none

	offset  int    // tokens matched of Node's edge
	version uint64 // of the cache at the time
}

// Partial is a page of the tree whose first tokens continue the whole pages of
// a [Match]. It belongs to the tree and may only be copied from. Pin Node by
// [Cache.PinNode] while the copy runs; a Pin of the match leaves Node valid.
type Partial struct {
	Node   NodeID
	Page   kv.PageID
	Tokens int // shared with the key: 1 <= Tokens < PageTokens
}

// Match finds the longest prefix of tokens held under ns: whole pages, and the
// best partial page after them. It reads only: it neither splits nor refreshes
// recency, and does not allocate if dst has room. Of several pages that share
// equally much it names the nearest lower sibling of the key, else the nearest
// higher one.
//
// Cost: one comparison per matched token, and per visited node a binary search
// over its children.
func (c *Cache) Match(ns kv.Namespace, tokens []kv.Token, dst []kv.PageID) Match {
	m := Match{Pages: dst, version: c.version}
	sp := c.spaces[ns]
	if sp == nil {
		return m
	}
	page := c.cfg.PageTokens
	kids := c.nodes[sp.root].children
	for rest := tokens; len(rest) > 0; rest = tokens[m.Tokens:] {
		at, found := c.find(kids, rest)
		if !found {
			m.Partial = c.nearest(kids, at, rest)
			return m
		}
		id := kids[at]
		n := &c.nodes[id]
		shared := page + commonTokens(n.tokens[page:], rest[page:])
		whole := c.floorTokens(shared)
		m.Node, m.offset = id, whole
		m.Tokens += whole
		m.Pages = append(m.Pages, n.pages[:whole/page]...)
		if whole < len(n.tokens) {
			if shared > whole {
				m.Partial = Partial{Node: id, Page: n.pages[whole/page], Tokens: shared - whole}
			}
			return m
		}
		kids = n.children
	}
	return m
}

// find returns where key's first page belongs among kids, and whether the
// child there has that very page. A key shorter than a page is never found,
// but stands before all children that start with it.
func (c *Cache) find(kids []NodeID, key []kv.Token) (int, bool) {
	page := c.cfg.PageTokens
	key = key[:min(page, len(key))]
	lo, hi := 0, len(kids)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if slices.Compare(c.firstPage(kids[mid]), key) < 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	found := len(key) == page && lo < len(kids) && slices.Equal(c.firstPage(kids[lo]), key)
	return lo, found
}

// nearest returns the child that shares most tokens with rest, none of them
// sharing a whole page. at is where rest belongs among kids: in sorted order
// the common prefix only gets shorter away from there, so the two neighbours
// are enough.
func (c *Cache) nearest(kids []NodeID, at int, rest []kv.Token) Partial {
	var best Partial
	for _, i := range [...]int{at - 1, at} {
		if i < 0 || i >= len(kids) {
			continue
		}
		n := &c.nodes[kids[i]]
		if shared := commonTokens(n.tokens, rest); shared > best.Tokens {
			best = Partial{Node: kids[i], Page: n.pages[0], Tokens: shared}
		}
	}
	return best
}

// firstPage is what tells a child from its siblings.
func (c *Cache) firstPage(id NodeID) []kv.Token {
	tokens := c.nodes[id].tokens
	return tokens[:min(c.cfg.PageTokens, len(tokens))]
}

// floorTokens rounds down to whole pages.
func (c *Cache) floorTokens(n int) int { return n &^ (c.cfg.PageTokens - 1) }

// commonTokens is the length of the common prefix.
func commonTokens(a, b []kv.Token) int {
	n := min(len(a), len(b))
	a, b = a[:n], b[:n]
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
