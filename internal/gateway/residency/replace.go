package residency

import (
	"slices"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router/kvindex"
)

// content is a dump, converted before any lookup sees it.
type content struct {
	names   *kvindex.Names // translates the dump's hashes; nil: they are those of kv.Chain
	tiers   *tiers
	lower   bool          // some block is in a lower tier
	runs    []kvindex.Run // for the index of all tiers
	device  []kvindex.Run // for the device's index
	lossy   bool
	refused int // number of blocks whose parents are not in the dump

	run kvindex.Run // scratch
}

// Replace implements [events.Sink]. Lookups see all of the dump or nothing of it, and wait no
// longer than for a store: the dump is stored in the indexes under a shadow rank, which is then
// swapped with the rank. Until then the rank may take twice its room. It returns the number of
// blocks whose parents are missing.
func (x *Residency) Replace(r kv.Rank, dump []events.Stored) (refused int) {
	k := x.rankOrNew(r)
	if k == nil {
		x.counts.overfull.Add(uint64(blocksOf(dump)))
		return 0
	}
	k.changing.Lock()
	defer k.changing.Unlock()
	c := &content{tiers: x.newTiers()}
	if !x.read(c, dump) {
		c = &content{tiers: x.newTiers(), names: x.newNames()}
		x.read(c, dump)
	}
	shadow := shadowOf(k.holder)
	err := fill(x.index, shadow, c.device)
	tiered := c.lower || x.isTiered(k)
	if tiered && err != kvindex.ErrCollision {
		err = fill(x.below, shadow, c.runs)
	}
	if tiered && err == kvindex.ErrCollision {
		x.collided(k, c)
	} else {
		x.put(k, c, tiered, err)
	}
	x.index.Forget(shadow) // after the swap: the previous content
	if tiered {
		x.below.Forget(shadow)
	}
	x.counts.replaces.Add(1)
	x.counts.orphans.Add(uint64(c.refused))
	return c.refused
}

// fill stores runs of rank h in index, as far as the index takes them. It returns ErrCollision
// if there was one, else the first error.
func fill(index *kvindex.Sharded, h kv.Rank, runs []kvindex.Run) (met error) {
	for i := range runs {
		if _, err := index.Store(h, runs[i]); met == nil || err == kvindex.ErrCollision {
			met = err
		}
	}
	return met
}

func (x *Residency) isTiered(k *rank) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.tiers != nil
}

func blocksOf(dump []events.Stored) (n int) {
	for i := range dump {
		n += len(dump[i].Blocks)
	}
	return n
}

// put swaps the shadow of k with k, in one step, and makes c the state of k. tiered says that k
// has a table from now on. err is the error of fill: the index did not take all blocks.
func (x *Residency) put(k *rank, c *content, tiered bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer k.show()
	x.index.Swap(k.holder, shadowOf(k.holder))
	k.names, k.lossy = c.names, c.lossy
	if !tiered {
		if err != nil {
			k.lossy = true
			x.counts.overfull.Add(uint64(max(0, c.tiers.device-x.index.Held(k.holder))))
		}
		return
	}
	x.below.Swap(k.holder, shadowOf(k.holder))
	if k.tiers == nil {
		x.list(k)
	}
	k.tiers = c.tiers
	k.lost = x.losses.Add(1)
}

// collided handles a dump c in which two prefixes have the same hash; the table can't tell them
// apart, see storeTier. It is unknown which blocks are affected, so the whole dump is dropped,
// and k has no blocks.
func (x *Residency) collided(k *rank, c *content) {
	x.counts.collisions.Add(uint64(len(c.tiers.masks)))
	x.clear(k)
	k.mu.Lock()
	defer k.mu.Unlock()
	defer k.show()
	k.lossy = true
	if k.tiers == nil {
		k.tiers = x.newTiers()
		x.list(k)
	}
}

// read converts a dump into c. It returns false, before the end, if the dump's hashes are not
// those of kv.Chain and c has no names to translate them.
func (x *Residency) read(c *content, dump []events.Stored) bool {
	for i := range dump {
		s := &dump[i]
		if s.Tier >= kv.Tiers {
			x.counts.invalid.Add(uint64(len(s.Blocks)))
			c.lossy = true
			continue
		}
		c.run = runOf(s, c.run)
		run := c.run
		if c.names == nil && !isChain(run) {
			return false
		}
		if c.names != nil {
			var gone []kv.BlockHash
			var err error
			if run, gone, err = c.names.Store(run); len(gone) > 0 || err != nil && err != kvindex.ErrUnknownParent {
				x.refuseRun(c, dump, gone, err, len(s.Blocks))
				if len(gone) > 0 {
					return true
				}
				continue
			} else if err != nil {
				x.orphan(c, len(s.Blocks))
				continue
			}
		}
		if run.HasParent && c.tiers.masks[run.Parent] == 0 {
			x.orphan(c, len(s.Blocks))
			continue
		}
		x.addRun(c, s.Tier, run)
	}
	return true
}

// orphan counts blocks whose parent is missing, because it is not in the dump or was refused.
func (x *Residency) orphan(c *content, blocks int) {
	if c.lossy {
		x.counts.belowRefused.Add(uint64(blocks))
	} else {
		c.refused += blocks
	}
}

// refuseRun counts a run of this many blocks that names.Store refuses with err. gone are the
// blocks whose names now stand for other blocks. That is impossible in a set of blocks, so if
// there are any, the whole dump is dropped.
func (x *Residency) refuseRun(c *content, dump []events.Stored, gone []kv.BlockHash, err error, blocks int) {
	switch {
	case len(gone) > 0:
		*c = content{tiers: x.newTiers()}
		x.counts.invalid.Add(uint64(blocksOf(dump)))
	case err == kvindex.ErrFull:
		x.counts.overfull.Add(uint64(blocks))
	default:
		x.counts.invalid.Add(uint64(blocks))
	}
	c.lossy = true
}

// addRun adds a run of blocks in tier to c. The run's parent is present. Blocks for which the
// table has no room are counted and left out.
func (x *Residency) addRun(c *content, tier kv.Tier, run kvindex.Run) {
	fit := c.tiers.add(tier, run.Hashes)
	if over := uint64(len(run.Hashes) - fit); over > 0 {
		c.lossy = true
		if tier == kv.TierDevice {
			x.counts.overfull.Add(over)
		} else {
			x.counts.tiersFull.Add(over)
		}
	}
	if fit == 0 {
		return
	}
	run.Hashes, run.Locals = slices.Clone(run.Hashes[:fit]), slices.Clone(run.Locals[:fit])
	c.runs = append(c.runs, run)
	if tier == kv.TierDevice {
		c.device = append(c.device, run)
	} else {
		c.lower = true
	}
}
