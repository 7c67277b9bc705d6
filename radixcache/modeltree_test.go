package radixcache

import (
	"fmt"

	"github.com/coppice-llm/coppice/kv"
)

// treePage is a page of the tree as the model describes it, with the sum of the use that its
// node and the nodes below it record.
type treePage struct {
	dead   bool
	ns     int
	anchor string
	seq    string
	node   NodeID
	end    bool // of its node
	pinned bool
	stamp  uint64
	hits   uint32
	prio   int32
	mark   uint64
}

// readTree lists the pages of all trees, flushed ones too.
func readTree(c *Cache) (map[kv.PageID]treePage, error) {
	known := make([]treePage, len(c.nodes)) // the values of a node that its pages have in common
	for i := range c.nodes {
		if n := &c.nodes[i]; n.space != nil {
			known[i] = treePage{stamp: n.stamp, hits: n.hits, prio: n.prio}
		}
	}
	for i := range c.nodes {
		n := &c.nodes[i]
		if n.space == nil {
			continue
		}
		for up := n.parent; up != Root; up = c.nodes[up].parent {
			k := &known[up]
			k.stamp, k.hits, k.prio = max(k.stamp, n.stamp), k.hits+n.hits, max(k.prio, n.prio)
		}
	}
	out := make(map[kv.PageID]treePage, c.counts.Leaves+c.evictable.pages+c.protected.pages)
	for i := range c.nodes {
		id, n := NodeID(i), &c.nodes[i]
		if n.space == nil || n.flags&isRoot != 0 {
			continue
		}
		seq := pathOf(c, id)
		p := known[id]
		p.dead, p.node, p.pinned, p.mark = n.space.dead, id, n.pins > 0, n.mark
		p.anchor = seq[:c.nodes[n.space.root].start]
		p.ns = -1
		for i, ns := range modelNamespaces {
			if ns == n.space.ns {
				p.ns = i
			}
		}
		for j, page := range n.pages.Slice() {
			if other, twice := out[page]; twice {
				return nil, fmt.Errorf("page %d is held twice, for %q and %q", page, other.seq, seq)
			}
			p.seq = seq[:min(len(seq), int(n.start)+(j+1)*c.cfg.PageTokens)]
			p.end = j == n.pages.Len()-1
			out[page] = p
		}
	}
	return out, nil
}

// pathOf returns all tokens up to a node's end, as the model writes them.
func pathOf(c *Cache, id NodeID) string {
	if id == Root {
		return ""
	}
	n := &c.nodes[id]
	seq := []byte(pathOf(c, n.parent))
	for _, t := range n.tokens.Slice() {
		if t < MediaToken {
			seq = append(seq, byte(t))
			continue
		}
		key := c.media.entries[(t-MediaToken)/2].key
		e := byte(key.placeholder) | byte(key.hash)<<hashShift
		if (t-MediaToken)%2 == 0 {
			e |= firstOfSpan
		}
		seq = append(seq, e)
	}
	return string(seq)
}
