package radixcache

import "fmt"

// EvictableBeside returns the number of pages that Evict could free if the whole pages
// of match m were pinned. If partial is true, it assumes that the node of the match's
// partial page is pinned too. It pins nothing, so the admission of a request can ask
// before it commits. For the zero Match it returns all evictable pages. For another
// match it panics if the tree's shape changed since the match was made. Cost: the part
// of the path that is not pinned.
func (c *Cache) EvictableBeside(m Match, partial bool) int {
	if m != (Match{}) {
		c.checkMatch(m, "EvictableBeside")
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
			break // all nodes above are pinned too
		}
		pages -= n.pagesKept(m, partial && id == m.Partial.Node, c.cfg.PageTokens)
	}
	return pages
}

// pagesKept returns the number of pages of a node on the path of m that must stay for
// the match: all of them if whole is true and m has a partial page, otherwise those
// before the end of the match's whole pages. Example with pages of 4: a node [8, 24)
// has 4 pages, and a match of 16 tokens keeps 2.
func (n *node) pagesKept(m Match, whole bool, pageTokens int) int {
	if whole && m.Partial.Tokens > 0 {
		return n.pages.Len()
	}
	return min(max(m.Tokens-int(n.start), 0)/pageTokens, n.pages.Len())
}

// Release counts the pages that would become evictable if handles were unpinned while a
// match stays pinned: the pages that preempting the handles' requests would free. It
// changes nothing in the tree. Call Reset first, then Unpin for each handle; the counts
// are valid until the tree changes. Handles share nodes, so the pages of each handle
// alone cannot be added up: Release counts a node once, at the Unpin of the last handle
// at or below it.
type Release struct {
	cache *Cache
	kept  map[NodeID]int   // number of pages of a node that the match keeps
	held  map[NodeID]int32 // number of handles on a node that count as released
	pins  map[NodeID]int32 // number of a node's pins that would go with the released handles
}

// Reset starts over with no handle released. The counts assume that the whole pages of m
// stay pinned, and if partial is true also the node of its partial page; with the zero
// Match they assume nothing. Reset panics if the tree's shape changed since m was made.
// Cost: the path of m.
func (r *Release) Reset(c *Cache, m Match, partial bool) {
	if m != (Match{}) {
		c.checkMatch(m, "Release")
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

// Unpin counts one handle as released and returns how many more pages could then be
// evicted; 0 while another handle protects the same nodes, and for Root. It panics if
// all handles on that node were counted already. Cost: the part of the path that no
// other handle pins.
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
