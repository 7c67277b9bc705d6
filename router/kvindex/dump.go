package kvindex

import (
	"github.com/coppice-llm/coppice/kv"
)

// DumpHolder appends the runs of holder h to dst: stored in this order, they rebuild its blocks.
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
	r := Run{Hashes: n.hashes[:blocks:blocks], Locals: n.locals[:blocks:blocks]}
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
