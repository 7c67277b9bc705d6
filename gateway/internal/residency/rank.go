package residency

import (
	"sync"
	"sync/atomic"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router/kvindex"
)

// rank is the state of one rank.
type rank struct {
	holder   kv.Rank
	changing sync.Mutex   // held for a whole change; taken before mu
	mu       sync.RWMutex // guards the fields below; a change holds it for one part or a swap at a time
	shown    shown

	names *kvindex.Names // translates the rank's hashes; nil: its hashes are those of kv.Chain
	tiers *tiers         // table of its blocks; nil: it has named no lower tier. The indexes hold only blocks of the table
	lost  uint64         // the value of Residency.losses after the rank's last loss of blocks

	// lossy says that blocks of the rank were refused since its last Clear, for lack of room or
	// as invalid. So a missing parent no longer proves that an event was lost.
	lossy bool

	run    kvindex.Run    // scratch
	hashes []kv.BlockHash // scratch
	gone   []kv.BlockHash // scratch of take
}

// shown holds the values that Held and Stats read without a lock. They are updated after each
// part of a change.
type shown struct {
	foreign, lossy, tiered atomic.Bool
	blocks, lower          atomic.Int64 // of a rank with a table
}

// show copies the current values to shown. The caller holds the rank's lock.
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

// counts holds the numbers behind Stats.Replaces and behind the refused blocks by reason.
type counts struct {
	replaces, orphans, belowRefused, overfull, tiersFull, foreign, collisions, invalid atomic.Uint64
}
