package events

import (
	"cmp"
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// Origin is a source of events within one worker: its engine, a cache of a lower
// tier, another engine's.
type Origin uint8

// maxOrigins is how many there can be.
const maxOrigins = 64

// Consolidator makes one residency of what several origins of a worker hold, which
// may name the same block by different hashes. A block is known by the chain of
// its contents, computed here; it is stored when the first origin has it and
// removed when the last one lets go. It is pure, and belongs to one goroutine.
//
// Source: Dynamo's KV consolidator (lib/kvbm-consolidator). Unlike that, blocks
// below an unknown parent are dropped and counted, not taken for roots, and a
// clear takes only what the origin that clears had.
type Consolidator struct {
	size    int // tokens per block
	limit   int
	tiers   bool
	names   [maxOrigins]map[kv.BlockHash]named // of each origin, by its hash
	blocks  map[kv.BlockHash]*consolidated
	order   uint64
	metrics ConsolidatorMetrics
}

// ConsolidatorMetrics counts since the start.
type ConsolidatorMetrics struct {
	OrphanBlocks   uint64 // below a parent that the origin has not announced, dropped
	UnknownRemoves uint64 // of blocks that the origin does not have
	RefusedBlocks  uint64 // of another size, from an impossible origin, or too many
	Blocks         uint64 // held now, each once
}

// named is a block as an origin has it.
type named struct {
	hash  kv.BlockHash // ours
	tiers uint8        // bit per kv.Tier, never 0
}

type consolidated struct {
	holders [kv.Tiers]int // per tier, the names of all origins that it is there by
	order   uint64
}

func (c *consolidated) free() bool { return c.holders == [len(c.holders)]int{} }

// NewConsolidator is empty. Blocks beyond limit are refused. With tiers, each tier
// is a residency of its own; else all are one, told as the device's.
func NewConsolidator(blockTokens, limit int, tiers bool) *Consolidator {
	return &Consolidator{size: blockTokens, limit: limit, tiers: tiers, blocks: make(map[kv.BlockHash]*consolidated)}
}

// Metrics is as of now.
func (c *Consolidator) Metrics() ConsolidatorMetrics {
	m := c.metrics
	m.Blocks = uint64(len(c.blocks))
	return m
}

// Apply appends to dst what ev, of an origin, changes for the worker as a whole.
// The events' hashes are Dynamo's chain; Seq is left 0.
func (c *Consolidator) Apply(dst []kv.Event, from Origin, ev *kv.Event) []kv.Event {
	if from >= maxOrigins || ev.Tier >= kv.Tiers {
		c.metrics.RefusedBlocks += uint64(len(ev.Blocks) + len(ev.Hashes))
		return dst
	}
	if c.names[from] == nil {
		c.names[from] = make(map[kv.BlockHash]named)
	}
	switch ev.Kind {
	case kv.Stored:
		return c.store(dst, from, ev)
	case kv.Removed:
		return c.remove(dst, from, ev)
	default:
		return c.clear(dst, from)
	}
}

func (c *Consolidator) store(dst []kv.Event, from Origin, ev *kv.Event) []kv.Event {
	hasher := kv.NewHasher(ev.Namespace, c.size)
	var parent kv.BlockHash
	if ev.HasParent {
		name, known := c.names[from][ev.Parent]
		if !known {
			c.metrics.OrphanBlocks += uint64(len(ev.Blocks))
			return dst
		}
		parent = name.hash
		hasher.Resume(parent)
	}
	hasParent, bit := ev.HasParent, uint8(1)<<ev.Tier
	out := kv.Event{Kind: kv.Stored, Tier: c.tier(ev.Tier), Namespace: ev.Namespace}
	flush := func() {
		if len(out.Blocks) > 0 {
			dst = append(dst, out)
			out.Blocks = nil
		}
	}
	for i, b := range ev.Blocks {
		if len(b.Tokens) != c.size {
			c.metrics.RefusedBlocks += uint64(len(ev.Blocks) - i)
			break
		}
		hash, local := hasher.NextMedia(b.Tokens, slices.Clone(b.Media))
		name, again := c.names[from][b.Hash]
		if again && name.hash != hash { // of another block, which nobody can let go any more
			flush()
			dst = c.drop(dst, from, b.Hash)
			name = named{}
		}
		block := c.blocks[hash]
		if block == nil {
			if len(c.blocks) >= c.limit {
				c.metrics.RefusedBlocks += uint64(len(ev.Blocks) - i)
				break
			}
			c.order++
			block = &consolidated{order: c.order}
			c.blocks[hash] = block
		}
		had := c.holds(block, out.Tier)
		if name.tiers&bit == 0 {
			block.holders[ev.Tier]++
			c.names[from][b.Hash] = named{hash, name.tiers | bit}
		}
		if had {
			flush()
		} else {
			if len(out.Blocks) == 0 {
				out.Parent, out.HasParent = parent, hasParent
			}
			out.Blocks = append(out.Blocks, kv.Block{Hash: hash, Local: local, Tokens: b.Tokens, Media: b.Media})
		}
		parent, hasParent = hash, true
	}
	flush()
	return dst
}

// drop takes a name from an origin, in all tiers.
func (c *Consolidator) drop(dst []kv.Event, from Origin, h kv.BlockHash) []kv.Event {
	name := c.names[from][h]
	delete(c.names[from], h)
	for tier := range kv.Tier(kv.Tiers) {
		if name.tiers&(1<<tier) != 0 && c.release(name.hash, tier) {
			dst = append(dst, kv.Event{Kind: kv.Removed, Tier: c.tier(tier), Hashes: []kv.BlockHash{name.hash}})
		}
	}
	return dst
}

// tier is as which a tier is told.
func (c *Consolidator) tier(t kv.Tier) kv.Tier {
	if c.tiers {
		return t
	}
	return kv.TierDevice
}

// holds tells whether a block is told to be in a tier.
func (c *Consolidator) holds(b *consolidated, told kv.Tier) bool {
	if c.tiers {
		return b.holders[told] != 0
	}
	return !b.free()
}

func (c *Consolidator) remove(dst []kv.Event, from Origin, ev *kv.Event) []kv.Event {
	out := kv.Event{Kind: kv.Removed, Tier: c.tier(ev.Tier)}
	bit := uint8(1) << ev.Tier
	for _, h := range ev.Hashes {
		name := c.names[from][h]
		if name.tiers&bit == 0 {
			c.metrics.UnknownRemoves++
			continue
		}
		if name.tiers &^= bit; name.tiers == 0 {
			delete(c.names[from], h)
		} else {
			c.names[from][h] = name
		}
		if c.release(name.hash, ev.Tier) {
			out.Hashes = append(out.Hashes, name.hash)
		}
	}
	if len(out.Hashes) > 0 {
		dst = append(dst, out)
	}
	return dst
}

// release takes one name from a block in one tier, and tells whether the block is gone
// from the tier as it is told.
func (c *Consolidator) release(hash kv.BlockHash, tier kv.Tier) bool {
	b := c.blocks[hash]
	b.holders[tier]--
	if b.free() {
		delete(c.blocks, hash)
	}
	return !c.holds(b, c.tier(tier))
}

// clear takes all from an origin, children first.
func (c *Consolidator) clear(dst []kv.Event, from Origin) []kv.Event {
	type held struct {
		named
		order uint64
	}
	all := make([]held, 0, len(c.names[from]))
	for _, name := range c.names[from] {
		all = append(all, held{name, c.blocks[name.hash].order})
	}
	clear(c.names[from])
	slices.SortFunc(all, func(a, b held) int { return cmp.Compare(b.order, a.order) })
	var gone [kv.Tiers][]kv.BlockHash
	for _, h := range all {
		for tier := range kv.Tier(len(gone)) {
			if h.tiers&(1<<tier) != 0 && c.release(h.hash, tier) {
				told := c.tier(tier)
				gone[told] = append(gone[told], h.hash)
			}
		}
	}
	if len(c.blocks) == 0 {
		return append(dst, kv.Event{Kind: kv.Cleared})
	}
	for tier, hashes := range gone {
		if len(hashes) > 0 {
			dst = append(dst, kv.Event{Kind: kv.Removed, Tier: kv.Tier(tier), Hashes: hashes})
		}
	}
	return dst
}
