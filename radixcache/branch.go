package radixcache

import (
	"fmt"
	"math/bits"

	"github.com/coppice-llm/coppice/kv"
)

// attach adds n as an unpinned leaf below n.parent and returns its id. The leaf is in no
// eviction order yet: the caller must touch it, or a node that it adds below.
func (t *tree) attach(n node) NodeID {
	parent := n.parent
	was := t.shapeOf(parent)
	t.unheap(parent)
	n.stamp = t.clock
	if t.turns.by != nil {
		n.mark = t.turnsBefore(parent, n.tokens.Slice()) << markTurns
	}
	id := t.newNode(&n)
	t.by.used(&t.nodes[id].use)
	t.link(parent, id)
	t.reshaped(parent, was)
	t.countLeaf(&t.nodes[id], 1)
	return id
}

// countLeaf counts a leaf that is added to the tree if sign is 1, and one that is removed if it is -1.
func (t *tree) countLeaf(n *node, sign int) {
	t.hold(n, sign*n.tokens.Len(), sign*n.pages.Len())
	t.media.count(n.tokens.Slice(), sign)
	t.counts.Nodes += sign
	t.counts.Leaves += sign
	t.counts.Tails += sign * count(t.isTail(n))
	t.version++
}

// detach removes an unpinned leaf and returns freed with the leaf's pages appended; the
// caller owns these pages from then on. The parent absorbs the leaf's use. The parent may
// become a leaf itself. A space whose root becomes a leaf is closed. detach panics if the
// node is pinned or not a leaf.
func (t *tree) detach(id NodeID, freed []kv.PageID) []kv.PageID {
	n := &t.nodes[id]
	if n.pins != 0 || !n.isLeaf() {
		panic(fmt.Sprintf("radixcache: removing node %d with %d pins, %d children", id, n.pins, n.count))
	}
	parent := n.parent
	was := t.shapeOf(parent)
	t.delist(id)
	t.unlink(parent, id)
	t.journalRemoved(n, 0)
	freed = n.pages.AppendTo(freed, 0)
	t.countLeaf(n, -1)
	t.absorb(parent, id)
	t.freeNode(id)
	t.reshaped(parent, was)
	t.orphaned(parent)
	return freed
}

// trim removes the last pages of an unpinned leaf, and returns freed with them appended.
// pages is their number, at least 1. If the leaf has no more pages than that, or with
// WholeLeaves, trim removes the whole leaf. reason is recorded for the counters and Explain.
//
// Example with pages of 4: trimming a leaf [8, 20) by one page removes the page of
// [16, 20) and leaves [8, 16), under the same id.
func (t *tree) trim(id NodeID, pages int, reason Reason, freed []kv.PageID) []kv.PageID {
	n := &t.nodes[id]
	held := n.pages.Len()
	t.links.removed = true
	if pages >= held || t.cfg.WholeLeaves {
		t.noteRemoval(id, reason, n.tokens.Len(), held)
		return t.detach(id, freed)
	}
	keep := held - pages
	tokens := keep * t.cfg.PageTokens
	gone := n.tokens.Len() - tokens
	t.noteRemoval(id, reason, gone, pages)
	freed = n.pages.AppendTo(freed, keep)
	t.journalRemoved(n, tokens)
	t.hold(n, -gone, -pages)
	t.media.count(n.tokens.Slice()[tokens:], -1)
	t.memory.Truncate(&n.tokens, tokens)
	n.pages.Truncate(keep)
	t.version++
	t.rerank(id)
	return freed
}

// hold adds the tokens and pages that a node gains to the sums of the tree; negative numbers
// are tokens and pages that the node loses. The pages also count in
// the node's order, and so against its quota.
func (t *tree) hold(n *node, tokens, pages int) {
	t.weigh(n, tokens, pages)
	n.space.order.pages += pages
}

// noteRemoval counts the tokens and pages that a leaf is about to lose from its end, by
// reason and by age, and remembers the removal for Explain.
func (t *tree) noteRemoval(id NodeID, reason Reason, tokens, pages int) {
	t.counts.EvictedTokens[reason] += uint64(tokens)
	t.counts.EvictedPages[reason] += uint64(pages)
	n := &t.nodes[id]
	age := bits.Len64(t.clock - n.stamp)
	t.counts.EvictedAges[min(age, AgeBuckets-1)] += uint64(pages)
	t.remember(id, reason, n.tokens.Len()-tokens)
}

// remember records in the table of removals that a node will keep only its first keep
// tokens. It leaves out tails that were superseded, since a longer child has their tokens,
// and nodes of flushed trees, which no match reaches. The first removal allocates the table.
func (t *tree) remember(id NodeID, reason Reason, keep int) {
	if reason == BySuperseding || t.nodes[id].space.dead {
		return
	}
	if t.ghosts.table == nil {
		t.ghosts.table = make([]ghost, ghostSlots)
	}
	n := &t.nodes[id]
	at := id
	if keep == 0 {
		at = t.outer(n.parent)
	}
	g := ghost{ns: n.space.ns, parent: at, gen: t.nodes[at].gen, start: n.start + int32(keep), reason: reason, clock: t.clock, stamp: n.stamp}
	g.page = hashPage(n.tokens.Slice()[keep:], t.cfg.PageTokens)
	t.ghosts.table[g.slot()] = g
}
