package residency

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router/kvindex"
)

// Residency is the index of all ranks' blocks. It is an [events.Sink].
type Residency struct {
	cfg   Config
	index *kvindex.Sharded // blocks on the device, by chained hash
	below *kvindex.Sharded // blocks in any tier, of ranks with a table
	finds sync.Pool        // of *find

	mu    sync.RWMutex // guards ranks and changes of tiered; held for one map operation
	ranks map[kv.Rank]*rank

	// tiered lists the ranks with a table. It is replaced as a whole, never changed.
	tiered atomic.Pointer[tieredRanks]
	// losses counts the changes that took blocks from a rank with a table. It is raised when the
	// change is done.
	losses atomic.Uint64

	departed departed

	counting sync.Mutex // guards stats; held for one count
	stats    Stats
}

var _ events.Sink = (*Residency)(nil)

// tieredRanks lists the ranks with a table. at gives the index of each in ranks.
type tieredRanks struct {
	ranks []*rank
	at    map[kv.Rank]int
}

// New makes an empty Residency. The error wraps [ErrConfig] or kvindex.ErrConfig.
func New(cfg Config) (*Residency, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	device := cfg.Index
	device.Holders *= 2 // shadows count as holders
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

// shadowBit marks a shadow rank. A dump is stored under the shadow of its rank, and then the two
// are swapped. Lookups skip shadows.
const shadowBit = 1 << 31

func shadowOf(h kv.Rank) kv.Rank {
	h.DP |= shadowBit
	return h
}

func isShadow(h kv.Rank) bool { return h.DP&shadowBit != 0 }

// rank returns the state of rank h, nil if h is unknown.
func (x *Residency) rank(h kv.Rank) *rank {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.ranks[h]
}

// rankOrNew returns the state of rank h, which it creates if needed. It returns nil if there are
// too many ranks or h has shadowBit.
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

// addTable gives rank k a table with its blocks on the device. The caller holds the rank's lock.
func (x *Residency) addTable(k *rank) {
	k.tiers = x.newTiers()
	for _, r := range x.index.DumpHolder(k.holder, nil) {
		k.tiers.add(kv.TierDevice, r.Hashes)
		x.below.Store(k.holder, r)
	}
	k.lost = x.losses.Add(1)
	if !isShadow(k.holder) {
		x.list(k)
	}
}

// list adds k to the list of ranks with a table.
func (x *Residency) list(k *rank) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.relist(append(slices.Clone(x.tiered.Load().ranks), k))
}

// relist makes ranks the list of ranks with a table. The caller holds mu.
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
	tiered := x.dropTable(k)
	if tiered {
		x.unlist(k)
	}
	x.depart(k.holder)
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

// Held returns the number of blocks of a rank. A block in several tiers counts once. While a
// change of the rank is in progress, the number is that after the last complete part of the
// change. It is 0 for an unknown rank. Held does not wait for changes.
func (x *Residency) Held(h kv.Rank) int {
	k := x.rank(h)
	if k == nil {
		return 0
	}
	if n := k.shown.Load(); n > 0 {
		return int(n - 1)
	}
	return x.index.Held(h)
}

// held is Held for a caller that holds the rank's lock. It counts the table itself and does not
// read shown.
func (x *Residency) held(k *rank) int {
	if k.tiers != nil {
		return len(k.tiers.masks)
	}
	return x.index.Held(k.holder)
}

// Stats counts the refused blocks by reason, except those whose missing parent is an error of Store.
type Stats struct {
	BelowRefusedBlocks uint64 // no parent, but blocks of the rank were refused before, so no event need have been lost
	OverfullBlocks     uint64 // a limit of Config.Index was reached, usually the one per rank
	TierFullBlocks     uint64 // the limit Config.TierBlocks was reached
	ForeignBlocks      uint64 // hashed by another function than the rank's earlier blocks
	CollisionBlocks    uint64 // another prefix has the same hash
	InvalidBlocks      uint64 // impossible sequences, tiers and dumps
}

// Stats returns the current counts. It does not wait for a change of a rank.
func (x *Residency) Stats() Stats {
	x.counting.Lock()
	defer x.counting.Unlock()
	return x.stats
}

// count adds this many blocks to a field of x.stats.
func (x *Residency) count(field *uint64, blocks int) {
	x.counting.Lock()
	defer x.counting.Unlock()
	*field += uint64(blocks)
}

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
