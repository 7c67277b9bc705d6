package kvindex

import (
	"errors"

	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/internal/invariants"
	"github.com/coppice-llm/coppice/internal/splitmix"
	"github.com/coppice-llm/coppice/kv"
)

// ErrConfig is wrapped by the errors of the Validate methods and of [New].
var ErrConfig = errors.New("kvindex: invalid config")

// Reasons to refuse a store. They are returned unwrapped, so that a flood of bad events costs no
// allocation.
var (
	// ErrUnknownParent: the holder is not known to hold the parent. Nothing was applied. An
	// event was lost, so recover the holder's state.
	ErrUnknownParent = errors.New("kvindex: the holder does not hold the parent block: recover its state")
	// ErrSequence: different numbers of hashes and local hashes, or a block is its own parent.
	ErrSequence = errors.New("kvindex: invalid sequence of blocks")
	// ErrForeignHash: the hashes are not those of kv.Chain. Translate them with Names.
	ErrForeignHash = errors.New("kvindex: block hash is not the chain of the local hashes: translate it with Names")
	// ErrCollision: another prefix has the same hash. The blocks before it were applied.
	ErrCollision = errors.New("kvindex: two prefixes have the same block hash")
	// ErrFull: a limit of Config is reached. Nothing was applied.
	ErrFull = errors.New("kvindex: limit of blocks or holders reached: raise it or forget workers")
)

// Upper bounds of [Config].
const (
	MaxBlocks  = 1 << 30
	MaxHolders = 1 << 16
)

// Config limits an [Index]. The zero value works.
type Config struct {
	// Blocks bounds the distinct blocks. Default 1<<25, about 0.7 GB: a block takes 20
	// bytes, including its share of the table.
	Blocks int `default:"1<<25" min:"1" max:"1<<30"`
	// HolderBlocks bounds the blocks of one holder. Default 1<<22: 67 million tokens in blocks
	// of 16, more than a node's host memory holds.
	HolderBlocks int `default:"1<<22" min:"1" max:"1<<30"`
	// Holders bounds the holders known at a time. Default 4096.
	Holders int `default:"4096" min:"1" max:"1<<16"`

	// Seed varies the order of the hash tables, so that an attacker can't choose hashes that
	// collide in them. It does not change any result.
	Seed uint64
}

// WithDefaults returns c with every zero field set to its default.
func (c Config) WithDefaults() Config { return bounds.Fill(c) }

// Validate reports all faults at once, each wrapping [ErrConfig] with field and value. Zeros
// count as their defaults.
func (c Config) Validate() error { return bounds.CheckAs(ErrConfig, c.WithDefaults()) }

// Index is the radix tree. It has a single owner and no locks. Methods that read (Find, Held,
// Holds, DumpHolder, Stats) write nothing and may run concurrently with each other.
type Index struct {
	cfg     Config
	nodes   slab
	blocks  places // from block hash to node
	holders holders
	unique  int    // distinct blocks in the tree
	held    int    // blocks summed over the holders
	removed uint64 // see Stats.RemovedBlocks

	runBlocks int    // maxRun except in tests
	manyKids  uint32 // the constant except in tests

	path  []nodeID // scratch of Store
	below []nodeID // scratch of dropBelow
	slots []uint32 // scratch
	run   Run      // scratch of Apply
}

// Run is a sequence of consecutive blocks. Hashes[i] is [kv.Chain] of the hash before it and
// Locals[i]; at the start of a sequence it equals Locals[0]. Locals lets an index check that. Without
// Locals the index believes the hashes: leave it nil only for hashes that this process has computed
// or that an index has checked before, such as those of DumpHolder.
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
	x := &Index{cfg: cfg, blocks: places{seed: cfg.Seed ^ splitmix.Golden}, runBlocks: maxRun, manyKids: manyKids}
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

// DumpHolder appends the runs of holder h to dst, without Locals: stored in this order, they rebuild its blocks.
// There is one run per node, parents before children. The slices of hashes belong to the index
// and are valid until its next change. It costs the same as Clear, which visits no block.
//
// Example: of the tree in the package comment, worker 3 gives [b0 b1 b2 b3], and [c4 c5] with
// parent b3.
func (x *Index) DumpHolder(h kv.Rank, dst []Run) []Run {
	if slot, ok := x.holders.slot(h); ok {
		for _, id := range x.heldBelow(slot, root, nil)[1:] {
			n := x.node(id)
			dst = append(dst, x.runOf(n, n.covered(slot)))
		}
	}
	return dst
}

// heldBelow appends to dst node top and all nodes below it of which the holder in slot has
// blocks, parents before children. It uses dst instead of recursion, because a path may have as
// many nodes as blocks.
func (x *Index) heldBelow(slot uint32, top nodeID, dst []nodeID) []nodeID {
	at := len(dst)
	dst = append(dst, top)
	for ; at < len(dst); at++ {
		dst = x.appendKids(x.node(dst[at]), slot, dst)
	}
	return dst
}

// runOf returns the first blocks of n as a Run, as many as blocks says.
func (x *Index) runOf(n *node, blocks int) Run {
	r := Run{Hashes: n.hashes[:blocks:blocks]}
	if n.parent != root {
		p := x.node(n.parent)
		r.Parent, r.HasParent = p.hashes[len(p.hashes)-1], true
	}
	return r
}

// Clone returns a run with copies of the slices.
func (r Run) Clone() Run {
	r.Hashes = append([]kv.BlockHash(nil), r.Hashes...)
	r.Locals = append([]kv.LocalHash(nil), r.Locals...)
	return r
}

// set converts a Stored event to a run, in r's own slices.
func (r *Run) set(e kv.Event) {
	r.Parent, r.HasParent = e.Parent, e.HasParent
	r.Hashes, r.Locals = r.Hashes[:0], r.Locals[:0]
	for i := range e.Blocks {
		r.Hashes = append(r.Hashes, e.Blocks[i].Hash)
		r.Locals = append(r.Locals, e.Blocks[i].Local)
	}
}

// Apply applies an event of the cache of holder h. An index serves one model, tier and block
// size, so the caller chooses the index by the event. Cleared clears the blocks of h only, not
// those of other ranks of the worker. The errors are those of Store; removing unknown blocks is
// no error.
func (x *Index) Apply(h kv.Rank, e kv.Event) error {
	switch e.Kind {
	case kv.Stored:
		x.run.set(e)
		_, err := x.Store(h, x.run)
		return err
	case kv.Removed:
		x.Remove(h, e.Hashes)
	case kv.Cleared:
		x.Clear(h)
	}
	return nil
}
