package residency

import (
	"errors"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router/kvindex"
)

// Reasons to refuse a store, besides the index's errors.
var (
	errTier      = errors.New("residency: unknown tier")
	errTiersFull = errors.New("residency: too many blocks in lower tiers")
)

// Store implements [events.Sink]. Only an unknown parent is an error. Blocks refused for other
// reasons are counted without one, since no recovery would bring them; from then until the
// rank's next Clear, so are blocks with an unknown parent.
func (x *Residency) Store(r kv.Rank, s events.Stored) error {
	k := x.rankOrNew(r)
	if k == nil {
		x.counts.overfull.Add(uint64(len(s.Blocks)))
		return nil
	}
	k.changing.Lock()
	defer k.changing.Unlock()
	for len(s.Blocks) > maxPart {
		part, last := s, s.Blocks[maxPart-1].Hash
		part.Blocks = s.Blocks[:maxPart]
		if err := x.storePart(k, part); err != nil {
			return err
		}
		s.Parent, s.HasParent, s.Blocks = last, true, s.Blocks[maxPart:]
	}
	return x.storePart(k, s)
}

// maxPart is the number of blocks stored or removed under one hold of the rank's lock, for which
// lookups in its table wait.
const maxPart = 4096

// storePart stores at most maxPart blocks under one hold of the rank's lock.
func (x *Residency) storePart(k *rank, s events.Stored) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer k.show()
	k.run = runOf(&s, k.run)
	return x.countOutcome(k, x.store(k, s.Tier, k.run), len(s.Blocks))
}

// runOf converts s to a run, in the slices of r.
func runOf(s *events.Stored, r kvindex.Run) kvindex.Run {
	r.Parent, r.HasParent = s.Parent, s.HasParent
	r.Hashes, r.Locals = r.Hashes[:0], r.Locals[:0]
	for _, b := range s.Blocks {
		r.Hashes = append(r.Hashes, b.Hash)
		r.Locals = append(r.Locals, b.Local)
	}
	return r
}

// store stores a run in the indexes, and in the rank's table if it has one. A run in a lower
// tier gives the rank a table.
func (x *Residency) store(k *rank, tier kv.Tier, run kvindex.Run) error {
	if tier >= kv.Tiers {
		return errTier
	}
	if k.names == nil && k.tiers == nil && tier == kv.TierDevice {
		err := x.storeIndex(k, run) // it checks the hashes
		if err != kvindex.ErrForeignHash || x.held(k) > 0 {
			return err
		}
	}
	run, err := x.translate(k, run)
	if err != nil {
		return err
	}
	switch {
	case k.tiers != nil:
	case tier == kv.TierDevice:
		return x.storeIndex(k, run)
	case run.HasParent && !x.index.Holds(k.holder, run.Parent):
		return kvindex.ErrUnknownParent
	default:
		x.addTable(k)
	}
	return x.storeTier(k, tier, run)
}

// translate returns a run with chained hashes. Whether a rank's hashes are its own is decided by
// the first run while it holds nothing, and stays so until the rank's next Clear.
func (x *Residency) translate(k *rank, run kvindex.Run) (kvindex.Run, error) {
	if k.names == nil {
		if isChain(run) {
			return run, nil
		}
		if x.held(k) > 0 {
			return run, kvindex.ErrForeignHash
		}
		k.names = x.newNames()
	}
	translated, gone, err := k.names.Store(run)
	if len(gone) > 0 { // names that now stand for other blocks
		x.removeFrom(k, anyTier, gone)
	}
	return translated, err
}

func (x *Residency) newNames() *kvindex.Names {
	return kvindex.NewNames(x.cfg.Index.HolderBlocks + x.cfg.TierBlocks)
}

// isChain reports whether the hashes of a run are chained by kv.Chain.
func isChain(run kvindex.Run) bool {
	last, started := run.Parent, run.HasParent
	for i, local := range run.Locals {
		want := kv.BlockHash(local)
		if started {
			want = kv.Chain(last, local)
		}
		if last, started = run.Hashes[i], true; last != want {
			return false
		}
	}
	return true
}

// storeIndex stores a run of a rank without a table. The index bounds the rank's blocks per
// shard; this bounds them over all shards.
func (x *Residency) storeIndex(k *rank, run kvindex.Run) error {
	if !x.fits(k, run.Hashes) && (!run.HasParent || x.index.Holds(k.holder, run.Parent)) {
		return kvindex.ErrFull // an orphan is refused as one, not as full
	}
	_, err := x.index.Store(k.holder, run)
	return err
}

// fits reports whether the index has room for the blocks that the rank does not hold yet. It
// looks blocks up only if there might not be room for all.
func (x *Residency) fits(k *rank, hashes []kv.BlockHash) bool {
	room := x.cfg.Index.HolderBlocks - x.index.Held(k.holder)
	for i := 0; i < len(hashes) && room < len(hashes)-i; i++ {
		if !x.index.Holds(k.holder, hashes[i]) {
			if room--; room < 0 {
				return false
			}
		}
	}
	return true
}

// storeTier stores a run of a rank with a table. The table decides: blocks that the index
// refuses after a hole are found in the table.
func (x *Residency) storeTier(k *rank, tier kv.Tier, run kvindex.Run) error {
	if run.HasParent && k.tiers.masks[run.Parent] == 0 {
		return kvindex.ErrUnknownParent
	}
	fit := k.tiers.add(tier, run.Hashes)
	if fit > 0 {
		part := run
		part.Hashes, part.Locals = run.Hashes[:fit], run.Locals[:fit]
		_, err := x.below.Store(k.holder, part)
		if tier == kv.TierDevice && err != kvindex.ErrCollision {
			_, err = x.index.Store(k.holder, part)
		}
		if err == kvindex.ErrCollision {
			x.removeFrom(k, anyTier, run.Hashes) // the table can't tell the two prefixes apart
			return err
		}
	}
	if fit < len(run.Hashes) {
		x.counts.tiersFull.Add(uint64(len(run.Hashes) - fit))
		return errTiersFull
	}
	return nil
}

// countOutcome counts the outcome of a store and returns the error for the sink's caller.
func (x *Residency) countOutcome(k *rank, err error, blocks int) error {
	n := uint64(blocks)
	switch err {
	case nil:
		return nil
	case kvindex.ErrUnknownParent:
		if !k.lossy {
			x.counts.orphans.Add(n)
			return events.ErrUnknownParent
		}
		x.counts.belowRefused.Add(n)
		return nil
	case errTiersFull: // counted already: a part was stored
	case kvindex.ErrForeignHash:
		x.counts.foreign.Add(n)
	case kvindex.ErrCollision:
		x.counts.collisions.Add(n)
	case kvindex.ErrFull:
		x.counts.overfull.Add(n)
	default: // errTier, kvindex.ErrSequence
		x.counts.invalid.Add(n)
	}
	k.lossy = true
	return nil
}

// Remove implements [events.Sink].
func (x *Residency) Remove(r kv.Rank, tier kv.Tier, hashes []kv.BlockHash) {
	k := x.rank(r)
	if k == nil || tier >= kv.Tiers {
		return
	}
	k.changing.Lock()
	defer k.changing.Unlock()
	for len(hashes) > maxPart {
		x.removePart(k, tier, hashes[:maxPart])
		hashes = hashes[maxPart:]
	}
	x.removePart(k, tier, hashes)
}

// removePart removes at most maxPart blocks under one hold of the rank's lock.
func (x *Residency) removePart(k *rank, tier kv.Tier, hashes []kv.BlockHash) {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer k.show()
	switch {
	case k.tiers == nil && tier != kv.TierDevice: // it has nothing there
	case k.names == nil:
		x.removeFrom(k, 1<<tier, hashes)
	case k.tiers == nil:
		k.hashes = k.names.Remove(hashes, k.hashes[:0])
		x.removeFrom(k, 1<<tier, k.hashes)
	default:
		x.removeNames(k, tier, hashes)
	}
}

// removeNames removes blocks by name. A name is kept while its block is in another tier.
func (x *Residency) removeNames(k *rank, tier kv.Tier, names []kv.BlockHash) {
	k.hashes = k.hashes[:0]
	for _, name := range names {
		if hash, ok := k.names.Hash(name); ok {
			k.hashes = append(k.hashes, hash)
		}
	}
	x.removeFrom(k, 1<<tier, k.hashes)
	for i, name := range names {
		if hash, ok := k.names.Hash(name); ok && k.tiers.masks[hash] == 0 {
			k.hashes = k.names.Remove(names[i:i+1], k.hashes[:0])
		}
	}
}

// removeFrom removes blocks, by chained hash, from tiers of a rank.
func (x *Residency) removeFrom(k *rank, from tierSet, hashes []kv.BlockHash) {
	if from&onDevice != 0 {
		x.index.Remove(k.holder, hashes)
	}
	if k.tiers == nil {
		return
	}
	k.gone = k.gone[:0]
	for _, hash := range hashes {
		held, overfull := k.tiers.remove(from, hash)
		if !held {
			k.gone = append(k.gone, hash)
		}
		if overfull {
			x.counts.tiersFull.Add(1)
			k.lossy = true
		}
	}
	x.below.Remove(k.holder, k.gone)
	k.lost = x.losses.Add(1)
}

// Clear implements [events.Sink].
func (x *Residency) Clear(r kv.Rank) {
	k := x.rank(r)
	if k == nil {
		return
	}
	k.changing.Lock()
	defer k.changing.Unlock()
	x.clear(k)
}

// clear removes all blocks of a rank, without holding its lock all the time. Meanwhile the rank
// has no table, so a lookup that finds a leftover in an index stops there. Whether it had a
// table is remembered and restored at the end.
func (x *Residency) clear(k *rank) {
	tiered := x.dropTable(k)
	x.index.Clear(k.holder)
	if tiered {
		x.below.Clear(k.holder)
		x.setTable(k, x.newTiers())
	}
}

// dropTable removes a rank's table and names. It reports whether the rank had a table.
func (x *Residency) dropTable(k *rank) (tiered bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer k.show()
	tiered = k.tiers != nil
	k.tiers, k.names, k.lossy = nil, nil, false
	return tiered
}

// setTable gives a rank a new table after it lost its blocks. Lookups that began earlier will read
// that table from the first block.
func (x *Residency) setTable(k *rank, t *tiers) {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer k.show()
	k.tiers, k.lost = t, x.losses.Add(1)
}
