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
	// shown is 1 + the number of blocks of a rank with a table, and 0 without one. Held reads it without
	// a lock. It is updated after each part of a change.
	shown atomic.Int64

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

// show updates shown. The caller holds the rank's lock.
func (k *rank) show() {
	n := 0
	if k.tiers != nil {
		n = 1 + len(k.tiers.masks)
	}
	k.shown.Store(int64(n))
}
