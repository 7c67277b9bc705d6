package radixcache

import (
	"errors"

	"github.com/coppice-llm/coppice/kv"
)

// ErrPinned says that [Cache.Clear] found pinned nodes: unpin them first, that
// is end or preempt the requests that hold them.
var ErrPinned = errors.New("radixcache: pinned nodes cannot be cleared")

// Evict removes unpinned leaves, the least recently used first, parents
// becoming leaves in turn, until at least pages pages are freed or nothing is
// left to remove. Leaves go as a whole, so it may free more. The freed pages
// are appended to freed. Cost: amortised O(1) for each node removed, and a search
// among its siblings.
func (c *Cache) Evict(pages int, freed []kv.PageID) []kv.PageID {
	before := len(freed)
	for len(freed)-before < pages {
		id := c.victim()
		if id == Root {
			break
		}
		c.counts.EvictedNodes++
		c.counts.EvictedTokens += uint64(len(c.nodes[id].tokens))
		c.counts.EvictedPages += uint64(len(c.nodes[id].pages))
		freed = c.detach(id, freed)
	}
	if len(freed) > before {
		c.verify("Evict")
	}
	return freed
}

// Clear removes everything, appends all pages to freed, by ascending NodeID,
// and journals one Cleared event. With anything pinned it changes nothing and
// returns [ErrPinned].
func (c *Cache) Clear(freed []kv.PageID) ([]kv.PageID, error) {
	if c.protected.tokens > 0 {
		return freed, ErrPinned
	}
	for i := range c.nodes {
		freed = append(freed, c.nodes[i].pages...)
	}
	clear(c.nodes)
	c.nodes, c.line = c.nodes[:1], c.line[:1]
	c.line[Root] = lineLink{}
	c.free, c.heap = c.free[:0], c.heap[:0]
	clear(c.spaces)
	c.evictable = size{}
	c.counts.Nodes, c.counts.Leaves, c.counts.Tails = 0, 0, 0
	c.version++
	if c.cfg.Events {
		c.journal = append(c.journal, kv.Event{Kind: kv.Cleared})
	}
	c.verify("Clear")
	return freed, nil
}
