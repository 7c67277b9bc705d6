package tiering

import (
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

// Saving is the answer of Save.
type Saving uint8

// The answers.
const (
	Saved    Saving = iota // the tier has the extent, or one that contains it
	Begun                  // a write of it is queued now
	Coming                 // a write of it was queued before, and has not ended
	NoRoom                 // not now: the tier, the queue or a quota is full; ask again after the next move
	Unsaved                // never: no faster tier has it, or the tier does not take it
	Orphaned               // its parent is not in the tier, nor on its way there
)

// Save asks for an extent to be written to a tier, whatever its uses are. The owner asks for parents first, and until the answer is Saved or
// Unsaved. A write that failed is asked for again by the next Save.
func (b *Book) Save(now time.Duration, k mempool.Key, to kv.Tier) Saving {
	n, t := b.nodes[k], b.tiers[to]
	switch {
	case b.on(to, k) || n != nil && covered(b, to, &n.Extent) && t.writing[k] == nil:
		return Saved
	case n == nil || b.flushing || t.FullOnly && len(n.Tokens) < b.cfg.Layout.ExtentTokens():
		return Unsaved
	case t.writing[k] != nil:
		return Coming
	case t.dropping[k]:
		return NoRoom
	}
	if p := n.Parent; !p.IsZero() && !b.on(to, p) && t.writing[p] == nil {
		return Orphaned
	}
	from := b.fastest(k, kv.TierDevice, to)
	if from == to {
		return Unsaved
	}
	if b.write(now, k, from, to, false) == queued {
		return Begun
	}
	return NoRoom
}
