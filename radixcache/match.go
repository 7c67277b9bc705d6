package radixcache

import (
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/internal/wide"
	"github.com/coppice-llm/coppice/kv"
)

// Match is what the tree holds of a key. It is valid until the tree's shape
// changes: any Insert, Extend, Evict, Expire, Unpin, UnpinPrefix or Flush may do
// so, and a Pin or PinPrefix that splits. [Cache.Resume] makes it valid again.
type Match struct {
	Node    NodeID  // deepest node that the matched whole pages reach, maybe ending inside it; Root if none
	Tokens  int     // whole pages matched, in tokens
	Partial Partial // the page that shares most of the next page's tokens; Tokens 0 if none

	asked   int    // tokens of the key
	gen     uint32 // of Node
	version uint64 // of the cache at the time
}

// Partial is a page of the tree whose first tokens continue the whole pages of
// a [Match]. It belongs to the tree and may only be copied from. Pin Node by
// [Cache.PinNode] while the copy runs; a Pin of the match leaves Node valid.
type Partial struct {
	Node   NodeID
	Tokens int // shared with the key: 1 <= Tokens < PageTokens

	index int // of the page among Node's
}

// PartialPage is the page of a partial match. It panics if the tree's shape
// changed since m was made, or if there is none.
func (c *Cache) PartialPage(m Match) kv.PageID {
	if m.version != c.version || m.Partial.Tokens == 0 {
		panic(fmt.Sprintf("radixcache: PartialPage: match with %d tokens of a page of node %d, version %d, now %d", m.Partial.Tokens, m.Partial.Node, m.version, c.version))
	}
	return c.nodes[m.Partial.Node].pages.At(m.Partial.index)
}

// cursor is a place in the tree: offset tokens into the edge of node, which may
// be the root of a space. tokens are those before it.
type cursor struct {
	node   NodeID
	offset int
	tokens int
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
func (c *Cache) Match(key Key) Match {
	r := c.route(&key)
	root, ok := c.enter(r.outer, Root)
	if !ok {
		return Match{asked: len(key.Tokens), version: c.version}
	}
	cur, partial := c.follow(cursor{node: root}, &r, true)
	return c.matched(cur, partial, &key)
}

// Resume is Match for a key of which m is an earlier match: it goes on where
// that one ended, so that a queue is not matched from the root at each pass. If
// what m found is gone, in whole or in part, it says so like Match does.
//
// Cost: nothing if the tree has not changed; else what comes after m.
func (c *Cache) Resume(key Key, m Match) Match {
	if m.version == c.version && m.asked == len(key.Tokens) {
		return m
	}
	cur, ok := c.place(m, &key)
	if !ok {
		return c.Match(key)
	}
	r := c.route(&key)
	if len(r.tokens) < cur.tokens { // a medium that does not fit any more cuts the key shorter than m
		return c.Match(key)
	}
	cur, partial := c.follow(cur, &r, true)
	return c.matched(cur, partial, &key)
}

// place finds where a match ended, whatever was split since.
func (c *Cache) place(m Match, key *Key) (cursor, bool) {
	if m.Node == Root || m.version < c.born || m.Tokens > len(key.Tokens) {
		return cursor{}, false
	}
	n := &c.nodes[m.Node]
	if n.gen != m.gen || n.space == nil || n.space.dead || n.end() < m.Tokens {
		return cursor{}, false
	}
	return c.ascend(m.Node, m.Tokens), true
}

// ascend is the cursor after so many tokens on the path to a node.
func (c *Cache) ascend(id NodeID, tokens int) cursor {
	for int(c.nodes[id].start) >= tokens {
		id = c.nodes[id].parent
	}
	return cursor{id, tokens - int(c.nodes[id].start), tokens}
}

func (c *Cache) matched(cur cursor, partial Partial, key *Key) Match {
	id := c.outer(cur.node)
	return Match{Node: id, Tokens: cur.tokens, Partial: partial, asked: len(key.Tokens), gen: c.nodes[id].gen, version: c.version}
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

// appendPath appends the pages of so many tokens on the path to a node.
func (c *Cache) appendPath(id NodeID, tokens int, dst []kv.PageID) []kv.PageID {
	page := c.cfg.PageTokens
	count := tokens / page
	base := len(dst)
	if cap(dst)-base < count {
		dst = append(make([]kv.PageID, 0, base+count+count/4), dst...)
	}
	dst = dst[:base+count]
	for id != Root {
		n := &c.nodes[id]
		if start := int(n.start) / page; start < count {
			n.pages.CopyTo(dst[base+start:], 0)
		}
		id = n.parent
	}
	return dst
}

// follow walks on from a cursor as far as whole pages match, through the door
// to a private space where the route has one. It looks for a partial page if
// asked to.
func (c *Cache) follow(cur cursor, r *route, part bool) (cursor, Partial) {
	if cur.tokens < r.public {
		var partial Partial
		if cur, partial = c.descend(cur, r.tokens[:min(r.public, len(r.tokens))], part); cur.tokens < r.public {
			return cur, partial
		}
	}
	if r.public > 0 && cur.tokens == r.public && c.nodes[cur.node].space.ns != r.ns {
		root, ok := Root, false
		if cur.offset == c.nodes[cur.node].tokens.Len() && c.nodes[cur.node].flags&hasDoors != 0 {
			root, ok = c.enter(r.ns, cur.node)
		}
		if !ok {
			return cur, Partial{}
		}
		cur.node, cur.offset = root, 0
	}
	return c.descend(cur, r.tokens, part)
}

// descend walks on from a cursor within its space.
func (c *Cache) descend(cur cursor, tokens []kv.Token, part bool) (cursor, Partial) {
	part = part && c.cfg.PageTokens > 1
	if n := &c.nodes[cur.node]; cur.offset < n.tokens.Len() {
		shared := wide.CommonPrefix(n.tokens.Slice()[cur.offset:], tokens[cur.tokens:])
		whole := c.floorTokens(shared)
		cur.offset += whole
		cur.tokens += whole
		if cur.offset < n.tokens.Len() {
			return cur, c.partOf(cur.node, cur.offset, shared-whole)
		}
	}
	for cur.tokens < len(tokens) {
		rest := tokens[cur.tokens:]
		id, shared := c.step(cur.node, rest)
		if id == Root {
			if !part {
				return cur, Partial{}
			}
			return cur, c.beside(cur.node, rest)
		}
		n := &c.nodes[id]
		if shared == n.tokens.Len() {
			cur = cursor{id, shared, cur.tokens + shared}
			continue
		}
		whole := c.floorTokens(shared)
		return cursor{id, whole, cur.tokens + whole}, c.partOf(id, whole, shared-whole)
	}
	return cur, Partial{}
}

// partOf is the page of a node that begins offset tokens into it, shared in part.
func (c *Cache) partOf(id NodeID, offset, shared int) Partial {
	if shared == 0 {
		return Partial{}
	}
	return Partial{Node: id, Tokens: shared, index: offset / c.cfg.PageTokens}
}

// step finds the child that shares a whole page with rest, and how many tokens
// it shares in all; Root if there is none.
func (c *Cache) step(parent NodeID, rest []kv.Token) (id NodeID, shared int) {
	n, page := &c.nodes[parent], c.cfg.PageTokens
	if len(rest) < page {
		return Root, 0
	}
	if n.fork == nil {
		return c.stepFew(n, rest)
	}
	hash := hashFirst(rest, page)
	for slot := hash; ; {
		if id = n.fork.index.lookup(hash, &slot); id == Root {
			return Root, 0
		}
		if shared = c.sharedWith(id, rest); shared >= page {
			return id, shared
		}
	}
}

// sharedWith is how many tokens a child and rest share.
func (c *Cache) sharedWith(id NodeID, rest []kv.Token) int {
	return wide.CommonPrefix(c.nodes[id].tokens.Slice(), rest)
}

// stepFew is step among few children: those whose keys fit, mostly one or none.
func (c *Cache) stepFew(n *node, rest []kv.Token) (NodeID, int) {
	key := uint32(rest[n.skip])
	for _, k := range n.few[:n.count] {
		if k.key == key {
			if shared := c.sharedWith(k.id, rest); shared >= c.cfg.PageTokens {
				return k.id, shared
			}
		}
	}
	return Root, 0
}

// beside returns the child of a node that shares most tokens with rest, none
// sharing a whole page.
func (c *Cache) beside(parent NodeID, rest []kv.Token) Partial {
	if f := c.nodes[parent].fork; f != nil {
		if id, shared, ok := f.beside(rest); ok {
			if shared == 0 {
				return Partial{}
			}
			return Partial{Node: id, Tokens: shared}
		}
	}
	at, _ := c.find(parent, rest)
	return c.nearest(parent, at, rest)
}

// nearest returns the child that shares most tokens with rest, none of them
// sharing a whole page. at is where rest belongs among them: in sorted order
// the common prefix only gets shorter away from there, so the two neighbours
// are enough. Often their keys show that one of them shares nothing, or no more
// than the other, and it need not be read.
func (c *Cache) nearest(parent NodeID, at place, rest []kv.Token) Partial {
	var best Partial
	low, ok := c.before(parent, at)
	for range 2 {
		if ok && c.mostShared(parent, low, rest) > best.Tokens {
			id := c.kidAt(parent, low)
			n := &c.nodes[id]
			if shared := wide.CommonPrefix(n.tokens.Slice(), rest); shared > best.Tokens {
				best = Partial{Node: id, Tokens: shared}
			}
		}
		low, ok = at, c.kidAt(parent, at) != Root
	}
	return best
}

// mostShared is a bound on what the child at a place shares with rest, by its key.
func (c *Cache) mostShared(parent NodeID, at place, rest []kv.Token) int {
	n := &c.nodes[parent]
	skip, key := int(n.skip), n.few[min(at.i, fewKids-1)].key
	if n.fork != nil {
		r := &n.fork.runs[at.r]
		if at.i == len(r.kids) {
			return c.cfg.PageTokens // the first child of the next run
		}
		skip, key = r.skip, r.kids[at.i].key
	}
	if skip < len(rest) && uint32(rest[skip]) != key {
		return skip
	}
	return c.cfg.PageTokens
}

// firstPage is what tells a child from its siblings.
func (c *Cache) firstPage(id NodeID) []kv.Token {
	tokens := c.nodes[id].tokens.Slice()
	return tokens[:min(c.cfg.PageTokens, len(tokens))]
}
