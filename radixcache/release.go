package radixcache

import "fmt"

// EvictableBeside returns how many pages Evict could free while the whole pages of
// a match are pinned, and with partial set also the node of its partial page. It
// pins nothing. A zero match keeps nothing; else it panics if the tree's shape
// changed since m was made. Cost: the part of the path that is not pinned.
func (c *Cache) EvictableBeside(m Match, partial bool) int {
	if m != (Match{}) && m.version != c.version {
		panic(fmt.Sprintf("radixcache: EvictableBeside: match of %d tokens at node %d is stale: version %d, now %d", m.Tokens, m.Node, m.version, c.version))
	}
	pages := c.evictable.pages
	if partial && m.Partial.Tokens > 0 && m.Partial.Node != m.Node {
		if n := &c.nodes[m.Partial.Node]; n.pins == 0 {
			pages -= n.pages.Len()
		}
	}
	for id := m.Node; id != Root; id = c.nodes[id].parent {
		n := &c.nodes[id]
		if n.pins > 0 {
			break // so are all nodes above it
		}
		pages -= n.pagesKept(m, partial && id == m.Partial.Node, c.cfg.PageTokens)
	}
	return pages
}

// pagesKept returns how many pages of a node on a match's path are kept for it.
func (n *node) pagesKept(m Match, whole bool, pageTokens int) int {
	if whole && m.Partial.Tokens > 0 {
		return n.pages.Len()
	}
	return min(max(m.Tokens-int(n.start), 0)/pageTokens, n.pages.Len())
}

// Release counts the pages that would become evictable if handles were unpinned,
// while a match stays pinned. It changes nothing in the tree. Reset it first; it
// is valid until the tree changes.
type Release struct {
	cache *Cache
	kept  map[NodeID]int   // pages of a node that the match keeps
	held  map[NodeID]int32 // handles that are counted as released
	pins  map[NodeID]int32 // pins that would be gone with them
}

// Reset begins anew, with no handle released and m kept: its whole pages, and with
// partial set also the node of its partial page; a zero m keeps nothing. Cost: the
// path of m.
func (r *Release) Reset(c *Cache, m Match, partial bool) {
	if m != (Match{}) && m.version != c.version {
		panic(fmt.Sprintf("radixcache: Release: match of %d tokens at node %d is stale: version %d, now %d", m.Tokens, m.Node, m.version, c.version))
	}
	if r.kept == nil {
		r.kept, r.held, r.pins = make(map[NodeID]int), make(map[NodeID]int32), make(map[NodeID]int32)
	}
	r.cache = c
	clear(r.kept)
	clear(r.held)
	clear(r.pins)
	for id := m.Node; id != Root; id = c.nodes[id].parent {
		r.kept[id] = c.nodes[id].pagesKept(m, false, c.cfg.PageTokens)
	}
	if partial && m.Partial.Tokens > 0 {
		r.kept[m.Partial.Node] = c.nodes[m.Partial.Node].pages.Len()
	}
}

// Unpin counts one handle as released and returns how many more pages could be
// evicted then. Root gives none; a node without a pin left panics. Cost: the part
// of the path that nothing else pins.
func (r *Release) Unpin(handle NodeID) (pages int) {
	if handle == Root {
		return 0
	}
	n := r.cache.live(handle, "Release.Unpin")
	r.held[handle]++
	switch left := n.held - r.held[handle]; {
	case left > 0:
		return 0
	case left < 0:
		panic(fmt.Sprintf("radixcache: Release.Unpin: node %d is held %d times, released %d times", handle, n.held, r.held[handle]))
	}
	for id := handle; id != Root; id = n.parent {
		n = &r.cache.nodes[id]
		if r.pins[id]++; r.pins[id] < n.pins {
			break
		}
		pages += n.pages.Len() - r.kept[id]
	}
	return pages
}
