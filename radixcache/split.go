package radixcache

import (
	"fmt"

	"github.com/coppice-llm/coppice/kv"
)

// split cuts a node's edge after k tokens, a whole number of pages. The node
// keeps its id, handles and children as the lower half, so that handles of
// running requests stay valid; the new upper half is returned. Both halves are
// copies: neither keeps the other's memory alive.
//
// What went through the node went through both halves. The upper one will learn
// of it when it absorbs the lower.
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
	n = &t.nodes[id] // the slab may have moved
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
	t.rerank(id)
	return uid
}

// cutHashes shares the hashes of a node between what is before k tokens of its
// edge and what is behind.
func (s *slab) cutHashes(n *node, k int) (before, behind *[]kv.BlockHash) {
	if n.hashes == nil {
		return nil, nil
	}
	at := s.blocksEnding(int(n.start), k)
	return hashList((*n.hashes)[:at]), hashList((*n.hashes)[at:])
}
