package radixcache

import (
	"fmt"

	"github.com/coppice-llm/coppice/kv"
)

// split cuts a node's edge after k tokens, a whole number of pages, and returns
// the new upper half. The node itself becomes the lower half: it keeps its id,
// handles and children, so the handles of running requests stay valid.
//
// Example with pages of one token: node #7 holds tokens 1 2 3 in pages 10 11 12.
// After split(7, 2) a new node #8 holds 1 2 in pages 10 11, and below it #7 holds
// 3 in page 12. A handle on #7 still stands for the tokens 1 2 3.
//
// Tokens are copied into both halves, so neither keeps the other's memory alive. Sums
// of tokens and pages do not change. The upper half gets no hits and no priority: the
// node's requests ended at the end of the lower half, and the upper half gets their
// hits and priority when it absorbs the lower half. It gets the node's stamp, as each
// walk to the node went through both halves, and the mark that the policy's divide
// returns. split panics if k is not a number of whole pages inside the edge.
func (t *tree) split(id NodeID, k int) NodeID {
	n, page := &t.nodes[id], t.cfg.PageTokens
	if k <= 0 || k >= n.tokens.Len() || k%page != 0 {
		panic(fmt.Sprintf("radixcache: splitting node %d of %d tokens after %d, pages of %d", id, n.tokens.Len(), k, page))
	}
	upper := node{
		tokens: t.memory.CloneRange(&n.tokens, 0, k),
		pages:  n.pages.CloneRange(0, k/page),
		space:  n.space,
		use:    use{stamp: n.stamp, mark: t.by.divide(&n.use)},
		start:  n.start,
		parent: n.parent,
		pins:   min(n.pins, 1),
		count:  1,
		flags:  n.flags & distrusted,
	}
	if t.cfg.Events {
		upper.hashes, n.hashes = t.cutHashes(n, k)
	}
	uid := t.newNode(&upper)
	if upper.flags != 0 {
		t.doubts.nodes = append(t.doubts.nodes, linkID{uid, t.nodes[uid].gen})
		t.doubts.count++
	}
	// newNode may have moved the slab.
	n = &t.nodes[id]
	t.relink(n.parent, id, uid)
	lower := t.memory.CloneRange(&n.tokens, k, n.tokens.Len())
	t.memory.Free(&n.tokens)
	n.tokens, n.pages = lower, n.pages.CloneRange(k/page, n.pages.Len())
	n.start += int32(k)
	n.parent = uid
	t.nodes[uid].few[0] = kid{t.keyOf(id, 0), id}
	t.counts.Nodes++
	t.counts.Splits++
	t.version++
	t.reshaped(uid, shape{})
	t.turns.pass(&t.slab, id, uid, t.nodes[uid].end())
	t.rerank(id)
	return uid
}

// cutHashes divides a node's block hashes in two: before has those of the blocks that
// end in the first k tokens of its edge, behind has the others. A block belongs to the
// half in which it ends: if blocks have 4 tokens and an edge [0, 8) is cut after 6,
// block [4, 8) goes to the lower half.
func (s *slab) cutHashes(n *node, k int) (before, behind *[]kv.BlockHash) {
	if n.hashes == nil {
		return nil, nil
	}
	at := s.blocksEnding(int(n.start), k)
	return hashList((*n.hashes)[:at]), hashList((*n.hashes)[at:])
}
