package residency

import "github.com/coppice-llm/coppice/kv"

// tierSet is a set of tiers: bit kv.Tier.
type tierSet uint8

const (
	onDevice tierSet = 1 << kv.TierDevice
	onHost   tierSet = 1 << kv.TierHost
	onDisk   tierSet = 1 << kv.TierDisk
	onShared tierSet = 1 << kv.TierShared
	anyTier  tierSet = ^tierSet(0)
)

// tiers is all that one rank holds: in which tiers each block is, by its chained hash.
// Limits are apart, so that a large host memory can't push out what is known of the
// device.
type tiers struct {
	masks  map[kv.BlockHash]tierSet // none is empty
	device int                      // blocks that are on the device
	lower  int                      // blocks that are not
	deep   int                      // of those, blocks that are not on the host either

	mostDevice, mostLower int
}

// add adds blocks to a tier, and returns how many until there is no room for one.
func (t *tiers) add(tier kv.Tier, hashes []kv.BlockHash) int {
	for i, hash := range hashes {
		was := t.masks[hash]
		now := was | 1<<tier
		switch {
		case now == was:
			continue
		case was&onDevice != 0: // a copy below
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

// remove takes a block from some tiers. It returns false if it is in none any more,
// and whether there was no room for what was left of it.
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

// isDeep is 1 for a block that is on disk or in what is shared alone.
func isDeep(in tierSet) int {
	if in != 0 && in&(onDevice|onHost) == 0 {
		return 1
	}
	return 0
}
