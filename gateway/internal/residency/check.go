package residency

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/coppice-llm/coppice/router/kvindex"
)

// Check verifies all invariants and returns the first broken one with its values, nil if all
// hold. It visits all blocks.
func (x *Residency) Check() error {
	if err := x.index.Check(); err != nil {
		return err
	}
	if err := x.below.Check(); err != nil {
		return err
	}
	x.mu.RLock()
	all := slices.Collect(maps.Values(x.ranks))
	x.mu.RUnlock()
	for _, k := range all {
		k.changing.Lock()
		k.mu.RLock()
		err := x.checkRank(k)
		k.mu.RUnlock()
		k.changing.Unlock()
		if err != nil {
			return fmt.Errorf("residency: holder %v: %w", k.holder, err)
		}
	}
	return nil
}

// checkRank verifies the state of a rank: the value of shown, the counts and limits of its
// table, and that the indexes hold only blocks that are in the table.
func (x *Residency) checkRank(k *rank) error {
	if (k.shown.Load() > 0) != (k.tiers != nil) || x.Held(k.holder) != x.held(k) {
		return fmt.Errorf("%d blocks shown, it has %d; tiered %v", x.Held(k.holder), x.held(k), k.tiers != nil)
	}
	held := x.index.Held(k.holder)
	if k.tiers == nil {
		if most := x.cfg.Index.HolderBlocks; held > most {
			return fmt.Errorf("%d blocks in the index, %d allowed", held, most)
		}
		return nil
	}
	t := k.tiers
	device, deep := 0, 0
	for hash, in := range t.masks {
		if in == 0 {
			return fmt.Errorf("block %x is in no tier", hash)
		}
		if in&onDevice != 0 {
			device++
		}
		deep += isDeep(in)
	}
	if device != t.device || len(t.masks)-device != t.lower || deep != t.deep {
		return fmt.Errorf("%d blocks on the device, %d below, %d on disk, by count %d, %d, %d", device, len(t.masks)-device, deep, t.device, t.lower, t.deep)
	}
	if t.device > t.mostDevice || t.lower > t.mostLower {
		return fmt.Errorf("%d blocks on the device and %d below, limits %d and %d", t.device, t.lower, t.mostDevice, t.mostLower)
	}
	return cmp.Or(t.holds(x.index.DumpHolder(k.holder, nil), onDevice), t.holds(x.below.DumpHolder(k.holder, nil), anyTier))
}

// holds checks that every block of dump, the runs of a rank in an index, is in the table in at
// least one tier of in.
func (t *tiers) holds(dump []kvindex.Run, in tierSet) error {
	for _, r := range dump {
		for _, hash := range r.Hashes {
			if t.masks[hash]&in == 0 {
				return fmt.Errorf("block %x is in an index, in the table it is in %b, not in %b", hash, t.masks[hash], in)
			}
		}
	}
	return nil
}
