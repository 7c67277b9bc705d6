package kvindex

import (
	"github.com/coppice-llm/coppice/internal/invariants"
	"github.com/coppice-llm/coppice/kv"
)

// Index is the radix tree. It has a single owner and no locks. Methods that read (Find, Held,
// Holders, DumpHolder, Stats) write nothing and may run concurrently with each other.
type Index struct {
	cfg     Config
	nodes   slab
	blocks  table // from block hash to node and depth
	edges   table // from parent node and first local hash to node
	holders holders
	unique  int // distinct blocks in the tree
	held    int // blocks summed over the holders
	stats   Stats

	runBlocks int    // maxRun except in tests
	manyKids  uint32 // the constant except in tests
	byHash    bool   // local hashes are the chained ones, see ApproximateConfig.ByHash

	path  []nodeID // scratch of Store
	below []nodeID // scratch of dropBelow
	slots []uint32 // scratch
	run   Run      // scratch of Apply
}

// Run is a sequence of consecutive blocks. Hashes[i] is [kv.Chain] of the hash before it and
// Locals[i]; at the start of a sequence it equals Locals[0].
type Run struct {
	Parent    kv.BlockHash // the block before the first one, valid if HasParent
	HasParent bool         // false at the start of a sequence
	Hashes    []kv.BlockHash
	Locals    []kv.LocalHash
}

// Stats counts the contents of an index and the changes applied to it.
type Stats struct {
	Nodes        int // without the root
	Blocks       int // distinct blocks
	HolderBlocks int // summed over the holders
	Holders      int

	Stores        uint64 // accepted stores
	StoredBlocks  uint64 // stored blocks that were new to their holders
	RepeatBlocks  uint64 // stored blocks that their holders had already
	RemovedBlocks uint64 // removed blocks, including those after the named ones
	UnknownBlocks uint64 // removals of blocks that the holder did not have

	Orphans      uint64 // stores refused with ErrUnknownParent
	OrphanBlocks uint64
	BadSequences uint64 // ErrSequence
	Foreign      uint64 // ErrForeignHash
	Collisions   uint64 // ErrCollision
	Overfull     uint64 // ErrFull
}

// add adds the counts of a shard, except Holders: a holder may be in several shards.
func (s *Stats) add(t Stats) {
	s.Nodes += t.Nodes
	s.Blocks += t.Blocks
	s.HolderBlocks += t.HolderBlocks
	s.Stores += t.Stores
	s.StoredBlocks += t.StoredBlocks
	s.RepeatBlocks += t.RepeatBlocks
	s.RemovedBlocks += t.RemovedBlocks
	s.UnknownBlocks += t.UnknownBlocks
	s.Orphans += t.Orphans
	s.OrphanBlocks += t.OrphanBlocks
	s.BadSequences += t.BadSequences
	s.Foreign += t.Foreign
	s.Collisions += t.Collisions
	s.Overfull += t.Overfull
}

// New makes an empty Index. The error wraps [ErrConfig].
func New(cfg Config) (*Index, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	x := &Index{cfg: cfg, blocks: newTable(cfg.Seed, false), edges: newTable(cfg.Seed, true), runBlocks: maxRun, manyKids: manyKids}
	x.holders.slots = map[kv.Rank]uint32{}
	x.nodes.add() // the root
	return x, nil
}

// Stats returns a copy of the counts in O(1).
func (x *Index) Stats() Stats {
	s := x.stats
	// IDs given out, without free ones and the root.
	s.Nodes = int(x.nodes.next) - len(x.nodes.free) - 1
	s.Blocks = x.unique
	s.HolderBlocks = x.held
	s.Holders = len(x.holders.slots)
	return s
}

// node returns a node. Nodes never move, so the pointer stays valid while the node lives.
func (x *Index) node(id nodeID) *node { return x.nodes.at(id) }

// refuse counts a refused store.
func (x *Index) refuse(err error, blocks int) error {
	switch err {
	case ErrUnknownParent:
		x.stats.Orphans++
		x.stats.OrphanBlocks += uint64(blocks)
	case ErrSequence:
		x.stats.BadSequences++
	case ErrForeignHash:
		x.stats.Foreign++
	case ErrCollision:
		x.stats.Collisions++
	case ErrFull:
		x.stats.Overfull++
	}
	return err
}

// addHeld adds blocks to the count of a holder.
func (x *Index) addHeld(slot uint32, blocks int) {
	x.holders.all[slot].blocks += blocks
	x.held += blocks
}

// place finds a block: its node, and the number of blocks of the run up to and including it.
//
// Example: in a node that starts after 8 blocks, the block at depth 10 has off 3.
func (x *Index) place(hash kv.BlockHash) (id nodeID, off int, ok bool) {
	e := x.blocks.get(uint64(hash), 0)
	if e == nil {
		return root, 0, false
	}
	return e.to, int(e.from-x.node(e.to).start) + 1, true
}

// Holds reports whether a holder has a block.
//
// The cost is two table lookups: the holder has the block if its cover of the run reaches to it,
// since it then has all blocks before.
func (x *Index) Holds(h kv.Rank, hash kv.BlockHash) bool {
	id, off, ok := x.place(hash)
	if !ok {
		return false
	}
	slot, ok := x.holders.slot(h)
	return ok && x.node(id).covered(slot) >= off
}

// verify panics on a broken invariant, under -tags invariants only.
func (x *Index) verify(after string) {
	if invariants.Enabled {
		if err := x.Check(); err != nil {
			panic("kvindex: after " + after + ": " + err.Error())
		}
	}
}
