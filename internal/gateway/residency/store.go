package residency

import (
	"errors"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router/kvindex"
)

// What a store is refused with, beside the index's errors.
var (
	errTier      = errors.New("residency: unknown tier")
	errTiersFull = errors.New("residency: too many blocks in lower tiers")
)

// Store implements [events.Sink]. Blocks that are refused for another reason than
// their parent are counted and no error, as no recovery would bring them; nor are, from
// then on until the rank is cleared, those below unknown blocks.
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

// maxPart is how many blocks are stored or removed under one lock, for which lookups in
// the rank's table wait.
const maxPart = 4096

func (x *Residency) storePart(k *rank, s events.Stored) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer k.show()
	k.run = runOf(&s, k.run)
	return x.verdict(k, x.store(k, s.Tier, k.run), len(s.Blocks))
}

// runOf is a run as the index takes it, in the slices of another.
func runOf(s *events.Stored, r kvindex.Run) kvindex.Run {
	r.Parent, r.HasParent = s.Parent, s.HasParent
	r.Hashes, r.Locals = r.Hashes[:0], r.Locals[:0]
	for _, b := range s.Blocks {
		r.Hashes = append(r.Hashes, b.Hash)
		r.Locals = append(r.Locals, b.Local)
	}
	return r
}

func (x *Residency) store(k *rank, tier kv.Tier, run kvindex.Run) error {
	if tier >= kv.Tiers {
		return errTier
	}
	if k.names == nil && k.tiers == nil && tier == kv.TierDevice {
		err := x.storeIndex(k, run) // which checks the hashes
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
		x.raise(k)
	}
	return x.storeTier(k, tier, run)
}

// translate makes chained hashes of a run's own, if they are not. Whose hashes are of
// another make shows while nothing is held; then it is so until the rank is cleared.
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
	if len(gone) > 0 { // names that mean something else now
		x.take(k, anyTier, gone)
	}
	return translated, err
}

func (x *Residency) newNames() *kvindex.Names {
	return kvindex.NewNames(x.cfg.Index.HolderBlocks + x.cfg.TierBlocks)
}

// isChain tells whether the hashes of a run are kv.Chain's.
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

// storeIndex stores a run of a rank without table. The index bounds what a rank has in
// one shard; here it is bounded in all of them.
func (x *Residency) storeIndex(k *rank, run kvindex.Run) error {
	if !x.fits(k, run.Hashes) && (!run.HasParent || x.index.Holds(k.holder, run.Parent)) {
		return kvindex.ErrFull // and an orphan is refused as one
	}
	_, err := x.index.Store(k.holder, run)
	return err
}

// fits tells whether there is room in the index for those of some blocks that a rank does
// not have there. They are only looked up where there is not room for all.
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

// storeTier stores a run of a rank with a table, which decides: what the index refuses
// behind a hole is found in the table.
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
			x.take(k, anyTier, run.Hashes) // the table could not tell the two prefixes apart
			return err
		}
	}
	if fit < len(run.Hashes) {
		x.counts.tiersFull.Add(uint64(len(run.Hashes) - fit))
		return errTiersFull
	}
	return nil
}

// verdict counts what came of a store and says what the sink's caller is told.
func (x *Residency) verdict(k *rank, err error, blocks int) error {
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
	case errTiersFull: // counted, as a part was stored
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

func (x *Residency) removePart(k *rank, tier kv.Tier, hashes []kv.BlockHash) {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer k.show()
	switch {
	case k.tiers == nil && tier != kv.TierDevice: // it has nothing there
	case k.names == nil:
		x.take(k, 1<<tier, hashes)
	case k.tiers == nil:
		k.hashes = k.names.Remove(hashes, k.hashes[:0])
		x.take(k, 1<<tier, k.hashes)
	default:
		x.removeNames(k, tier, hashes)
	}
}

// removeNames removes blocks by names, which stay known while the block is in another
// tier.
func (x *Residency) removeNames(k *rank, tier kv.Tier, names []kv.BlockHash) {
	k.hashes = k.hashes[:0]
	for _, name := range names {
		if hash, ok := k.names.Hash(name); ok {
			k.hashes = append(k.hashes, hash)
		}
	}
	x.take(k, 1<<tier, k.hashes)
	for i, name := range names {
		if hash, ok := k.names.Hash(name); ok && k.tiers.masks[hash] == 0 {
			k.hashes = k.names.Remove(names[i:i+1], k.hashes[:0])
		}
	}
}

// take takes blocks, by chained hashes, from tiers of a rank.
func (x *Residency) take(k *rank, from tierSet, hashes []kv.BlockHash) {
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

// clear takes all that a rank has, without its lock for as long as that takes. Meanwhile
// it has no table, so a lookup that finds what is left of it in an index stops there.
// What it was is kept for the end: to have a table.
func (x *Residency) clear(k *rank) {
	tiered := x.strip(k)
	x.index.Clear(k.holder)
	if tiered {
		x.below.Clear(k.holder)
		x.give(k, x.newTiers())
	}
}

// strip takes a rank's table and names, and tells whether it had a table.
func (x *Residency) strip(k *rank) (tiered bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer k.show()
	tiered = k.tiers != nil
	k.tiers, k.names, k.lossy = nil, nil, false
	return tiered
}

// give gives a rank a table after it has lost what it had: lookups that began before
// look at all of it anew.
func (x *Residency) give(k *rank, t *tiers) {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer k.show()
	k.tiers, k.lost = t, x.losses.Add(1)
}
