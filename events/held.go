package events

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/events/wire"
	"github.com/coppice-llm/coppice/kv"
)

// held is what a publisher's cache holds, as far as it has been announced. It
// turns events into the wire's, without what readers know already.
type held struct {
	blocks  map[kv.BlockHash]heldBlock
	order   uint64
	limit   int
	size    int // tokens per block
	metrics *PublisherMetrics

	out *batchBuilder
}

type heldBlock struct {
	kv.Block
	ns        kv.Namespace
	parent    kv.BlockHash
	hasParent bool
	salted    bool   // it says its salt: its parent, if there is one, is public
	tiers     uint8  // bit per kv.Tier, never 0
	order     uint64 // of its announcement: dumps keep runs together
}

// apply appends to the batch what ev changes; false if there is no room for it.
func (h *held) apply(ev *kv.Event) bool {
	switch ev.Kind {
	case kv.Stored:
		return h.store(ev)
	case kv.Removed:
		h.remove(ev)
	case kv.Cleared:
		h.clear()
	default:
		panic(fmt.Sprintf("events: Publish: %v", ev.Kind))
	}
	return true
}

func (h *held) store(ev *kv.Event) bool {
	parent, hasParent := ev.Parent, ev.HasParent
	salted := ev.Namespace.Salt != ""
	if hasParent {
		was, ok := h.blocks[parent]
		salted = salted && was.ns.Salt == ""
		if !ok {
			// After a gap, or by a fault of the cache: no reader could place them.
			h.metrics.OrphanBlocks += uint64(len(ev.Blocks))
			return true
		}
	}
	bit := uint8(1) << ev.Tier
	for _, b := range ev.Blocks {
		if len(b.Tokens) != h.size {
			h.metrics.RefusedBlocks++
			return true // its children are orphans
		}
		was, known := h.blocks[b.Hash]
		switch {
		case known && was.tiers&bit != 0:
			h.metrics.DuplicateBlocks++
		case known:
			was.tiers |= bit
			h.blocks[b.Hash] = was
			h.out.store(ev.Tier, &was)
		case len(h.blocks) >= h.limit:
			return false
		default:
			h.order++
			now := heldBlock{b, ev.Namespace, parent, hasParent, salted, bit, h.order}
			h.blocks[b.Hash] = now
			h.out.store(ev.Tier, &now)
		}
		parent, hasParent, salted = b.Hash, true, false
	}
	return true
}

func (h *held) remove(ev *kv.Event) {
	bit := uint8(1) << ev.Tier
	for _, hash := range ev.Hashes {
		b, known := h.blocks[hash]
		if !known || b.tiers&bit == 0 {
			h.metrics.UnknownRemoves++
			continue
		}
		if b.tiers &^= bit; b.tiers == 0 {
			delete(h.blocks, hash)
		} else {
			h.blocks[hash] = b
		}
		h.out.remove(ev.Tier, hash)
	}
}

func (h *held) clear() {
	clear(h.blocks)
	h.out.clear()
}

// ordered returns all blocks, parents first, otherwise in the order in which
// they came, so that runs stay together. Blocks whose parents are gone from all
// tiers are left out: nobody can reach them.
func (h *held) ordered() []heldBlock {
	all := make([]heldBlock, 0, len(h.blocks))
	for _, b := range h.blocks {
		all = append(all, b)
	}
	slices.SortFunc(all, func(a, b heldBlock) int { return cmp.Compare(a.order, b.order) })
	out := make([]heldBlock, 0, len(all))
	reachable := make(map[kv.BlockHash]bool, len(all))
	var chain []heldBlock
	for _, b := range all {
		// A parent is older than its children unless it went and came again. So
		// the way up is walked, which is one step for nearly all.
		chain = chain[:0]
		ok := true
		for at := b; ; {
			known, seen := reachable[at.Hash]
			if seen {
				ok = known
				break
			}
			chain = append(chain, at)
			if !at.hasParent {
				break
			}
			if at, ok = h.blocks[at.parent]; !ok || len(chain) > len(all) {
				ok = false
				break
			}
		}
		for _, c := range slices.Backward(chain) {
			reachable[c.Hash] = ok
			if ok {
				out = append(out, c)
			}
		}
	}
	return out
}

// batchBuilder gathers the events of one batch in slabs that it uses again.
type batchBuilder struct {
	batch  wire.Batch
	blocks int
	hashes []uint64
	tokens []uint32
	from   int // where the last event's hashes begin
	fromT  int // and its tokens
	lastNS kv.Namespace
	extras []byte
	keys   [1][]string
}

func (o *batchBuilder) reset() {
	o.batch.Events = o.batch.Events[:0]
	o.blocks, o.hashes, o.tokens, o.extras = 0, o.hashes[:0], o.tokens[:0], o.extras[:0]
}

func (o *batchBuilder) empty() bool { return len(o.batch.Events) == 0 }

// begin starts an event whose slices are the ends of the slabs.
func (o *batchBuilder) begin(e wire.Event) *wire.Event {
	o.from, o.fromT = len(o.hashes), len(o.tokens)
	o.batch.Events = append(o.batch.Events, e)
	return &o.batch.Events[len(o.batch.Events)-1]
}

func (o *batchBuilder) last(kind wire.Kind, tier kv.Tier) *wire.Event {
	if o.empty() {
		return nil
	}
	e := &o.batch.Events[len(o.batch.Events)-1]
	if e.Kind != kind || string(e.Medium) != media[tier] {
		return nil
	}
	return e
}

// store adds a block, to the last event if it goes on where that one ends. A
// block with extra keys is an event of its own, so that plain ones have none.
func (o *batchBuilder) store(tier kv.Tier, b *heldBlock) {
	plain := len(b.Media) == 0 && !b.salted
	e := o.last(wire.BlockStored, tier)
	if e == nil || !plain || e.Extra != nil || !b.hasParent || uint64(b.parent) != e.Hashes[len(e.Hashes)-1] || o.lastNS != b.ns {
		e = o.begin(wire.Event{Kind: wire.BlockStored, Medium: mediaBytes[tier], BlockTokens: len(b.Tokens),
			Parent: uint64(b.parent), HasParent: b.hasParent})
		if b.ns.LoRA != "" {
			e.LoRA = []byte(b.ns.LoRA)
		}
		if !plain {
			from := len(o.extras)
			o.extras = wire.AppendExtra(o.extras, o.extraKeys(b))
			e.Extra = o.extras[from:len(o.extras):len(o.extras)]
		}
		o.lastNS = b.ns
	}
	o.hashes = append(o.hashes, uint64(b.Hash))
	for _, t := range b.Tokens {
		o.tokens = append(o.tokens, uint32(t))
	}
	e.Hashes, e.Tokens = o.hashes[o.from:], o.tokens[o.fromT:]
	o.blocks++
}

// extraKeys are the keys in vLLM's order: the adapter's name, which is needed only where the
// salt is the same, media, then the salt, on the first block of a sequence alone. A private
// block after a public one, which vLLM does not have, says its salt after a mark. Media are 64
// hexadecimal digits, of which Dynamo reads the first 16.
func (o *batchBuilder) extraKeys(b *heldBlock) [][]string {
	keys := o.keys[0][:0]
	if b.salted && !b.hasParent && b.ns.Salt == b.ns.LoRA {
		keys = append(keys, b.ns.LoRA)
	}
	for _, m := range b.Media {
		keys = append(keys, fmt.Sprintf("%016x%048x", m, 0))
	}
	switch {
	case b.salted && b.hasParent:
		keys = append(keys, privateMark+b.ns.Salt)
	case b.salted:
		keys = append(keys, b.ns.Salt)
	}
	o.keys[0] = keys
	return o.keys[:]
}

func (o *batchBuilder) remove(tier kv.Tier, hash kv.BlockHash) {
	e := o.last(wire.BlockRemoved, tier)
	if e == nil {
		e = o.begin(wire.Event{Kind: wire.BlockRemoved, Medium: mediaBytes[tier]})
	}
	o.hashes = append(o.hashes, uint64(hash))
	e.Hashes = o.hashes[o.from:]
	o.blocks++
}

func (o *batchBuilder) clear() {
	if e := o.last(wire.AllBlocksCleared, kv.TierDevice); e == nil {
		o.begin(wire.Event{Kind: wire.AllBlocksCleared, Medium: mediaBytes[kv.TierDevice]})
	}
}
