package residency

import (
	"errors"
	"slices"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router/kvindex"
)

// Reasons to refuse a store, besides the errors of kvindex.
var (
	errTier      = errors.New("residency: unknown tier")
	errTiersFull = errors.New("residency: too many blocks in lower tiers")
)

// Store implements [events.Sink]. Only an unknown parent is an error. Blocks that are refused
// for other reasons are counted without an error, since no recovery would bring them. After such
// a refusal, blocks with an unknown parent are counted without an error too, until the rank's
// next Clear.
func (x *Residency) Store(r kv.Rank, s events.Stored) error {
	k := x.rankOrNew(r)
	if k == nil {
		x.count(&x.stats.OverfullBlocks, len(s.Blocks))
		return nil
	}
	k.changing.Lock()
	defer k.changing.Unlock()
	return x.storeParts(k, s)
}

// storeParts is Store for a caller that holds k.changing, or whose k is a shadow.
func (x *Residency) storeParts(k *rank, s events.Stored) error {
	for {
		part := s
		part.Blocks = s.Blocks[:min(maxPart, len(s.Blocks))]
		err := x.storePart(k, part)
		if err != nil || len(part.Blocks) == len(s.Blocks) {
			return err
		}
		s.Parent, s.HasParent, s.Blocks = part.Blocks[maxPart-1].Hash, !s.Named, s.Blocks[maxPart:]
	}
}

// storeNamed adds a lower tier to those blocks of s that rank k has. On the device, blocks are stored with their tokens.
// The caller holds the rank's lock.
func (x *Residency) storeNamed(k *rank, s *events.Stored) {
	if s.Tier == kv.TierDevice || s.Tier >= kv.Tiers {
		return
	}
	k.hashes = k.hashes[:0]
	for _, b := range s.Blocks {
		hash := b.Hash
		if k.names != nil {
			hash, _ = k.names.Hash(hash)
		}
		if k.tiers != nil && k.tiers.masks[hash] != 0 || k.tiers == nil && x.index.Holds(k.holder, hash) {
			k.hashes = append(k.hashes, hash)
		}
	}
	if len(k.hashes) == 0 {
		return
	}
	if k.tiers == nil {
		x.addTable(k)
	}
	k.tiers.add(s.Tier, k.hashes) // they are in the table, so there is room
}

// maxPart is the largest number of blocks stored or removed before the rank's lock is released.
// Lookups in its table wait that long.
const maxPart = 4096

// storePart stores at most maxPart blocks while it holds the rank's lock. The error is that of
// Store.
func (x *Residency) storePart(k *rank, s events.Stored) error {
	k.mu.Lock()
	defer k.changed()
	if s.Named {
		x.storeNamed(k, &s)
		return nil
	}
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

// store stores a run of rank k in the indexes, and in the rank's table if it has one. A run in a
// lower tier gives the rank a table. The error says why the run, or a part of it, was refused.
// The caller holds the rank's lock.
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

// translate returns the run with hashes of kv.Chain. The first run that a rank stores while it
// holds no blocks decides whether the rank's hashes are its own and must be translated. The
// decision lasts until the rank's next Clear. Later hashes of the other kind are an error.
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

// isChain reports whether the hashes of a run are those of kv.Chain.
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

// storeIndex stores a run of a rank without a table. The index bounds the rank's blocks in each
// shard, storeIndex its blocks in all shards together.
func (x *Residency) storeIndex(k *rank, run kvindex.Run) error {
	if !x.fits(k, run.Hashes) && (!run.HasParent || x.index.Holds(k.holder, run.Parent)) {
		return kvindex.ErrFull // an orphan is refused as one, not as full
	}
	return x.storeDevice(k, run)
}

// storeDevice stores a run in the index of the device. Departed ranks take no room from others, and their blocks are in no
// one's way: they go first.
func (x *Residency) storeDevice(k *rank, run kvindex.Run) error {
	_, err := x.index.Store(k.holder, run)
	for (err == kvindex.ErrFull || err == kvindex.ErrCollision) && x.dropDeparted() {
		_, err = x.index.Store(k.holder, run)
	}
	return err
}

// fits reports whether rank k, within Index.HolderBlocks, has room for those of the blocks that
// it does not hold yet. It looks blocks up only if there might not be room for all.
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

// storeTier stores a run of a rank with a table, in the table and in the indexes. An index may
// refuse the run because it lacks earlier blocks of the prompt. That is no error: lookups find
// the blocks in the table.
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
			err = x.storeDevice(k, part)
		}
		if err == kvindex.ErrCollision {
			x.removeFrom(k, anyTier, run.Hashes) // the table can't tell the two prefixes apart
			return err
		}
	}
	if fit < len(run.Hashes) {
		x.count(&x.stats.TierFullBlocks, len(run.Hashes)-fit)
		return errTiersFull
	}
	return nil
}

// countOutcome counts this many blocks whose store ended with err, and returns the error for the
// caller of Store.
func (x *Residency) countOutcome(k *rank, err error, blocks int) error {
	switch err {
	case nil:
		return nil
	case kvindex.ErrUnknownParent:
		if !k.lossy {
			return events.ErrUnknownParent
		}
		x.count(&x.stats.BelowRefusedBlocks, blocks)
		return nil
	case errTiersFull: // counted already: a part was stored
	case kvindex.ErrForeignHash:
		x.count(&x.stats.ForeignBlocks, blocks)
	case kvindex.ErrCollision:
		x.count(&x.stats.CollisionBlocks, blocks)
	case kvindex.ErrFull:
		x.count(&x.stats.OverfullBlocks, blocks)
	default: // errTier, kvindex.ErrSequence
		x.count(&x.stats.InvalidBlocks, blocks)
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
	for part := range slices.Chunk(hashes, maxPart) {
		x.removePart(k, tier, part)
	}
}

// removePart removes at most maxPart blocks, by the rank's own hashes, while it holds the rank's
// lock.
func (x *Residency) removePart(k *rank, tier kv.Tier, hashes []kv.BlockHash) {
	k.mu.Lock()
	defer k.changed()
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

// Lose removes blocks of a rank from all tiers. Unlike Remove it takes hashes of kv.Chain, also for
// a rank whose hashes are its own.
func (x *Residency) Lose(r kv.Rank, hashes []kv.BlockHash) {
	k := x.rank(r)
	if k == nil {
		return
	}
	k.changing.Lock()
	defer k.changing.Unlock()
	for part := range slices.Chunk(hashes, maxPart) {
		k.mu.Lock()
		x.removeFrom(k, anyTier, part)
		k.changed()
	}
}

// removeNames removes blocks of a rank whose hashes are its own, given by these hashes (names),
// from a tier. A name is forgotten only when its block is in no other tier.
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

// removeFrom removes blocks, given by hashes of kv.Chain, from the tiers in from. The caller
// holds the rank's lock.
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
			x.count(&x.stats.TierFullBlocks, 1)
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
// has no table, so a lookup that finds a block left in an index does not continue in the table.
// If the rank had a table, it has an empty one at the end.
func (x *Residency) clear(k *rank) {
	tiered := x.dropTable(k)
	x.index.Clear(k.holder)
	if tiered {
		x.below.Clear(k.holder)
		k.mu.Lock()
		defer k.changed()
		k.tiers, k.lost = x.newTiers(), x.losses.Add(1) // lookups that began earlier will read the table from the first block on
	}
}

// dropTable removes a rank's table and names. It reports whether the rank had a table.
func (x *Residency) dropTable(k *rank) (tiered bool) {
	k.mu.Lock()
	defer k.changed()
	tiered = k.tiers != nil
	k.tiers, k.names, k.lossy = nil, nil, false
	return tiered
}
