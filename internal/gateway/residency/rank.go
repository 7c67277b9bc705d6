package residency

import (
	"sync"
	"sync/atomic"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router/kvindex"
)

// rank is what is known of one holder.
type rank struct {
	holder   kv.Rank
	changing sync.Mutex   // held for as long as a change takes; before mu
	mu       sync.RWMutex // of what follows, shared by lookups in the table: for a part of a change, or for no longer than a swap
	shown    shown

	names *kvindex.Names // nil: its hashes are kv.Chain's
	tiers *tiers         // nil: it has named no lower tier. Both indexes hold no more than is in it
	lost  uint64         // the last of Residency.losses that was this rank's

	// lossy: blocks of it were refused since it was cleared, for want of room or for
	// their form. Blocks below those are no sign of a lost event.
	lossy bool

	run    kvindex.Run    // scratch
	hashes []kv.BlockHash // scratch
	gone   []kv.BlockHash // scratch of take
}

// shown is what Held and Stats read without a lock: as of the end of the last part of a
// change.
type shown struct {
	foreign, lossy, tiered atomic.Bool
	blocks, lower          atomic.Int64 // of a rank with a table
}

// show brings shown up to date. The rank's lock is held.
func (k *rank) show() {
	k.shown.foreign.Store(k.names != nil)
	k.shown.lossy.Store(k.lossy)
	blocks, lower := 0, 0
	if k.tiers != nil {
		blocks, lower = len(k.tiers.masks), k.tiers.lower
	}
	k.shown.blocks.Store(int64(blocks))
	k.shown.lower.Store(int64(lower))
	k.shown.tiered.Store(k.tiers != nil)
}

// counts are what became of blocks.
type counts struct {
	replaces, orphans, belowRefused, overfull, tiersFull, foreign, collisions, invalid atomic.Uint64
}
