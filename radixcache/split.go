package radixcache

import (
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// split cuts a node's edge after k tokens, a whole number of pages. The node
// keeps its id, handles and children as the lower half, so that handles of
// running requests stay valid; the new upper half is returned. Both halves are
// copies: neither keeps the other's memory alive.
//
// What went through the node went through both halves. The upper one will learn
// of it when it absorbs the lower.
func (c *Cache) split(id NodeID, k int) NodeID {
	n, page := &c.nodes[id], c.cfg.PageTokens
	if k <= 0 || k >= n.tokens.Len() || k%page != 0 {
		panic(fmt.Sprintf("radixcache: splitting node %d of %d tokens after %d, pages of %d", id, n.tokens.Len(), k, page))
	}
	upper := node{
		tokens: n.tokens.CloneRange(0, k),
		pages:  n.pages.CloneRange(0, k/page),
		space:  n.space,
		stamp:  n.stamp,
		start:  n.start,
		parent: n.parent,
		pins:   min(n.pins, 1),
		count:  1,
	}
	if c.cfg.Policy == FIFO {
		upper.mark = n.mark
	}
	if c.cfg.Events {
		upper.hashes, n.hashes = c.cutHashes(n, k)
	}
	uid := c.newNode(upper)
	n = &c.nodes[id] // the slab may have moved
	c.relink(n.parent, id, uid)
	n.tokens, n.pages = n.tokens.CloneRange(k, n.tokens.Len()), n.pages.CloneRange(k/page, n.pages.Len())
	n.start += int32(k)
	n.parent = uid
	c.nodes[uid].few[0] = kid{c.keyOf(id, 0), id}
	c.counts.Nodes++
	c.counts.Splits++
	c.version++
	c.reshaped(uid, shape{})
	c.rerank(id)
	return uid
}

// rerank puts a node in the place that its new length, or a reuse, gives it.
func (c *Cache) rerank(id NodeID) {
	if c.cfg.Policy != LRU && c.places[byRank][id] != nowhere {
		c.enlist(id)
	}
}

// cutHashes shares the hashes of a node between what is before k tokens of its
// edge and what is behind.
func (c *Cache) cutHashes(n *node, k int) (before, behind *[]kv.BlockHash) {
	if n.hashes == nil {
		return nil, nil
	}
	at := c.blocksEnding(int(n.start), k)
	return hashList((*n.hashes)[:at]), hashList((*n.hashes)[at:])
}

// hashList is a copy, nil if there is nothing in it.
func hashList(hashes []kv.BlockHash) *[]kv.BlockHash {
	if len(hashes) == 0 {
		return nil
	}
	list := slices.Clone(hashes)
	return &list
}
