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

// changed updates shown and unlocks the rank, after a change that began with locking it.
func (k *rank) changed() {
	n := 0
	if k.tiers != nil {
		n = 1 + len(k.tiers.masks)
	}
	k.shown.Store(int64(n))
	k.mu.Unlock()
}

// tierSet is a set of tiers: bit t is kv.Tier t.
type tierSet uint8

const (
	onDevice tierSet = 1 << kv.TierDevice
	onHost   tierSet = 1 << kv.TierHost
	onDisk   tierSet = 1 << kv.TierDisk
	onShared tierSet = 1 << kv.TierShared
	anyTier  tierSet = ^tierSet(0)
)

// tiers lists the blocks that one data-parallel rank of a worker holds, by chained hash, and the
// tiers of each. The number of blocks on the device and that of the others have separate
// limits. So the entries of a large host memory can't displace those of the device.
type tiers struct {
	masks  map[kv.BlockHash]tierSet // never an empty set
	device int                      // blocks on the device
	lower  int                      // blocks not on the device
	deep   int                      // of the lower blocks, those not in host memory either

	mostDevice, mostLower int
}

// add adds blocks to a tier, in this order, until a limit is reached. It returns how many
// leading elements of hashes are in the tier afterwards.
func (t *tiers) add(tier kv.Tier, hashes []kv.BlockHash) int {
	for i, hash := range hashes {
		was := t.masks[hash]
		now := was | 1<<tier
		switch {
		case now == was:
			continue
		case was&onDevice != 0: // a further copy of a block on the device
		case tier == kv.TierDevice:
			if t.device >= t.mostDevice {
				return i
			}
			if t.device++; was != 0 {
				t.lower--
			}
		case was == 0:
			if t.lower >= t.mostLower {
				return i
			}
			t.lower++
		}
		t.masks[hash] = now
		t.deep += isDeep(now) - isDeep(was)
	}
	return len(hashes)
}

// remove removes a block from the tiers in from. held reports whether the block is still in a
// tier. If the block leaves the device and the limit of lower blocks is reached, its copies in
// lower tiers are dropped too, and overfull is true.
func (t *tiers) remove(from tierSet, hash kv.BlockHash) (held, overfull bool) {
	was := t.masks[hash]
	now := was &^ from
	if now == was {
		return was != 0, false
	}
	if was&onDevice != 0 && now&onDevice == 0 {
		t.device--
		switch {
		case now == 0:
		case t.lower >= t.mostLower:
			now, overfull = 0, true
		default:
			t.lower++
		}
	} else if now == 0 {
		t.lower--
	}
	t.deep += isDeep(now) - isDeep(was)
	if now == 0 {
		delete(t.masks, hash)
	} else {
		t.masks[hash] = now
	}
	return now != 0, overfull
}

// isDeep returns 1 if a block in these tiers is neither on the device nor in host memory, else
// 0. It returns 0 for the empty set.
func isDeep(in tierSet) int {
	if in != 0 && in&(onDevice|onHost) == 0 {
		return 1
	}
	return 0
}
