package residency

import (
	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/kv"
)

// Replace implements [events.Sink]. Lookups see all of the dump or nothing of it, and wait no
// longer than for a store: the dump is stored like events, but under a shadow rank, which is then
// swapped with the rank. Until then the rank may take twice its room. It returns the number of
// blocks whose parents are missing.
func (x *Residency) Replace(r kv.Rank, dump []events.Stored) (refused int) {
	k := x.rankOrNew(r)
	if k == nil {
		x.count(&x.stats.OverfullBlocks, blocksOf(dump))
		return 0
	}
	k.changing.Lock()
	defer k.changing.Unlock()
	next := &rank{holder: shadowOf(k.holder)}
	if k.tiers != nil {
		next.tiers = x.newTiers()
	}
	for i := range dump {
		if x.storeParts(next, dump[i]) != nil {
			refused += len(dump[i].Blocks)
		}
	}
	x.swap(k, next)
	x.index.Forget(next.holder) // after the swap: the previous content
	x.below.Forget(next.holder)
	return refused
}

func blocksOf(dump []events.Stored) (n int) {
	for i := range dump {
		n += len(dump[i].Blocks)
	}
	return n
}

// swap gives k the content of next, its shadow, in one step for lookups.
func (x *Residency) swap(k, next *rank) {
	k.mu.Lock()
	defer k.changed()
	x.index.Swap(k.holder, next.holder)
	x.below.Swap(k.holder, next.holder)
	if k.tiers == nil && next.tiers != nil {
		x.list(k)
	}
	k.names, k.tiers, k.lossy = next.names, next.tiers, next.lossy
	k.lost = x.losses.Add(1)
}
