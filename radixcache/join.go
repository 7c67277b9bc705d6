package radixcache

import (
	"slices"

	"github.com/coppice-llm/coppice/internal/wide"
	"github.com/coppice-llm/coppice/kv"
)

// joinsPerCall is the largest number of queue entries that a call takes to bring the
// number of links down to limit. A call makes fewer links than this, so their number
// falls.
const joinsPerCall = 8

// tidy joins links while there are too many. While there are more links than limit, it
// takes entries from the queue loose, up to joinsPerCall. While there are more links
// than fresh, it continues beyond joinsPerCall, and then with the queue stiff. A join
// reads and writes the tokens of its chain once.
func (t *tree) tidy() {
	for n := 0; len(t.links.loose) > 0 && (t.links.count > t.fresh() || t.links.count > t.limit() && n < joinsPerCall); n++ {
		l := t.popLink(&t.links.loose)
		if !t.joinable(l) {
			continue
		}
		if n := &t.nodes[l.id]; !t.by.alike(&n.use, &t.nodes[n.few[0].id].use) {
			t.enqueue(&t.links.stiff, l)
			continue
		}
		t.join(l.id, false)
	}
	for t.links.count > t.fresh() && len(t.links.stiff) > 0 {
		if l := t.popLink(&t.links.stiff); t.joinable(l) {
			t.join(l.id, true)
		}
	}
}

// joinable reports whether a queue entry still names a link, and the link is not pinned
// and not spared.
func (t *tree) joinable(l linkID) bool {
	n := &t.nodes[l.id]
	return n.gen == l.gen && n.space != nil && n.pins == 0 && l.id != t.links.spared && t.isLink(n)
}

// join replaces by one node: link id, the links right above and below it, and the node
// below the lowest link. Joining the whole chain at once copies its tokens once; joining
// pairs would copy the upper tokens again at each step. If force is true, the chain may
// also have other links whose joining loses something for the policy.
func (t *tree) join(id NodeID, force bool) {
	fits := func(upper NodeID) bool {
		n := &t.nodes[upper]
		return n.flags&isRoot == 0 && n.pins == 0 && upper != t.links.spared && t.isLink(n) && (force || t.by.alike(&n.use, &t.nodes[n.few[0].id].use))
	}
	top := id
	for fits(t.nodes[top].parent) {
		top = t.nodes[top].parent
	}
	chain := []NodeID{top}
	for at := top; at == top || fits(at); {
		at = t.nodes[at].few[0].id
		chain = append(chain, at)
	}
	t.fuse(chain)
}

// fuse makes one node of a chain: links, each the parent of the next node, and a last
// node, whose id, handles and children stay. For example the chain [1 2] [3] [4 5]
// becomes the last node with 1 2 3 4 5 and the pages and hashes of all three, in order.
// The node gets the latest stamp, the highest priority, the sum of hits, and the policy's mark.
func (t *tree) fuse(chain []NodeID) {
	var tokens, pages = 0, 0
	for _, id := range chain {
		tokens += t.nodes[id].tokens.Len()
		pages += t.nodes[id].pages.Len()
	}
	t.runs, t.lists = slices.Grow(t.runs[:0], tokens), slices.Grow(t.lists[:0], pages)
	var hashes []kv.BlockHash
	for _, id := range chain {
		n := &t.nodes[id]
		t.runs, t.lists = append(t.runs, n.tokens.Slice()...), n.pages.AppendTo(t.lists, 0)
		if n.hashes != nil {
			hashes = append(hashes, *n.hashes...)
		}
	}
	top, last := chain[0], chain[len(chain)-1]
	n := &t.nodes[last]
	listed := n.pins == 0 && n.isLeaf()
	t.relink(t.nodes[top].parent, top, last)
	n.start, n.parent = t.nodes[top].start, t.nodes[top].parent
	for _, id := range slices.Backward(chain[:len(chain)-1]) {
		u := &t.nodes[id]
		if !t.by.alike(&u.use, &n.use) {
			t.counts.LossyJoins++
		}
		mark := t.by.join(&u.use, &n.use)
		if u.stamp > n.stamp {
			t.delist(last)
			n.stamp = u.stamp
		}
		n.reused(u.hits)
		n.prio, n.mark = max(n.prio, u.prio), mark
		t.turns.fused(&t.slab, id, last)
		t.delist(id)
		t.freeNode(id)
		t.links.count--
		t.counts.Nodes--
	}
	t.memory.Free(&n.tokens)
	n.tokens, n.pages = t.memory.Of(t.runs), wide.PackedOf(t.lists)
	n.hashes = hashList(hashes)
	t.counts.Joins += uint64(len(chain) - 1)
	t.version++
	if listed {
		t.enlist(last)
	}
}
