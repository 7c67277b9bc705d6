package scheduler

import (
	"cmp"
	"maps"
	"slices"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/tiering"
)

// tierBlocks makes events of what lower tiers have: a block belongs to the extent in which it
// ends, whose parents are in a tier if it is. Extents with media, and what is below them, give
// none.
type tierBlocks struct {
	blockTokens int
	known       map[mempool.Key]*extentBlocks  // of extents that are in some tier
	writing     map[tiering.MoveID]mempool.Key // Writes from the device, until what they stored was told
	named       map[mempool.Key][]kv.BlockHash // of their extents, as the tree hashed them
	ended       []tiering.MoveID               // of writing
	hashed      int                            // blocks that no tree had hashed
	held        [kv.Tiers]map[kv.BlockHash]int
}

// extentBlocks are the blocks that end in an extent.
type extentBlocks struct {
	tiers    int // that have the extent
	depth    int // blocks before its first
	ns       kv.Namespace
	opaque   bool // its blocks are not known
	above    kv.BlockHash
	hasAbove bool
	blocks   []kv.Block
	rest     []kv.Token // after the last block
}

func newTierBlocks(blockTokens int) *tierBlocks {
	b := &tierBlocks{blockTokens: blockTokens, known: map[mempool.Key]*extentBlocks{},
		writing: map[tiering.MoveID]mempool.Key{}, named: map[mempool.Key][]kv.BlockHash{}}
	for i := range b.held {
		b.held[i] = map[kv.BlockHash]int{}
	}
	return b
}

// within says which blocks end in an extent: those from lo to hi, counted from the start of
// the sequence.
func (b *tierBlocks) within(x *mempool.Extent) (lo, hi int) {
	if b == nil {
		return 0, 0
	}
	return x.Start / b.blockTokens, (x.Start + len(x.Tokens)) / b.blockTokens
}

// writes notes the hashes of an extent that a Write takes from the device, which may give the
// extent up before the Write has ended.
func (b *tierBlocks) writes(id tiering.MoveID, r *resident) {
	if b != nil && len(r.hashes) > 0 {
		b.writing[id], b.named[r.key] = r.key, r.hashes
	}
}

// wrote notes that a move has ended.
func (b *tierBlocks) wrote(id tiering.MoveID) {
	if b != nil && !b.writing[id].IsZero() {
		b.ended = append(b.ended, id)
	}
}

// forget forgets the hashes of Writes that have ended.
func (b *tierBlocks) forget() {
	for _, id := range b.ended {
		delete(b.named, b.writing[id])
		delete(b.writing, id)
	}
	b.ended = b.ended[:0]
}

// last is the hash of the last block that ends in an extent, or before it.
func (x *extentBlocks) last() (h kv.BlockHash, has bool) {
	if n := len(x.blocks); n > 0 {
		return x.blocks[n-1].Hash, true
	}
	return x.above, x.hasAbove
}

// first is the hash of its first block, 0 if none ends in it.
func (x *extentBlocks) first() kv.BlockHash {
	if len(x.blocks) == 0 {
		return 0
	}
	return x.blocks[0].Hash
}

// takeEvents appends what changed in the tiers.
func (t *tiers) takeEvents(dst []kv.Event) []kv.Event {
	if t.blocks == nil {
		return dst
	}
	for _, c := range t.policy.Changes(nil) {
		if c.Stored {
			dst = t.blocks.stored(t, c.Tier, c.Key, dst)
		} else {
			dst = t.blocks.removed(c.Tier, c.Key, dst)
		}
	}
	t.blocks.forget()
	return dst
}

func (b *tierBlocks) stored(t *tiers, tier kv.Tier, k mempool.Key, dst []kv.Event) []kv.Event {
	x := b.known[k]
	if x == nil {
		extent, ok := t.policy.Extent(k)
		if !ok {
			return dst // it has gone again, and that is told next
		}
		x = b.of(&extent)
		b.known[k] = x
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

// Dump appends Stored events of all blocks that the cache of s and the tiers below it hold, parents
// first: what TakeEvents told and took back nothing of. Block.Local may be 0.
func Dump(s *Scheduler, dst []kv.Event) []kv.Event {
	if s.cache == nil {
		return dst
	}
	dst = s.cache.Dump(dst)
	if s.tiers != nil && s.tiers.blocks != nil {
		dst = s.tiers.blocks.dump(dst)
	}
	return dst
}

// dump appends Stored events of all that lower tiers hold, below the blocks that dst announces
// already. Blocks whose parents are in no tier are left out: nobody can reach them.
func (b *tierBlocks) dump(dst []kv.Event) []kv.Event {
	told := map[kv.BlockHash]uint8{} // a bit for each tier
	for i := range dst {
		for _, block := range dst[i].Blocks {
			told[block.Hash] = 1 << kv.TierDevice
		}
	}
	all := slices.Collect(maps.Values(b.known))
	slices.SortFunc(all, func(x, y *extentBlocks) int {
		return cmp.Or(cmp.Compare(x.depth, y.depth), cmp.Compare(x.first(), y.first()))
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

// of names the blocks that end in an extent: by the hashes of the tree that had them, or by
// hashing them. Block.Local is known of the latter only.
func (b *tierBlocks) of(x *mempool.Extent) *extentBlocks {
	e := &extentBlocks{ns: x.Namespace, opaque: len(x.Media) > 0}
	tokens := x.Tokens
	if !x.Parent.IsZero() {
		p := b.known[x.Parent]
		if p == nil || p.opaque {
			e.opaque = true
			return e
		}
		e.above, e.hasAbove = p.last()
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
	if hashes := b.named[x.Key]; len(hashes) == len(e.blocks) {
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
	b.hashed += len(e.blocks)
	return e
}
