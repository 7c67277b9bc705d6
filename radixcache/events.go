package radixcache

import (
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// TakeEvents appends what happened since the last call to dst, in order, and
// forgets it. Seq is left 0 for the publisher to set. The events' slices are
// fresh and never change. With Config.Events the journal grows until it is
// taken: take it once per step.
//
// A block lives in the node that holds its last token. It is announced when a
// leaf brings it and withdrawn when that leaf, or what splits left of it, is
// removed; parents are announced before and withdrawn after their children.
func (c *Cache) TakeEvents(dst []kv.Event) []kv.Event {
	dst = append(dst, c.journal...)
	clear(c.journal) // the slices belong to the taker now
	c.journal = c.journal[:0]
	return dst
}

// journalStored hashes the blocks that end in a new leaf. tokens: the whole
// key from token 0 to the leaf's end, as the first block may start above it.
func (c *Cache) journalStored(id NodeID, tokens []kv.Token) {
	n := &c.nodes[id]
	start := int(n.start)
	count := c.blocksEnding(start, len(n.tokens))
	if !c.cfg.Events || count == 0 {
		return
	}
	first, b := start/c.cfg.BlockTokens, c.cfg.BlockTokens
	ev := kv.Event{Kind: kv.Stored, Namespace: n.space.ns, Blocks: make([]kv.Block, count)}
	hasher := n.space.hasher
	if first > 0 {
		ev.Parent, ev.HasParent = c.lastHashAbove(n.parent), true
		hasher.Resume(ev.Parent)
	}
	n.hashes = make([]kv.BlockHash, count)
	held := slices.Clone(tokens[first*b : (first+count)*b])
	for i := range ev.Blocks {
		block := held[i*b : (i+1)*b : (i+1)*b]
		hash, local := hasher.Next(block)
		n.hashes[i] = hash
		ev.Blocks[i] = kv.Block{Hash: hash, Local: local, Tokens: block}
	}
	c.journal = append(c.journal, ev)
}

// lastHashAbove is the hash of the last block that ends in id or above. It
// visits no more than BlockTokens/PageTokens nodes.
func (c *Cache) lastHashAbove(id NodeID) kv.BlockHash {
	for at := id; at != Root; at = c.nodes[at].parent {
		if hashes := c.nodes[at].hashes; len(hashes) > 0 {
			return hashes[len(hashes)-1]
		}
	}
	panic(fmt.Sprintf("radixcache: no block ends at or above node %d, which ends at token %d", id, c.nodes[id].end()))
}

// journalRemoved withdraws the blocks of a node that is being removed. Removals
// in a row are one event: an eviction takes many small leaves.
func (c *Cache) journalRemoved(n *node) {
	if len(n.hashes) == 0 {
		return
	}
	if last := len(c.journal) - 1; last >= 0 {
		if ev := &c.journal[last]; ev.Kind == kv.Removed && ev.Namespace == n.space.ns {
			ev.Hashes = append(ev.Hashes, n.hashes...)
			return
		}
	}
	c.journal = append(c.journal, kv.Event{Kind: kv.Removed, Namespace: n.space.ns, Hashes: n.hashes}) // the node is gone, the slice is the event's
}

// blocksEnding counts the blocks whose last token is in [start, start+n).
func (c *Cache) blocksEnding(start, n int) int {
	return (start+n)/c.cfg.BlockTokens - start/c.cfg.BlockTokens
}
