package kvindex

import (
	"github.com/coppice-llm/coppice/internal/hashtable"
	"github.com/coppice-llm/coppice/internal/invariants"
	"github.com/coppice-llm/coppice/kv"
)

// Index is the radix tree. It has a single owner and no locks. Methods that read (Find, Held,
// Holds, DumpHolder, Stats) write nothing and may run concurrently with each other.
type Index struct {
	cfg     Config
	nodes   slab
	blocks  hashtable.Table // from block hash to node; From is the depth
	edges   hashtable.Table // from parent node and first local hash to node
	holders holders
	unique  int    // distinct blocks in the tree
	held    int    // blocks summed over the holders
	removed uint64 // see Stats.RemovedBlocks

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

// Stats are counts of an index.
type Stats struct {
	Nodes        int // without the root
	Blocks       int // distinct blocks
	HolderBlocks int // summed over the holders

	RemovedBlocks uint64 // removed since the start, including those after the blocks named in a removal
}

// New makes an empty Index. The error wraps [ErrConfig].
func New(cfg Config) (*Index, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	x := &Index{cfg: cfg, blocks: hashtable.New(hashtable.Config{Seed: cfg.Seed}), edges: hashtable.New(hashtable.Config{Seed: cfg.Seed, Paired: true}), runBlocks: maxRun, manyKids: manyKids}
	x.holders.slots = map[kv.Rank]uint32{}
	x.nodes.add() // the root
	return x, nil
}

// Stats returns the counts in O(1).
func (x *Index) Stats() Stats {
	return Stats{
		Nodes:  int(x.nodes.next) - len(x.nodes.free) - 1, // IDs given out, without free ones and the root
		Blocks: x.unique, HolderBlocks: x.held, RemovedBlocks: x.removed,
	}
}

// node returns the node with this ID. Nodes never move, so the pointer stays valid until the
// node is dropped.
func (x *Index) node(id nodeID) *node { return x.nodes.at(id) }

// addHeld adds blocks, which may be negative, to the number of blocks of the holder in slot.
func (x *Index) addHeld(slot uint32, blocks int) {
	x.holders.all[slot].blocks += blocks
	x.held += blocks
}

// lose subtracts removed blocks from the number of blocks of the holder in slot.
func (x *Index) lose(slot uint32, blocks int) {
	x.addHeld(slot, -blocks)
	x.removed += uint64(blocks)
}

// place finds the block with this hash: its node, and in off the number of blocks of the node's
// run up to and including it. ok is false if the block is not in the tree.
//
// Example: in a node that starts after 8 blocks, the block at depth 10 (counted from 0) has off
// 3.
func (x *Index) place(hash kv.BlockHash) (id nodeID, off int, ok bool) {
	e := x.blocks.Get(uint64(hash), 0)
	if e == nil {
		return root, 0, false
	}
	id = nodeID(e.To)
	return id, int(e.From-x.node(id).start) + 1, true
}

// Holds reports whether holder h has the block with this hash. It costs two table lookups: the
// holder has the block if it covers the node's run at least to the block.
func (x *Index) Holds(h kv.Rank, hash kv.BlockHash) bool {
	id, off, ok := x.place(hash)
	if !ok {
		return false
	}
	slot, ok := x.holders.slot(h)
	return ok && x.node(id).covered(slot) >= off
}

// verify panics if Check finds a fault, under -tags invariants only. after names the method that
// made the last change.
func (x *Index) verify(after string) {
	if invariants.Enabled {
		if err := x.Check(); err != nil {
			panic("kvindex: after " + after + ": " + err.Error())
		}
	}
}
