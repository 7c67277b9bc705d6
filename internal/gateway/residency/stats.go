package residency

import (
	"fmt"
	"strings"

	"github.com/coppice-llm/coppice/router/kvindex"
)

// Stats is what is known and what was refused.
type Stats struct {
	Index kvindex.Stats // the device's

	Ranks       int // known
	ForeignHash int // of them, whose hashes are not kv.Chain's and are translated
	TieredRanks int // of them, that have named a lower tier
	TierBlocks  int // their blocks that are in lower tiers alone
	LossyRanks  int // of which blocks were refused since they were cleared

	Replaces uint64 // ranks replaced by a dump

	// Blocks that were refused, and why.
	OrphanBlocks    uint64 // their parent is in no tier of the rank: an event was lost
	BelowRefused    uint64 // the same, of lossy ranks, where it is no sign of that
	OverfullBlocks  uint64 // Config.Index: the rank's own limit, mostly
	TierFullBlocks  uint64 // Config.TierBlocks
	ForeignBlocks   uint64 // of another make than those before
	CollisionBlocks uint64 // of prefixes with the hash of another
	InvalidBlocks   uint64 // impossible sequences, tiers and dumps
}

// Stats is as of now, each rank as of another moment. It waits for no change of a rank,
// and for a part of one at each shard of the index. Cost: the ranks.
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

// all are the ranks known now.
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
