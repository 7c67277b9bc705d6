package radixcache

import (
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/internal/wide"
	"github.com/coppice-llm/coppice/kv"
)

// tree is the layer that changes the shape: it adds, splits, joins and removes nodes.
// With each change it updates the parts that depend on the shape: counts, orders,
// journal, media and ghosts.
type tree struct {
	spaces
	journal journal
	media   media
	ghosts  ghosts
	runs    []kv.Token     // scratch memory of fuse
	lists   []kv.PageID    // scratch memory of fuse
	known   []kv.BlockHash // hashes that the caller of ExtendHashed passed in, while it runs
}

// read returns a key's tokens as the tree stores them, with media replaced by the tokens
// of their numbers, and the number of public tokens. The tokens end before the first
// medium that the tree does not hold, as nothing after it can match.
func (t *tree) read(key *Key) (tokens []kv.Token, public int) {
	tokens = key.Tokens
	if len(key.Media) > 0 {
		tokens = t.media.read(key)
	}
	return tokens, t.public(key)
}

// readIn is read for a key that is about to be inserted: new media get numbers, and it
// panics if a token is not below MediaToken. It does not check a key without media and
// public tokens, the common case, and returns raw true: insert checks the tokens after
// it has copied them, when they are in a CPU cache.
func (t *tree) readIn(key *Key) (tokens []kv.Token, public int, raw bool) {
	tokens, public = key.Tokens, t.public(key)
	if len(key.Media) == 0 && public == 0 {
		return tokens, 0, true
	}
	checkTokens(wide.Or(tokens))
	if len(key.Media) > 0 {
		tokens = t.media.write(key)
	}
	return tokens, min(public, t.floorTokens(len(tokens))), false
}

// public returns the number of public tokens of a key, in whole pages; 0 without
// a salt, as such a key shares all its tokens anyway.
func (s *slab) public(key *Key) int {
	if key.PublicTokens <= 0 || key.Namespace.Salt == "" {
		return 0
	}
	return s.floorTokens(min(key.PublicTokens, len(key.Tokens)))
}

// journalStored stores the hashes of the blocks that end in leaf id, which is new, and
// adds a Stored event for them. tokens is the whole key from token 0 to the leaf's end,
// because the first block may begin above the leaf. In a flushed tree it adds no event,
// as Cleared has withdrawn all blocks. It does not hash blocks whose hash is in t.known:
// their Local stays 0.
func (t *tree) journalStored(id NodeID, tokens []kv.Token) {
	n := &t.nodes[id]
	if !t.cfg.Events || t.blocksEnding(int(n.start), n.tokens.Len()) == 0 {
		return
	}
	hasher := n.space.hasher
	ev := t.storedEvent(n, tokens)
	if ev.HasParent {
		hasher.Resume(ev.Parent)
	}
	hashes := make([]kv.BlockHash, len(ev.Blocks))
	first := int(n.start) / t.cfg.BlockTokens
	for i := range ev.Blocks {
		b := &ev.Blocks[i]
		if first+i < len(t.known) {
			b.Hash = t.known[first+i]
			hasher.Resume(b.Hash)
		} else {
			b.Hash, b.Local = hasher.NextMedia(b.Tokens, b.Media)
		}
		hashes[i] = b.Hash
	}
	n.hashes = &hashes
	if !n.space.dead {
		t.journal.add(ev)
	}
}

// storedEvent returns the Stored event for the blocks that end in a node; the caller
// adds the hashes. path holds the tokens from token 0 to the node's end. The event's
// tokens are a copy, with the placeholders of media that callers passed in.
func (t *tree) storedEvent(n *node, path []kv.Token) kv.Event {
	start := int(n.start)
	count := t.blocksEnding(start, len(path)-start)
	first, b := start/t.cfg.BlockTokens, t.cfg.BlockTokens
	ev := kv.Event{Kind: kv.Stored, Namespace: n.space.ns, Blocks: make([]kv.Block, count)}
	if first > 0 {
		above := t.lastBlockAbove(n.parent)
		ev.Parent, ev.HasParent = (*above.hashes)[len(*above.hashes)-1], true
		ev.PublicParent = n.space.ns.Salt != "" && above.space.ns.Salt == ""
	}
	held := slices.Clone(path[first*b : (first+count)*b])
	for i := range ev.Blocks {
		block := held[i*b : (i+1)*b : (i+1)*b]
		ev.Blocks[i] = kv.Block{Tokens: block, Media: t.media.plain(block, nil)}
	}
	return ev
}

// lastBlockAbove returns the lowest node in which a block ends: node id or one above it.
// It panics if there is none. It passes at most BlockTokens/PageTokens nodes, as each
// has at least a page and no block ends in it.
func (t *tree) lastBlockAbove(id NodeID) *node {
	for at := id; at != Root; at = t.nodes[at].parent {
		if n := &t.nodes[at]; n.hashes != nil {
			return n
		}
	}
	panic(fmt.Sprintf("radixcache: no block ends at or above node %d, which ends at token %d", id, t.nodes[id].end()))
}

// journalRemoved withdraws the blocks that end in a node after the first keep tokens of
// its edge, and removes their hashes from the node. Example: if blocks have 4 tokens and
// an edge [0, 10) is trimmed to 6, block [4, 8) is withdrawn and [0, 4) is not.
func (t *tree) journalRemoved(n *node, keep int) {
	if n.hashes == nil {
		return
	}
	at := t.blocksEnding(int(n.start), keep)
	gone := (*n.hashes)[at:]
	if len(gone) == 0 {
		return
	}
	if !n.space.dead {
		t.journal.withdraw(n.space.ns, gone)
	}
	if at == 0 {
		n.hashes = nil
	} else {
		*n.hashes = slices.Clip((*n.hashes)[:at])
	}
}

// lookedUp counts a lookup in the statistics. asked is the number of tokens of the key,
// found the number of these that the tree held, in whole pages.
func (t *tree) lookedUp(asked, found int) {
	t.counts.Lookups++
	t.counts.LookupTokens += uint64(asked)
	t.counts.HitTokens += uint64(found)
	t.counts.Hits += uint64(count(found > 0))
}
