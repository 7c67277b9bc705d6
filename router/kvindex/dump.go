package kvindex

import (
	"github.com/coppice-llm/coppice/kv"
)

// HolderRun is a run of blocks that a holder has.
type HolderRun struct {
	Holder kv.Rank
	Run    Run
}

// DumpHolder appends the runs of holder h to dst: stored in this order, they rebuild its blocks.
// There is one run per node, parents before children. The slices of hashes belong to the index
// and are valid until its next change. It costs O(nodes), not O(blocks).
//
// Example: of the tree in the package comment, worker 3 gives [b0 b1 b2 b3], and [c4 c5] with
// parent b3.
func (x *Index) DumpHolder(h kv.Rank, dst []HolderRun) []HolderRun {
	// The tree is walked in preorder, so parents come before children.
	slot, ok := x.holders.slot(h)
	if !ok || x.holders.all[slot].blocks == 0 {
		return dst
	}
	for id := x.node(root).child; id != root; id = x.following(id) {
		n := x.node(id)
		if blocks := n.covered(slot); blocks > 0 {
			dst = append(dst, HolderRun{h, x.runOf(n, blocks)})
		}
	}
	return dst
}

// following returns the node after id in preorder, or root after the last node. It follows links
// only, so a walk through a tree of any depth needs no stack, and a whole walk costs O(nodes).
func (x *Index) following(id nodeID) nodeID {
	if child := x.node(id).child; child != root {
		return child
	}
	for ; id != root; id = x.node(id).parent {
		if next := x.node(id).next; next != root {
			return next
		}
	}
	return root
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
