package scheduler

import (
	"cmp"
	"maps"
	"slices"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/tiering"
)

// tierBlocks makes cache events from the contents of lower tiers. Tiers hold extents, and
// events name blocks; a block belongs to the extent in which it ends. With blocks of 16 and
// extents of 40 tokens, the first extent has blocks 0 and 1, the second, [40, 80), has
// blocks 2 to 4. A tier that has an extent has the extents before it too, and so the blocks
// before those of the extent. Extents with media, and those after them, give no events.
type tierBlocks struct {
	blockTokens int
	known       map[mempool.Key]*extentBlocks  // by extent, for those that are in some tier
	held        [kv.Tiers]map[kv.BlockHash]int // for each tier and block, the extents that have it
}

// extentBlocks are the blocks that end in an extent.
type extentBlocks struct {
	tiers    int // number of tiers that have the extent
	depth    int // number of blocks before the first
	ns       kv.Namespace
	opaque   bool         // the blocks are not known, because of media
	above    kv.BlockHash // hash of the block before the first, if hasAbove
	hasAbove bool
	blocks   []kv.Block
	rest     []kv.Token // tokens after the last block
}

// newTierBlocks makes an empty tierBlocks.
func newTierBlocks(blockTokens int) *tierBlocks {
	b := &tierBlocks{blockTokens: blockTokens, known: map[mempool.Key]*extentBlocks{}}
	for i := range b.held {
		b.held[i] = map[kv.BlockHash]int{}
	}
	return b
}

// within returns which blocks end in the extent x: those with the numbers [lo, hi), counted
// from the start of the sequence. It returns zeros if b is nil.
func (b *tierBlocks) within(x *mempool.Extent) (lo, hi int) {
	if b == nil {
		return 0, 0
	}
	return x.Start / b.blockTokens, (x.Start + len(x.Tokens)) / b.blockTokens
}

// appendKnown appends to hashes those of the blocks of x that end at or before position
// end, and returns the longer slice. hashes must hold the hashes of all blocks before x,
// and may hold some of x already. If no tier has x, or x is opaque, or blocks before x are
// missing, it appends nothing.
func (b *tierBlocks) appendKnown(hashes []kv.BlockHash, x *mempool.Extent, end int) []kv.BlockHash {
	e := b.known[x.Key]
	lo, hi := b.within(x)
	if e == nil || e.opaque || len(hashes) < lo {
		return hashes
	}
	for i := len(hashes); i < min(hi, end/b.blockTokens); i++ {
		hashes = append(hashes, e.blocks[i-lo].Hash)
	}
	return hashes
}

// lastHash returns the hash of the last block that ends in the extent or before it, and false
// if there is none.
func (x *extentBlocks) lastHash() (h kv.BlockHash, has bool) {
	if n := len(x.blocks); n > 0 {
		return x.blocks[n-1].Hash, true
	}
	return x.above, x.hasAbove
}

// firstHash returns the hash of the extent's first block, 0 if it has none.
func (x *extentBlocks) firstHash() kv.BlockHash {
	if len(x.blocks) == 0 {
		return 0
	}
	return x.blocks[0].Hash
}

// takeEvents appends to dst the events of changes in lower tiers since the last call.
func (t *tiers) takeEvents(dst []kv.Event) []kv.Event {
	if t.blocks == nil {
		return dst
	}
	for _, c := range t.book.Changes(nil) {
		if c.Stored {
			dst = t.blocks.stored(t, &c, dst)
		} else {
			dst = t.blocks.removed(c.Tier, c.Key, dst)
		}
	}
	return dst
}

// stored notes that a tier has got an extent. It appends to dst a Stored event for those
// of the extent's blocks that no other extent in the tier has.
func (b *tierBlocks) stored(t *tiers, c *tiering.Change, dst []kv.Event) []kv.Event {
	x, tier := b.known[c.Key], c.Tier
	if x == nil {
		extent, ok := t.book.Extent(c.Key)
		if !ok {
			return dst // it is gone already; its removal is the next change
		}
		x = b.of(&extent, c.Hashes)
		b.known[c.Key] = x
	}
	x.tiers++
	ev := kv.Event{Kind: kv.Stored, Tier: tier, Namespace: x.ns}
	for i := range x.blocks {
		h := x.blocks[i].Hash
		if b.held[tier][h]++; b.held[tier][h] > 1 {
			continue
		}
		if n := len(ev.Blocks); n == 0 {
			ev.Parent, ev.HasParent = x.above, x.hasAbove
			if i > 0 {
				ev.Parent, ev.HasParent = x.blocks[i-1].Hash, true
			}
		}
		ev.Blocks = append(ev.Blocks, x.blocks[i])
	}
	if len(ev.Blocks) > 0 {
		dst = append(dst, ev)
	}
	return dst
}

// dump appends to dst Stored events of all blocks in lower tiers. dst already has the
// events of the device. A block whose parent is in no tier is left out: no request could
// reach it.
func (b *tierBlocks) dump(dst []kv.Event) []kv.Event {
	told := map[kv.BlockHash]uint8{} // by block, a bit for each tier
	for i := range dst {
		for _, block := range dst[i].Blocks {
			told[block.Hash] = 1 << kv.TierDevice
		}
	}
	all := slices.Collect(maps.Values(b.known))
	slices.SortFunc(all, func(x, y *extentBlocks) int {
		return cmp.Or(cmp.Compare(x.depth, y.depth), cmp.Compare(x.firstHash(), y.firstHash()))
	})
	for _, x := range all {
		parent, hasParent := x.above, x.hasAbove
		for _, block := range x.blocks {
			for tier := range b.held {
				bit := uint8(1) << tier
				if b.held[tier][block.Hash] > 0 && told[block.Hash]&bit == 0 && (!hasParent || told[parent] != 0) {
					told[block.Hash] |= bit
					dst = append(dst, kv.Event{Kind: kv.Stored, Tier: kv.Tier(tier), Namespace: x.ns, Parent: parent, HasParent: hasParent, Blocks: []kv.Block{block}})
				}
			}
			parent, hasParent = block.Hash, true
		}
	}
	return dst
}

// removed notes that a tier has lost the extent k. It appends to dst a Removed event for
// those of the extent's blocks that no other extent in the tier has, children first.
func (b *tierBlocks) removed(tier kv.Tier, k mempool.Key, dst []kv.Event) []kv.Event {
	x := b.known[k]
	if x == nil {
		return dst
	}
	if x.tiers--; x.tiers == 0 {
		delete(b.known, k)
	}
	ev := kv.Event{Kind: kv.Removed, Tier: tier, Namespace: x.ns}
	for i := range slices.Backward(x.blocks) {
		h := x.blocks[i].Hash
		if b.held[tier][h]--; b.held[tier][h] == 0 {
			delete(b.held[tier], h)
			ev.Hashes = append(ev.Hashes, h)
		}
	}
	if len(ev.Hashes) > 0 {
		dst = append(dst, ev)
	}
	return dst
}

// of returns the blocks that end in the extent x. hashes are theirs as the tree had them; if they are
// not known, of computes the hashes, and only then sets Block.Local.
func (b *tierBlocks) of(x *mempool.Extent, hashes []kv.BlockHash) *extentBlocks {
	e := &extentBlocks{ns: x.Namespace, opaque: len(x.Media) > 0}
	tokens := x.Tokens
	if !x.Parent.IsZero() {
		p := b.known[x.Parent]
		if p == nil || p.opaque {
			e.opaque = true
			return e
		}
		e.above, e.hasAbove = p.lastHash()
		e.depth = p.depth + len(p.blocks)
		tokens = slices.Concat(p.rest, tokens)
	}
	if e.opaque {
		return e
	}
	for len(tokens) >= b.blockTokens {
		e.blocks = append(e.blocks, kv.Block{Tokens: slices.Clone(tokens[:b.blockTokens])})
		tokens = tokens[b.blockTokens:]
	}
	e.rest = slices.Clone(tokens)
	if len(hashes) == len(e.blocks) {
		for i, h := range hashes {
			e.blocks[i].Hash = h
		}
		return e
	}
	hasher := kv.NewHasher(x.Namespace, b.blockTokens)
	if e.hasAbove {
		hasher.Resume(e.above)
	}
	for i := range e.blocks {
		block := &e.blocks[i]
		block.Hash, block.Local = hasher.NextMedia(block.Tokens, nil)
	}
	return e
}
