package kvindex

import (
	"github.com/coppice-llm/coppice/internal/invariants"
	"github.com/coppice-llm/coppice/kv"
)

// Index is the radix tree: single owner, no locks. Methods that read (Find,
// Held, Holders, Dump, Stats) write nothing and may run beside each other.
type Index struct {
	cfg     Config
	nodes   slab
	blocks  table // by block hash: node and depth
	edges   table // by parent and first local hash: node
	holders holders
	unique  int // blocks in the tree
	held    int // sum over the holders
	stats   Stats

	runBlocks int    // maxRun, but in tests
	manyKids  uint32 // the constant, but in tests
	byHash    bool   // local hashes are the chained ones, of an Approximate

	path  []nodeID // scratch of Store
	below []nodeID // scratch of dropBelow
	slots []uint32 // scratch
	run   Run      // scratch of Apply
}

// Run is some consecutive blocks of one sequence. Hashes[i] is [kv.Chain] of the
// hash before it and Locals[i]; at the start of a sequence it is Locals[0].
type Run struct {
	Parent    kv.BlockHash // the block before the first, valid if HasParent
	HasParent bool         // false at the start of a sequence
	Hashes    []kv.BlockHash
	Locals    []kv.LocalHash
}

// Stats is what an index holds and what came to it.
type Stats struct {
	Nodes        int // without the root
	Blocks       int // distinct
	HolderBlocks int // sum over the holders
	Holders      int

	Stores        uint64 // accepted events
	StoredBlocks  uint64 // that their holders did not have before
	RepeatBlocks  uint64 // that they had
	RemovedBlocks uint64 // with those that stood behind
	UnknownBlocks uint64 // removals of what the holder did not have

	Orphans      uint64 // stores refused with ErrUnknownParent
	OrphanBlocks uint64
	BadSequences uint64 // ErrSequence
	Foreign      uint64 // ErrForeignHash
	Collisions   uint64 // ErrCollision
	Overfull     uint64 // ErrFull
}

// add sums up the shards'; holders may be in several and are counted elsewhere.
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

// New makes an empty index. The error wraps [ErrConfig].
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

// Stats is a copy of the counts. Cost: O(1).
func (x *Index) Stats() Stats {
	s := x.stats
	s.Nodes = int(x.nodes.next) - len(x.nodes.free) - 1
	s.Blocks = x.unique
	s.HolderBlocks = x.held
	s.Holders = len(x.holders.slots)
	return s
}

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

// give changes how many blocks a holder has.
func (x *Index) give(slot uint32, blocks int) {
	x.holders.all[slot].blocks += blocks
	x.held += blocks
}

// place looks up a block: the node and how many blocks of its run end with it.
func (x *Index) place(hash kv.BlockHash) (id nodeID, off int, ok bool) {
	e := x.blocks.get(uint64(hash), 0)
	if e == nil {
		return root, 0, false
	}
	return e.to, int(e.from-x.node(e.to).start) + 1, true
}

// Holds tells whether a holder has a block.
func (x *Index) Holds(h kv.Rank, hash kv.BlockHash) bool {
	id, off, ok := x.place(hash)
	if !ok {
		return false
	}
	slot, ok := x.holders.slot(h)
	return ok && x.node(id).covered(slot) >= off
}

func (x *Index) verify(after string) {
	if invariants.Enabled {
		if err := x.Check(); err != nil {
			panic("kvindex: after " + after + ": " + err.Error())
		}
	}
}
