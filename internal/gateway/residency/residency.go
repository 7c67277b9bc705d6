package residency

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router/kvindex"
)

// Overlap is how much of a query a holder has: so many consecutive blocks from the
// first on, the device's, then those that go on in host memory, page-locked or not,
// then those on disk, in shared directories and in object stores. At least one is not 0.
//
// A block counts where it stands in this order: behind the first that the device lacks,
// one that is on the device counts as the host's, as it is there or better.
type Overlap struct {
	Holder                             kv.Rank
	Device, Host, Disk, Shared, Object int // blocks
}

// Blocks is all of it.
func (o *Overlap) Blocks() int { return o.Device + o.Host + o.Disk + o.Shared + o.Object }

// Residency is what all ranks hold. It is an [events.Sink].
type Residency struct {
	cfg    Config
	index  *kvindex.Sharded // the device's, in chained hashes alone
	below  *kvindex.Sharded // all that ranks with a table have, in whatever tier
	counts counts
	finds  sync.Pool // of *find

	mu    sync.RWMutex // of ranks, and of who changes tiered; held for a step of a map
	ranks map[kv.Rank]*rank

	// tiered is those with a table; it is replaced, never changed.
	tiered atomic.Pointer[tieredRanks]
	// losses numbers whatever took blocks from a tiered rank, when it was done.
	losses atomic.Uint64
}

var _ events.Sink = (*Residency)(nil)

type tieredRanks struct {
	ranks []*rank
	at    map[kv.Rank]int
}

// New makes an empty one. The error wraps [ErrConfig] or kvindex.ErrConfig.
func New(cfg Config) (*Residency, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	device := cfg.Index
	device.Holders *= 2 // with shadows
	below := device
	below.HolderBlocks = min(below.HolderBlocks+cfg.TierBlocks, kvindex.MaxBlocks)
	below.Blocks = min(cfg.Index.Holders*below.HolderBlocks, kvindex.MaxBlocks)
	x := &Residency{cfg: cfg, ranks: map[kv.Rank]*rank{}}
	var err error
	if x.index, err = kvindex.NewSharded(device); err != nil {
		return nil, err
	}
	if x.below, err = kvindex.NewSharded(below); err != nil {
		return nil, err
	}
	x.finds.New = func() any { return new(find) }
	x.tiered.Store(&tieredRanks{})
	return x, nil
}

// shadowBit marks the ranks under which dumps are put into an index, before they take
// their holder's place. No lookup tells of them.
const shadowBit = 1 << 31

func shadowOf(h kv.Rank) kv.Rank {
	h.DP |= shadowBit
	return h
}

func isShadow(h kv.Rank) bool { return h.DP&shadowBit != 0 }

// rank finds what is known of a rank, nil if there is nothing.
func (x *Residency) rank(h kv.Rank) *rank {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.ranks[h]
}

// rankOrNew makes a rank known; nil if there are too many, or its number is no rank's.
func (x *Residency) rankOrNew(h kv.Rank) *rank {
	if k := x.rank(h); k != nil || isShadow(h) {
		return k
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if k := x.ranks[h]; k != nil || len(x.ranks) >= x.cfg.Index.Holders {
		return k
	}
	k := &rank{holder: h}
	x.ranks[h] = k
	return k
}

func (x *Residency) newTiers() *tiers {
	return &tiers{masks: map[kv.BlockHash]tierSet{}, mostDevice: x.cfg.Index.HolderBlocks, mostLower: x.cfg.TierBlocks}
}

// raise gives a rank a table, of what it has on the device. Its lock is held.
func (x *Residency) raise(k *rank) {
	k.tiers = x.newTiers()
	for _, r := range x.index.DumpHolder(k.holder, nil) {
		k.tiers.add(kv.TierDevice, r.Run.Hashes)
		x.below.Store(k.holder, r.Run)
	}
	k.lost = x.losses.Add(1)
	x.list(k)
}

// list adds a rank to those with a table.
func (x *Residency) list(k *rank) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.relist(append(slices.Clone(x.tiered.Load().ranks), k))
}

func (x *Residency) relist(ranks []*rank) {
	list := &tieredRanks{ranks: ranks, at: make(map[kv.Rank]int, len(ranks))}
	for i, k := range ranks {
		list.at[k.holder] = i
	}
	x.tiered.Store(list)
}

// Forget implements [events.Sink].
func (x *Residency) Forget(r kv.Rank) {
	k := x.rank(r)
	if k == nil {
		return
	}
	k.changing.Lock()
	defer k.changing.Unlock()
	tiered := x.strip(k)
	if tiered {
		x.unlist(k)
	}
	x.index.Forget(k.holder)
	if tiered {
		x.below.Forget(k.holder)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.ranks, k.holder)
}

func (x *Residency) unlist(k *rank) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.relist(slices.DeleteFunc(slices.Clone(x.tiered.Load().ranks), func(other *rank) bool { return other == k }))
}

// Held is how many blocks a holder has, each once in however many tiers, as of the last
// part of a change that has ended; 0 if it is not known. It waits for no change.
func (x *Residency) Held(h kv.Rank) int {
	k := x.rank(h)
	switch {
	case k == nil:
		return 0
	case k.shown.tiered.Load():
		return int(k.shown.blocks.Load())
	}
	return x.index.Held(h)
}

func (x *Residency) held(k *rank) int {
	if k.tiers != nil {
		return len(k.tiers.masks)
	}
	return x.index.Held(k.holder)
}
