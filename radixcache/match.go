package radixcache

import (
	"github.com/coppice-llm/coppice/internal/wide"
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
// Cost: reading the matched tokens once, and per visited node with several
// children a binary search over these.
func (c *Cache) Match(ns kv.Namespace, tokens []kv.Token, dst []kv.PageID) Match {
	m := Match{Pages: dst, version: c.version}
	sp := c.spaces[ns]
	if sp == nil {
		return m
	}
	at := sp.root
	for rest := tokens; len(rest) > 0; rest = tokens[m.Tokens:] {
		id, place, shared := c.step(at, rest)
		if id == Root {
			m.Partial = c.nearest(at, place, rest)
			return m
		}
		n := &c.nodes[id]
		whole := c.floorTokens(shared)
		m.Node, m.offset = id, whole
		m.Tokens += whole
		m.Pages = append(m.Pages, n.pages[:kv.FloorPages(whole, c.cfg.PageTokens)]...)
		if whole < len(n.tokens) {
			if shared > whole {
				m.Partial = Partial{Node: id, Page: n.pages[whole/c.cfg.PageTokens], Tokens: shared - whole}
			}
			return m
		}
		at = id
	}
	return m
}

// step finds the child that shares a whole page with rest, and how many tokens
// it shares in all. Root if there is none; then at is where rest belongs.
func (c *Cache) step(parent NodeID, rest []kv.Token) (id NodeID, at place, shared int) {
	n, page := &c.nodes[parent], c.cfg.PageTokens
	if n.fork == nil {
		if n.only == Root {
			return Root, place{}, 0
		}
		if shared = wide.CommonPrefix(c.nodes[n.only].tokens, rest); shared < page {
			return Root, place{}, 0
		}
		return n.only, place{}, shared
	}
	at, found := c.find(parent, rest)
	if !found || len(rest) < page {
		return Root, at, 0
	}
	id = n.fork.runs[at.r].kids[at.i].id
	return id, at, page + wide.CommonPrefix(c.nodes[id].tokens[page:], rest[page:])
}

// nearest returns the child that shares most tokens with rest, none of them
// sharing a whole page. at is where rest belongs among them: in sorted order
// the common prefix only gets shorter away from there, so the two neighbours
// are enough.
func (c *Cache) nearest(parent NodeID, at place, rest []kv.Token) Partial {
	var best Partial
	var beside [2]NodeID
	if low, ok := c.before(parent, at); ok {
		beside[0] = c.kidAt(parent, low)
	}
	beside[1] = c.kidAt(parent, at)
	for _, id := range beside {
		if id == Root {
			continue
		}
		n := &c.nodes[id]
		if shared := wide.CommonPrefix(n.tokens, rest); shared > best.Tokens {
			best = Partial{Node: id, Page: n.pages[0], Tokens: shared}
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
