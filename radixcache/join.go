package radixcache

import (
	"slices"

	"github.com/coppice-llm/coppice/internal/wide"
	"github.com/coppice-llm/coppice/kv"
)

// A node with a single child, a link, and that child could be one run: a split
// whose other half has gone, the turns of a conversation. Links are joined
// again, but not at once: each join copies both runs, and the next request may
// split them at the same place. So links wait in a queue, oldest first, until
// there are too many. While nothing was ever removed that is when they are more
// than half as many as the leaves and forks, of which alone a fresh tree would
// consist; by then most conversations among them are over. Once there is not
// room for all, it is a sixteenth of that, and few are joined at a time.
//
// Some joins would lose something: if requests ended at the link after the last
// that went on to its child, the two are to be evicted at different times. Such
// a stiff link is joined only when the nodes would else be more than twice those
// of a fresh tree; then both halves count as used when the later one was.
//
// A link with pins waits for these: it is queued again by its last Unpin.

// linkID names a link while its slot is not used anew.
type linkID struct {
	id  NodeID
	gen uint32
}

// fresh is how many nodes a tree of the same content would have, had it been
// built in one go.
func (c *Cache) fresh() int { return c.counts.Nodes - c.links }

// loosen queues a link that is not queued yet.
func (c *Cache) loosen(id NodeID) {
	n := &c.nodes[id]
	if c.cfg.WholeLeaves || n.flags&queued != 0 {
		return
	}
	c.enqueue(&c.loose, linkID{id, n.gen})
}

// enqueue puts a link at the end of a queue, and sweeps that when most of it is
// no link any more.
func (c *Cache) enqueue(queue *[]linkID, l linkID) {
	if len(*queue) > 64+4*c.links {
		*queue = slices.DeleteFunc(*queue, func(l linkID) bool {
			n := &c.nodes[l.id]
			if n.gen == l.gen && c.isLink(n) {
				return false
			}
			if n.gen == l.gen {
				n.flags &^= queued
			}
			return true
		})
	}
	c.nodes[l.id].flags |= queued
	*queue = append(*queue, l)
}

// limit is how many links there may be.
func (c *Cache) limit() int {
	if c.removed {
		return min(8+c.fresh()/16, c.fresh())
	}
	return c.fresh() / 2
}

// joinsPerCall bounds the work of a call beside what the bound of nodes demands.
// It is more than a call makes links, so that they grow fewer.
const joinsPerCall = 8

// tidy joins links while there are too many. Each costs reading and writing the
// chain that it is in once.
func (c *Cache) tidy() {
	for n := 0; len(c.loose) > 0 && (c.links > c.fresh() || c.links > c.limit() && n < joinsPerCall); n++ {
		l := c.popLink(&c.loose)
		if !c.joinable(l) {
			continue
		}
		if n := &c.nodes[l.id]; !c.blend(n, &c.nodes[n.few[0].id]) {
			c.enqueue(&c.stiff, l)
			continue
		}
		c.join(l.id, false)
	}
	for c.links > c.fresh() && len(c.stiff) > 0 {
		if l := c.popLink(&c.stiff); c.joinable(l) {
			c.join(l.id, true)
		}
	}
}

// popLink takes the oldest out of a queue.
func (c *Cache) popLink(queue *[]linkID) linkID {
	l := (*queue)[0]
	*queue = (*queue)[1:]
	if n := &c.nodes[l.id]; n.gen == l.gen {
		n.flags &^= queued
	}
	return l
}

// joinable tells whether what was queued is still a link, and without pins.
func (c *Cache) joinable(l linkID) bool {
	n := &c.nodes[l.id]
	return n.gen == l.gen && n.space != nil && n.pins == 0 && l.id != c.spared && c.isLink(n)
}

// join makes one node of the chain of links around a link and what the last of
// them leads to, which keeps its id. With force it joins stiff links too.
func (c *Cache) join(id NodeID, force bool) {
	fits := func(upper NodeID) bool {
		n := &c.nodes[upper]
		return n.flags&isRoot == 0 && n.pins == 0 && upper != c.spared && c.isLink(n) && (force || c.blend(n, &c.nodes[n.few[0].id]))
	}
	top := id
	for fits(c.nodes[top].parent) {
		top = c.nodes[top].parent
	}
	chain := []NodeID{top}
	for at := top; at == top || fits(at); {
		at = c.nodes[at].few[0].id
		chain = append(chain, at)
	}
	c.fuse(chain)
}

// fuse makes one node of a chain of links and a last node.
func (c *Cache) fuse(chain []NodeID) {
	var tokens, pages = 0, 0
	for _, id := range chain {
		tokens += c.nodes[id].tokens.Len()
		pages += c.nodes[id].pages.Len()
	}
	c.runs, c.lists = slices.Grow(c.runs[:0], tokens), slices.Grow(c.lists[:0], pages)
	var hashes []kv.BlockHash
	for _, id := range chain {
		n := &c.nodes[id]
		c.runs, c.lists = append(c.runs, n.tokens.Slice()...), n.pages.AppendTo(c.lists, 0)
		if n.hashes != nil {
			hashes = append(hashes, *n.hashes...)
		}
	}
	top, last := chain[0], chain[len(chain)-1]
	n := &c.nodes[last]
	listed := n.pins == 0 && n.isLeaf()
	c.relink(c.nodes[top].parent, top, last)
	n.start, n.parent = c.nodes[top].start, c.nodes[top].parent
	for _, id := range slices.Backward(chain[:len(chain)-1]) {
		u := &c.nodes[id]
		if !c.blend(u, n) {
			c.counts.LossyJoins++
		}
		if u.stamp > n.stamp {
			c.delist(last)
			n.stamp = u.stamp
		}
		n.reused(u.hits)
		n.prio, n.mark = max(n.prio, u.prio), max(n.mark, u.mark)
		c.delist(id)
		c.freeNode(id)
		c.links--
		c.counts.Nodes--
	}
	n.tokens, n.pages = wide.VecOf(c.runs), wide.PackedOf(c.lists)
	n.hashes = hashList(hashes)
	c.counts.Joins += uint64(len(chain) - 1)
	c.version++
	if listed {
		c.enlist(last)
	}
}
