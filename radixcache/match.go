package radixcache

import (
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// Match is what the tree holds of a key. It is valid until the tree's shape
// changes: any Insert, Extend, Evict, Expire, Unpin, UnpinPrefix or Flush may do
// so, and a Pin or PinPrefix that splits. [Cache.Resume] makes it valid again.
type Match struct { // eight words, so that calls pass it in registers
	Node    NodeID  // deepest node that the matched whole pages reach, maybe ending inside it; Root if none
	Tokens  int     // whole pages matched, in tokens
	Partial Partial // the page that shares most of the next page's tokens; Tokens 0 if none

	// Distrusted: what comes next is held, but marked by [Cache.Distrust].
	Distrusted bool

	gen     uint32 // of Node
	asked   int    // tokens of the key
	version uint64 // of the cache at the time
}

// PartialPage is the page of a partial match. It panics if the tree's shape
// changed since m was made, or if there is none.
func (c *Cache) PartialPage(m Match) kv.PageID {
	if m.version != c.version || m.Partial.Tokens == 0 {
		panic(fmt.Sprintf("radixcache: PartialPage: match with %d tokens of a page of node %d, version %d, now %d", m.Partial.Tokens, m.Partial.Node, m.version, c.version))
	}
	n := &c.nodes[m.Partial.Node]
	return n.pages.At((m.Tokens - int(n.start)) / c.cfg.PageTokens) // it follows the whole pages
}

// Match finds the longest prefix of a key that is held: whole pages, and the
// best partial page after them. It reads only: it neither splits nor refreshes
// recency, and allocates nothing. Of several pages that share equally much it
// names the nearest lower sibling of the key, else the nearest higher one.
//
// Cost: reading the matched tokens once, and per visited node with many children
// a look into a hash table; where whole pages end, a binary search over those of
// one node. Tokens from [MediaToken] on are not looked for: a caller that takes
// them from outside has to refuse them.
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

// Resume is Match for a key of which m is an earlier match: it goes on where
// that one ended, so that a queue is not matched from the root at each pass. If
// what m found is gone, in whole or in part, it says so like Match does.
//
// Cost: nothing if the tree has not changed; else what comes after m.
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
	if len(r.tokens) < cur.tokens { // a medium that does not fit any more cuts the key shorter than m
		return c.Match(key)
	}
	c.walkOn(&now, cur, &r, len(key.Tokens))
	return now
}

// place finds where a match ended, whatever was split since.
func (c *Cache) place(m Match, key *Key) (cursor, bool) {
	if m.Node == Root || m.version < c.born || m.Tokens > len(key.Tokens) {
		return cursor{}, false
	}
	n := &c.nodes[m.Node]
	if n.gen != m.gen || n.space == nil || n.space.dead || n.end() < m.Tokens || c.isDistrusted(m.Node) {
		return cursor{}, false
	}
	return c.ascend(m.Node, m.Tokens), true
}

// walkOn makes m the match of a route, of so many tokens asked, that goes on from a cursor.
func (c *Cache) walkOn(m *Match, cur cursor, r *route, asked int) {
	cur, m.Partial = c.follow(cur, r, len(r.tokens), true)
	m.Node, m.Tokens, m.asked, m.version = c.outer(cur.node), cur.tokens, asked, c.version
	m.gen, m.Distrusted = c.nodes[m.Node].gen, false
	if c.doubts.count > 0 {
		c.doubt(m, cur, r)
	}
}

// AppendPages appends the Tokens/PageTokens pages of a match to dst, ascending
// token position. It panics if the tree's shape changed since m was made. Cost:
// copying them, and the path.
func (c *Cache) AppendPages(m Match, dst []kv.PageID) []kv.PageID {
	if m.version != c.version {
		panic(fmt.Sprintf("radixcache: AppendPages: match of %d tokens at node %d is stale: version %d, now %d", m.Tokens, m.Node, m.version, c.version))
	}
	return c.appendPath(m.Node, m.Tokens, dst)
}

// AppendNodes appends the nodes that a match reaches to dst, from the first below
// the root to m.Node: what several matches share has the same nodes. It panics if
// the tree's shape changed since m was made. Cost: the path.
func (c *Cache) AppendNodes(m Match, dst []NodeID) []NodeID {
	if m.version != c.version {
		panic(fmt.Sprintf("radixcache: AppendNodes: match of %d tokens at node %d is stale: version %d, now %d", m.Tokens, m.Node, m.version, c.version))
	}
	base := len(dst)
	for id := m.Node; id != Root; id = c.outer(c.nodes[id].parent) {
		dst = append(dst, id)
	}
	slices.Reverse(dst[base:])
	return dst
}
