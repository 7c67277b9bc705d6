package residency

import (
	"fmt"
	"strings"

	"github.com/coppice-llm/coppice/router/kvindex"
)

// Stats counts what is known and what was refused.
type Stats struct {
	Index kvindex.Stats // blocks on the device

	Ranks       int // known ranks
	ForeignHash int // ranks whose hashes are not kv.Chain's and are translated
	TieredRanks int // ranks that have named a lower tier
	TierBlocks  int // blocks that are only in lower tiers
	LossyRanks  int // ranks with blocks refused since their last Clear

	Replaces uint64 // ranks replaced by a dump

	// Refused blocks by reason.
	OrphanBlocks    uint64 // no parent in any tier of the rank: an event was lost
	BelowRefused    uint64 // no parent, but blocks of the rank were refused before, so no event need have been lost
	OverfullBlocks  uint64 // a limit of Config.Index was reached, usually the one per rank
	TierFullBlocks  uint64 // the limit Config.TierBlocks was reached
	ForeignBlocks   uint64 // hashed by another function than the rank's earlier blocks
	CollisionBlocks uint64 // another prefix has the same hash
	InvalidBlocks   uint64 // impossible sequences, tiers and dumps
}

// Stats returns the current counts. Those of different ranks may be from different moments. It
// does not wait for a change of a rank to be complete, but at each shard of the index it may
// wait for a part of one. It costs O(ranks).
func (x *Residency) Stats() Stats {
	c := &x.counts
	s := Stats{
		Index:           x.index.Stats(),
		Replaces:        c.replaces.Load(),
		OrphanBlocks:    c.orphans.Load(),
		BelowRefused:    c.belowRefused.Load(),
		OverfullBlocks:  c.overfull.Load(),
		TierFullBlocks:  c.tiersFull.Load(),
		ForeignBlocks:   c.foreign.Load(),
		CollisionBlocks: c.collisions.Load(),
		InvalidBlocks:   c.invalid.Load(),
	}
	for _, k := range x.all() {
		s.Ranks++
		if k.shown.foreign.Load() {
			s.ForeignHash++
		}
		if k.shown.lossy.Load() {
			s.LossyRanks++
		}
		if k.shown.tiered.Load() {
			s.TieredRanks++
			s.TierBlocks += int(k.shown.lower.Load())
		}
	}
	return s
}

// all returns the known ranks.
func (x *Residency) all() []*rank {
	x.mu.RLock()
	defer x.mu.RUnlock()
	all := make([]*rank, 0, len(x.ranks))
	for _, k := range x.ranks {
		all = append(all, k)
	}
	return all
}

func (s Stats) String() string {
	var b strings.Builder
	row := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	row("ranks    %d: %d tiered, %d with hashes of their own, %d lossy; %d replaced", s.Ranks, s.TieredRanks, s.ForeignHash, s.LossyRanks, s.Replaces)
	row("device   %d blocks, %d with all holders, in %d runs", s.Index.Blocks, s.Index.HolderBlocks, s.Index.Nodes)
	row("below    %d blocks", s.TierBlocks)
	row("refused  %d orphan, %d below refused, %d overfull, %d overfull tiers", s.OrphanBlocks, s.BelowRefused, s.OverfullBlocks, s.TierFullBlocks)
	row("         %d foreign, %d collision, %d invalid", s.ForeignBlocks, s.CollisionBlocks, s.InvalidBlocks)
	return b.String()
}
