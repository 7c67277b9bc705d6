package radixcache

import (
	"fmt"

	"github.com/coppice-llm/coppice/internal/wide"
	"github.com/coppice-llm/coppice/kv"
)

// A request whose logits fail (NaN, for example) may have put wrong KV into the tree, in
// chunks of its prompt that it published before. Distrust marks the nodes with that KV.
// Match stops before a marked node, and Purge removes marked nodes once no handle protects
// them. Marked pages that other requests hold stay in place. When such a request has sampled
// a valid token from them, their KV is known to be sound, and Trust removes the marks.
//
// Insert and Extend ignore marks: a caller with the same tokens would get distrusted pages
// in exchange for its own. So a caller must call Match first, and publish nothing for which
// Match reports Distrusted.

// Distrust marks the nodes that hold the key's pages from the page of token number from on,
// counted from 0. It also marks other nodes that share more than from tokens with the key,
// because their pages may be copies of wrong pages. If the first page to mark is inside a
// node, Distrust splits that node. Earlier matches become invalid, and pinned prefixes with
// a marked node are unpinned.
//
// Example with pages of 4: the tree holds a key of 8 tokens in one node. Distrust from
// token 5 splits it at 4 and marks [4,8), the page that has token 5.
//
// Cost: reading the held tokens once, the children of the nodes on the way, and the
// number of pinned prefixes.
func (c *Cache) Distrust(key Key, from int) {
	r := route{ns: &key.Namespace}
	r.tokens, r.public = c.read(&key)
	from = min(from, len(r.tokens))
	whole := c.floorTokens(from)
	root, ok := c.enter(r.outer(), Root)
	if !ok {
		return
	}
	cur, _ := c.follow(cursor{node: root}, &r, whole, false)
	if cur.tokens < whole {
		return // the tree holds nothing from there on
	}
	if n := &c.nodes[cur.node]; cur.offset < n.tokens.Len() {
		if wide.CommonPrefix(n.tokens.Slice()[cur.offset:], r.tokens[whole:]) <= from-whole {
			return
		}
		cur.node = c.split(cur.node, cur.offset) // the marks go on the lower half
	}
	c.distrustBelow(cur.node, &r, whole, from-whole)
	for i := len(c.prefixes.pins) - 1; i >= 0; i-- {
		if c.isDistrusted(c.prefixes.pins[i].node) {
			c.dropPrefix(i)
		}
	}
	c.verify("Distrust")
}

// distrustBelow marks the children of node at that share more tokens than sound with the
// key's next tokens, and continues below the child whose tokens the key has all. end is the
// number of tokens up to the node's end. After the first node, sound is 0: a child with any
// common token is marked.
func (t *tree) distrustBelow(at NodeID, r *route, end, sound int) {
	for at != Root && end < len(r.tokens) {
		if r.public > 0 && end == r.public && t.nodes[at].space.ns != *r.ns {
			var ok bool
			if at, ok = t.enter(*r.ns, t.outer(at)); !ok {
				return
			}
		}
		next := Root
		for kid := range t.children(at) {
			shared := t.sharedWith(kid, r.tokens[end:])
			if shared <= sound {
				continue
			}
			t.distrust(kid)
			if n := &t.nodes[kid]; shared == n.tokens.Len() && !t.isTail(n) {
				next = kid
			}
		}
		if at, sound = next, 0; at != Root {
			end = t.nodes[at].end()
		}
	}
}

// doubts is the list of marked nodes.
type doubts struct {
	nodes []linkID // nodes that were marked; some are trusted or gone since
	count int      // number of nodes that are marked now
}

// distrust marks one node.
func (s *slab) distrust(id NodeID) {
	n := &s.nodes[id]
	if n.flags&distrusted != 0 {
		return
	}
	s.flip(id)
	s.doubts.nodes = append(s.doubts.nodes, linkID{id, n.gen})
	s.doubts.count++
}

// flip inverts a node's mark, and updates whether the node and its parent count as links: a
// marked and an unmarked node are never joined.
func (s *slab) flip(id NodeID) {
	parent := s.nodes[id].parent
	above, was := s.shapeOf(parent), s.shapeOf(id)
	s.nodes[id].flags ^= distrusted
	s.reshaped(parent, above)
	s.reshaped(id, was)
	s.version++
}

// Trust removes the marks of a handle's node and of all nodes above it. Call it when a token
// sampled from their KV was valid. For Root it does nothing; it panics if the node has no
// pin. Cost: the path, if there are marks anywhere.
func (c *Cache) Trust(handle NodeID) {
	if c.doubts.count == 0 || handle == Root {
		return
	}
	if n := c.live(handle, "Trust"); n.pins == 0 {
		panic(fmt.Sprintf("radixcache: Trust: node %d is not held", handle))
	}
	for at := handle; at != Root; at = c.nodes[at].parent {
		if c.nodes[at].flags&distrusted != 0 {
			c.flip(at)
			c.doubts.count--
		}
	}
	c.verify("Trust")
}

// Distrusted returns the number of marked nodes.
func (c *Cache) Distrusted() int { return c.doubts.count }

// Purge removes the marked nodes that no handle protects, with all nodes below them, and
// returns freed with their pages appended. A node with private spaces below it stays,
// marked, until Evict has removed these spaces and Purge is called again. Cost: the number
// of marks and of the nodes removed.
func (c *Cache) Purge(freed []kv.PageID) []kv.PageID {
	before, kept := len(freed), c.doubts.nodes[:0]
	for _, d := range c.doubts.nodes {
		if n := &c.nodes[d.id]; n.gen != d.gen || n.space == nil || n.flags&distrusted == 0 {
			continue
		} else if n.pins > 0 {
			kept = append(kept, d)
			continue
		}
		var gone bool
		if freed, gone = c.uproot(d.id, freed); !gone {
			kept = append(kept, d)
		}
	}
	c.doubts.nodes = kept
	if len(freed) > before {
		c.tidy()
		c.verify("Purge")
	}
	return freed
}

// uproot removes an unpinned node and all nodes below it, leaves first, and returns freed
// with their pages appended. If it comes to a node at which a private space begins, it
// stops and returns false; otherwise gone is true.
func (t *tree) uproot(id NodeID, freed []kv.PageID) (_ []kv.PageID, gone bool) {
	for at := id; ; {
		if kid := t.kidAt(at, place{}); kid != Root {
			at = kid
			continue
		}
		n := &t.nodes[at]
		if !n.isLeaf() {
			return freed, false
		}
		parent := n.parent
		t.noteRemoval(at, ByDistrust, n.tokens.Len(), n.pages.Len())
		freed = t.detach(at, freed)
		if at == id {
			return freed, true
		}
		at = parent
	}
}

// isDistrusted reports whether a node or one above it is marked.
func (t *tree) isDistrusted(id NodeID) bool {
	if t.doubts.count == 0 {
		return false
	}
	for ; id != Root; id = t.nodes[id].parent {
		if t.nodes[id].flags&distrusted != 0 {
			return true
		}
	}
	return false
}

// doubt completes a match that ended at a cursor, if any nodes are marked: it clears
// m.Partial if that page is of a marked node, and sets m.Distrusted if a marked node stopped
// the match.
func (s *slab) doubt(m *Match, cur cursor, r *route) {
	if m.Partial.Tokens > 0 && s.nodes[m.Partial.Node].flags&distrusted != 0 {
		m.Partial = Partial{}
	}
	if cur.offset == s.nodes[cur.node].tokens.Len() {
		id, _ := s.step(cur.node, r.tokens[cur.tokens:])
		m.Distrusted = id != Root && s.nodes[id].flags&distrusted != 0
	}
}

// doubts checks that each marked node is counted and is in the list that Purge reads.
func (w *walk) doubts() {
	c := w.c
	marked, known := 0, map[NodeID]bool{}
	for _, d := range c.doubts.nodes {
		if c.nodes[d.id].gen == d.gen {
			known[d.id] = true
		}
	}
	for id := range c.nodes {
		if n := &c.nodes[id]; n.space != nil && n.flags&distrusted != 0 {
			if marked++; !known[NodeID(id)] || n.flags&isRoot != 0 {
				failf("node %d is distrusted, and Purge does not know", id)
			}
		}
	}
	if marked != c.doubts.count {
		failf("%d nodes are distrusted, the count is %d", marked, c.doubts.count)
	}
}
