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
// A block lives in the node that holds its last token. It is announced when
// that token comes in and withdrawn when it goes; parents are announced before
// and withdrawn after their children. The blocks of a private space are of its
// own namespace, also one that begins with public tokens.
func (c *Cache) TakeEvents(dst []kv.Event) []kv.Event {
	dst = append(dst, c.journal...)
	clear(c.journal) // the slices belong to the taker now
	c.journal = c.journal[:0]
	return dst
}

// journalStored hashes the blocks that end in a new leaf. tokens: the whole key
// from token 0 to the leaf's end, as the first block may start above it.
func (c *Cache) journalStored(id NodeID, tokens []kv.Token) {
	n := &c.nodes[id]
	start := int(n.start)
	count := c.blocksEnding(start, len(tokens)-start)
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
	hashes := make([]kv.BlockHash, 0, count)
	held := slices.Clone(tokens[first*b : (first+count)*b])
	for i := range ev.Blocks {
		block := held[i*b : (i+1)*b : (i+1)*b]
		media := c.media.plain(block, nil)
		hash, local := hasher.NextMedia(block, media)
		hashes = append(hashes, hash)
		ev.Blocks[i] = kv.Block{Hash: hash, Local: local, Tokens: block, Media: media}
	}
	n.hashes = &hashes
	if !n.space.dead {
		c.journal = append(c.journal, ev)
	}
}

// lastHashAbove is the hash of the last block that ends in id or above. It
// visits no more than BlockTokens/PageTokens nodes with tokens.
func (c *Cache) lastHashAbove(id NodeID) kv.BlockHash {
	for at := id; at != Root; at = c.nodes[at].parent {
		if h := c.nodes[at].hashes; h != nil {
			return (*h)[len(*h)-1]
		}
	}
	panic(fmt.Sprintf("radixcache: no block ends at or above node %d, which ends at token %d", id, c.nodes[id].end()))
}

// journalRemoved withdraws the blocks of a node that end after its first keep
// tokens. Removals in a row are one event: an eviction takes many small leaves.
func (c *Cache) journalRemoved(n *node, keep int) {
	if n.hashes == nil {
		return
	}
	at := c.blocksEnding(int(n.start), keep)
	gone := (*n.hashes)[at:]
	if len(gone) == 0 {
		return
	}
	if !n.space.dead {
		c.withdraw(n.space.ns, gone)
	}
	if at == 0 {
		n.hashes = nil
	} else {
		*n.hashes = slices.Clip((*n.hashes)[:at])
	}
}

func (c *Cache) withdraw(ns kv.Namespace, gone []kv.BlockHash) {
	if last := len(c.journal) - 1; last >= 0 {
		if ev := &c.journal[last]; ev.Kind == kv.Removed && ev.Namespace == ns {
			ev.Hashes = append(ev.Hashes, gone...)
			return
		}
	}
	c.journal = append(c.journal, kv.Event{Kind: kv.Removed, Namespace: ns, Hashes: slices.Clone(gone)})
}

// blocksEnding counts the blocks whose last token is in [start, start+n).
func (c *Cache) blocksEnding(start, n int) int {
	return (start+n)/c.cfg.BlockTokens - start/c.cfg.BlockTokens
}
