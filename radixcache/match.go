package radixcache

import (
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// Match is the result of looking up a key. It is valid until the tree's shape
// changes: any Insert, Extend, Evict, Expire, Unpin, UnpinPrefix, Flush, Distrust,
// Trust or Purge may change the shape, and so does a Pin or PinPrefix that splits a
// node. From an invalid Match [Cache.Resume] makes a valid one.
type Match struct { // eight words, so that calls pass it in registers
	Node    NodeID  // node in which the matched whole pages end, maybe before its end; Root if none
	Tokens  int     // number of tokens matched, in whole pages
	Partial Partial // page that shares most tokens with the key's next page; Tokens 0 if none

	// Distrusted reports that the tree holds the next page too, but in a node that
	// [Cache.Distrust] marked.
	Distrusted bool

	gen     uint32 // gen of Node: another gen means that Node is gone
	asked   int    // number of tokens of the key
	version uint64 // the cache's version when the match was made
}

// checkMatch panics if the tree's shape changed since m was made. call is the method to which a
// caller passed m, for the panic's text.
func (c *Cache) checkMatch(m Match, call string) {
	if m.version != c.version {
		panic(fmt.Sprintf("radixcache: %s: match of %d tokens at node %d is stale: version %d, now %d", call, m.Tokens, m.Node, m.version, c.version))
	}
}

// PartialPage returns the page of a match's Partial. It panics if the tree's shape
// changed since m was made, or if there is no Partial.
func (c *Cache) PartialPage(m Match) kv.PageID {
	if m.version != c.version || m.Partial.Tokens == 0 {
		panic(fmt.Sprintf("radixcache: PartialPage: match with %d tokens of a page of node %d, version %d, now %d", m.Partial.Tokens, m.Partial.Node, m.version, c.version))
	}
	n := &c.nodes[m.Partial.Node]
	return n.pages.At((m.Tokens - int(n.start)) / c.cfg.PageTokens) // it follows the whole pages
}

// Match finds the longest prefix of a key that the tree holds: whole pages, and the
// partial page after them that shares most tokens with the key. It changes nothing:
// it neither splits nodes, as SGLang's match_prefix does, nor makes them more recent.
// It allocates nothing. So a scheduler may match its whole queue at each pass. If
// several partial pages share equally many tokens, Match names the last that sorts
// before the key, or else the first that sorts after it.
//
// The last token of a prompt must be computed to sample from it: leave it out of
// the key.
//
// Cost: reading the matched tokens once, and a look into a hash table per visited
// node with many children; where whole pages end, a binary search over the children
// of one node. Match does not check that tokens are below [MediaToken]: a caller that
// takes tokens from outside must refuse others.
func (c *Cache) Match(key Key) (m Match) {
	r := route{ns: &key.Namespace}
	r.tokens, r.public = c.read(&key)
	root, ok := c.enter(r.outer(), Root)
	if !ok {
		m.asked, m.version = len(key.Tokens), c.version
		return m
	}
	c.walkOn(&m, cursor{node: root}, &r, len(key.Tokens))
	return m
}

// Resume is Match for a key whose earlier match is m. It continues where m ended, so
// a scheduler need not match its queue from the root at each pass. If the tree no longer
// holds all pages that m found, Resume matches from the root.
//
// Cost: O(1) if the tree has not changed; otherwise the path from m's node to the
// place where m ended, and reading the tokens after that place. If pages are gone,
// that of Match.
func (c *Cache) Resume(key Key, m Match) (now Match) {
	if m.version == c.version && m.asked == len(key.Tokens) {
		return m
	}
	cur, ok := c.place(m, &key)
	if !ok {
		return c.Match(key)
	}
	r := route{ns: &key.Namespace}
	r.tokens, r.public = c.read(&key)
	if len(r.tokens) < cur.tokens { // a medium that does not fit this key cuts the key shorter than m
		return c.Match(key)
	}
	c.walkOn(&now, cur, &r, len(key.Tokens))
	return now
}

// place returns the cursor at which match m of a key ended, or false if the tree no
// longer holds all its pages. After a split the cursor may be in a node above m.Node,
// and after a join inside a longer node, but the path to m.Node has the same tokens.
// place finds that m.Node was removed by its gen, and that it was trimmed by its end.
func (c *Cache) place(m Match, key *Key) (cursor, bool) {
	if m.Node == Root || m.Tokens > len(key.Tokens) {
		return cursor{}, false
	}
	n := &c.nodes[m.Node]
	if n.gen != m.gen || n.space == nil || n.space.dead || n.end() < m.Tokens || c.isDistrusted(m.Node) {
		return cursor{}, false
	}
	return c.ascend(m.Node, m.Tokens), true
}

// walkOn fills m with the match of a route that continues at a cursor. asked is the
// number of tokens of the key.
func (c *Cache) walkOn(m *Match, cur cursor, r *route, asked int) {
	cur, m.Partial = c.follow(cur, r, len(r.tokens), true)
	m.Node, m.Tokens, m.asked, m.version = c.outer(cur.node), cur.tokens, asked, c.version
	m.gen, m.Distrusted = c.nodes[m.Node].gen, false
	if c.doubts.count > 0 {
		c.doubt(m, cur, r)
	}
}

// AppendPages returns dst with the m.Tokens/PageTokens whole pages of a match
// appended, in the order of their tokens. The pages remain the tree's, and only a Pin
// keeps them from being evicted. It panics if the tree's shape changed since m was
// made. Cost: a copy of the ids, and the path.
func (c *Cache) AppendPages(m Match, dst []kv.PageID) []kv.PageID {
	c.checkMatch(m, "AppendPages")
	return c.appendPath(m.Node, m.Tokens, dst)
}

// AppendNodes returns dst with the nodes on the path of a match appended, from the first
// below the root to m.Node. Matches that share a prefix share its nodes, so a caller can
// group requests by them. It panics if the tree's shape changed since m was made. Cost:
// the path.
func (c *Cache) AppendNodes(m Match, dst []NodeID) []NodeID {
	c.checkMatch(m, "AppendNodes")
	base := len(dst)
	for id := m.Node; id != Root; id = c.outer(c.nodes[id].parent) {
		dst = append(dst, id)
	}
	slices.Reverse(dst[base:])
	return dst
}
