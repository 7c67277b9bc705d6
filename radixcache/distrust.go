package radixcache

import (
	"fmt"

	"github.com/coppice-llm/coppice/internal/wide"
	"github.com/coppice-llm/coppice/kv"
)

// A request that fails for its logits may have put wrong KV into the tree, in chunks of its
// prompt that were published before. Distrust marks these. Match stops at a mark, and Purge
// removes what is marked once no handle protects it. What other requests hold stays in its
// pages: when one of them has sampled a token from it, its KV is known to be sound, and Trust
// takes the marks off.
//
// Marks are for readers. Insert and Extend don't look at them: a caller with the same tokens
// would be given distrusted pages in exchange. A caller asks Match first, and publishes
// nothing that Match calls Distrusted.

// Distrust marks what is held of a key from token from on, the page with that token
// included, and all that shares more of the key than from tokens: its pages may be copies.
// Matches of earlier are not valid any more, and a pinned prefix that reaches what is marked
// is unpinned. Cost: reading the tokens held once, the children of the nodes on the way, and
// the number of pinned prefixes.
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
		return // nothing is held from there on
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

// distrustBelow marks, below a node that ends after so many tokens, the children that share
// more than sound tokens with what a key goes on with, and goes on to the one that has all.
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

// doubts are the marks.
type doubts struct {
	nodes []linkID // that were marked; some are not any more
	count int      // of those that are
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

// flip changes a node's mark, and with it whether it and its parent are links.
func (s *slab) flip(id NodeID) {
	parent := s.nodes[id].parent
	above, was := s.shapeOf(parent), s.shapeOf(id)
	s.nodes[id].flags ^= distrusted
	s.reshaped(parent, above)
	s.reshaped(id, was)
	s.version++
}

// Trust takes the marks off a handle's node and all above it: what was computed from them is
// sound. Root does nothing; a node without a pin panics. Cost: the path, if there are marks.
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

// Distrusted is how many nodes are marked.
func (c *Cache) Distrusted() int { return c.doubts.count }

// Purge removes what is marked and not protected, with all below it, and appends the pages to
// freed. What private spaces hang on stays, marked, until Evict has taken those. Cost: the
// number of marks, and what is removed.
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

// uproot removes an unpinned node and all below it, leaves first. It stops where a private
// space begins.
func (t *tree) uproot(id NodeID, freed []kv.PageID) (_ []kv.PageID, gone bool) {
	for at := id; ; {
		if kid := t.firstKid(at); kid != Root {
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

// firstKid is the first child of a node, or Root.
func (s *slab) firstKid(id NodeID) NodeID {
	for kid := range s.children(id) {
		return kid
	}
	return Root
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

// doubt finishes, while nodes are marked, a match that ended at a cursor: it may copy from
// no marked page, and it says whether a mark stopped it.
func (s *slab) doubt(m *Match, cur cursor, r *route) {
	if m.Partial.Tokens > 0 && s.nodes[m.Partial.Node].flags&distrusted != 0 {
		m.Partial = Partial{}
	}
	if cur.offset == s.nodes[cur.node].tokens.Len() {
		id, _ := s.step(cur.node, r.tokens[cur.tokens:])
		m.Distrusted = id != Root && s.nodes[id].flags&distrusted != 0
	}
}

// doubts checks the marks: each is counted, and Purge will find it.
func (w *walk) doubts() error {
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
				return fmt.Errorf("node %d is distrusted, and Purge does not know", id)
			}
		}
	}
	if marked != c.doubts.count {
		return fmt.Errorf("%d nodes are distrusted, the count is %d", marked, c.doubts.count)
	}
	return nil
}
