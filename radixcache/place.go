package radixcache

import (
	"fmt"

	"github.com/coppice-llm/coppice/kv"
)

// Place is the end of a path of the tree. A caller may remember it without a pin: when the node is
// removed or cut, the place is gone, and so it stays if another node takes the id.
type Place struct {
	node   NodeID
	tokens int32
	gen    uint32
}

// PlaceOf returns the place where the first tokens of the path to a node of c end, as many as tokens says:
// usually the node that Extend returned. It panics if there is no such node, or if the path is shorter.
func PlaceOf(id NodeID, tokens int, c *Cache) Place {
	n := c.live(id, "PlaceOf")
	if tokens > n.end() {
		panic(fmt.Sprintf("radixcache: PlaceOf: %d tokens of node %d, which ends at %d", tokens, id, n.end()))
	}
	return Place{id, int32(tokens), n.gen}
}

// AppendText returns dst with the tokens [lo, hi) of the path to a place of c appended, where 0 <= lo <= hi,
// and hi is at most the place's tokens. It returns dst and false if the place is gone, was flushed or is
// distrusted. It counts no reuse and makes nothing more recent. The tokens may be of a public prefix, which
// other salts have, too. Cost: the nodes from the place up to lo.
func (p Place) AppendText(c *Cache, lo, hi int, dst []kv.Token) ([]kv.Token, bool) {
	n := &c.nodes[p.node]
	if p.node == Root || n.gen != p.gen || n.space == nil || n.space.dead || n.end() < int(p.tokens) || c.isDistrusted(p.node) {
		return dst, false
	}
	if lo < 0 || lo > hi || hi > int(p.tokens) {
		panic(fmt.Sprintf("radixcache: AppendText: tokens [%d,%d) of a place at %d", lo, hi, p.tokens))
	}
	base := len(dst)
	for range hi - lo {
		dst = append(dst, 0)
	}
	for id := p.node; id != Root; id = c.outer(n.parent) {
		n = &c.nodes[id]
		start := int(n.start)
		if from, to := max(lo, start), min(hi, n.end()); from < to {
			copy(dst[base+from-lo:], n.tokens.Slice()[from-start:to-start])
		}
		if start <= lo {
			break
		}
	}
	return dst, true
}
