package kvindex

import (
	"slices"

	"github.com/coppice-llm/coppice/internal/wide"
	"github.com/coppice-llm/coppice/kv"
)

// Store records that holder h has the blocks of run; it already has all blocks before them.
// Blocks that h is known to have are no error. stored is the number of blocks that were new to
// h.
//
// The caller may reuse the run's slices after the call. Errors: ErrSequence, ErrUnknownParent,
// ErrForeignHash and ErrFull apply nothing; ErrCollision applies the blocks before the one that
// collides. A holder becomes known with its first accepted store. An empty run with a known
// parent does nothing. It costs the comparison with existing blocks; a hash, a table entry and a
// copy for each block that no holder had; and at most one split and one extension of a run.
func (x *Index) Store(h kv.Rank, run Run) (stored int, err error) {
	stored, _, err = x.store(h, run)
	return stored, err
}

// store is Store. It also returns in has how many leading blocks of the run the holder has after
// the call: all of them if there is no error.
func (x *Index) store(h kv.Rank, run Run) (stored, has int, err error) {
	spot, err := x.locate(h, run)
	if err != nil {
		return 0, 0, err
	}
	slot, known := x.holders.slot(h)
	if !known {
		slot = x.holders.add(h)
	}
	// Extend what the holder covers along the path: every node to its end, the last node to
	// spot.off.
	had := x.holders.all[slot].blocks
	// Nodes before the spot are covered to their end: the run goes through them.
	for i, id := range x.path {
		n := x.node(id)
		blocks := len(n.hashes)
		if i == len(x.path)-1 {
			blocks = spot.off
		}
		if old := n.covered(slot); old < blocks {
			n.cover(slot, blocks)
			x.addHeld(slot, blocks-old)
			if old == 0 {
				x.gainedHolder(id, slot)
			}
		}
	}
	// Then add the blocks that are not in the tree yet.
	has = spot.used + x.attach(slot, spot, run.Hashes[spot.used:])
	if has < len(run.Hashes) {
		err = ErrCollision
	}
	stored = x.holders.all[slot].blocks - had
	// A store without effect must not use up a holder's slot.
	if !known && stored == 0 {
		x.holders.forget(slot)
	}
	x.verify("Store")
	return stored, has, err
}

// spot is the place where a run leaves the tree: after the first off blocks of node id. used is
// the number of blocks of the run that are in the tree.
type spot struct {
	id        nodeID
	off, used int
}

// locate checks run, a run of holder h, and finds where it leaves the tree, without changing the
// tree. Afterwards x.path has the nodes from the one that contains the run's parent to the one
// of the spot. Errors are those of Store, except ErrCollision.
//
// Example: the tree has the run [a b c d], and a holder stores [a b x y]. The spot is after 2
// blocks of that node, with 2 blocks used; attach will split the node there and add the child [x
// y].
func (x *Index) locate(h kv.Rank, run Run) (spot, error) {
	x.path = x.path[:0]
	if run.Locals != nil && len(run.Hashes) != len(run.Locals) || run.HasParent && slices.Contains(run.Hashes, run.Parent) {
		return spot{}, ErrSequence
	}
	slot, known := x.holders.slot(h)
	var s spot
	if run.HasParent {
		id, off, ok := x.place(run.Parent)
		if !ok || !known || x.node(id).covered(slot) < off {
			return spot{}, ErrUnknownParent
		}
		s.id, s.off = id, off
		x.path = append(x.path, id)
	}
	fresh, err := x.walk(&s, slot, known, run)
	if err != nil {
		return spot{}, err
	}
	// Check the limits before anything changes: fresh blocks are new to the holder, and rest of
	// them new to the tree.
	rest := len(run.Hashes) - s.used
	switch {
	case !known && len(x.holders.slots) == x.cfg.Holders,
		known && x.holders.all[slot].blocks+fresh > x.cfg.HolderBlocks,
		!known && fresh > x.cfg.HolderBlocks,
		x.unique+rest > x.cfg.Blocks:
		return spot{}, ErrFull
	}
	return s, nil
}

// walk follows run through the tree from s as far as it matches, and moves s to where it leaves
// the tree. slot is the holder's slot, valid if known. fresh is the number of blocks of the run
// that the holder lacks. It checks the hashes of all blocks, if the run has local hashes: the error is
// ErrForeignHash.
func (x *Index) walk(s *spot, slot uint32, known bool, run Run) (fresh int, err error) {
	if !run.isChain() {
		return 0, ErrForeignHash
	}
	end := 0 // number of blocks of the run that the holder has
	for s.used < len(run.Hashes) {
		if s.id == root || s.off == len(x.node(s.id).hashes) {
			child := x.childOf(s.id, run.Hashes[s.used])
			if child == root {
				break
			}
			s.id, s.off = child, 0
			x.path = append(x.path, s.id)
		}
		n := x.node(s.id)
		same := wide.CommonPrefix(n.hashes[s.off:], run.Hashes[s.used:])
		if known {
			end += max(0, min(n.covered(slot)-s.off, same))
		}
		s.used += same
		if s.off += same; s.off < len(n.hashes) {
			break
		}
	}
	return len(run.Hashes) - end, nil
}

// isChain reports whether the hashes of a run are the chain of its local hashes. A run without local
// hashes is believed.
func (r *Run) isChain() bool {
	last, started := r.Parent, r.HasParent
	for i, local := range r.Locals {
		want := kv.BlockHash(local)
		if started {
			want = kv.Chain(last, local)
		}
		if last, started = r.Hashes[i], true; last != want {
			return false
		}
	}
	return true
}

// attach adds the part of a run that is not in the tree, hashes, after spot s, for the holder in
// slot. It returns how many blocks it added: all, or those before the first block
// whose hash another prefix has.
//
// A part of more than maxRun blocks becomes a chain of nodes. Example: 2,500 blocks after a leaf
// of 1,000 extend it by 24 blocks, and add children of 1,024, 1,024 and 428 blocks.
func (x *Index) attach(slot uint32, s spot, hashes []kv.BlockHash) (attached int) {
	id := s.id
	// The run leaves the tree inside a node: split it there, so that a child can be added.
	if len(hashes) > 0 && id != root && s.off < len(x.node(id).hashes) {
		if _, _, taken := x.place(hashes[0]); taken {
			return 0 // check before the split, which would be in vain
		}
		id = x.split(id, s.off)
		x.join(x.node(id).child) // either part may fit into a run with its neighbour now
		defer x.join(x.node(id).parent)
	}
	for len(hashes) > 0 {
		n := x.node(id)
		// A leaf grows in place up to maxRun blocks; else a child is added.
		take, done := min(len(hashes), x.runBlocks), 0
		if grow := x.runBlocks - len(n.hashes); id != root && n.kids == 0 && grow > 0 {
			take = min(len(hashes), grow)
			done = x.extend(id, slot, hashes[:take])
		} else {
			id, done = x.addChild(id, slot, hashes[:take])
		}
		if attached += done; done < take {
			break
		}
		hashes = hashes[take:]
	}
	return attached
}

// name adds entries to the table blocks for the run of node id, from index from on. If a hash is taken, by
// another prefix or by an earlier block of the run, it cuts the run before that block. It returns
// how many blocks it added.
func (x *Index) name(id nodeID, from int) int {
	n := x.node(id)
	for i := from; i < len(n.hashes); i++ {
		if _, _, taken := x.place(n.hashes[i]); taken {
			n.hashes = n.hashes[:i]
			break
		}
		x.blocks.put(n.hashes[i], n.start+uint32(i), id)
	}
	return len(n.hashes) - from
}

// rename changes the table entries of the blocks of n from node from to node to.
func (x *Index) rename(n *node, from, to nodeID) {
	for i, hash := range n.hashes {
		x.blocks.move(hash, n.start+uint32(i), from, to)
	}
}

// extend lengthens the run of leaf id by blocks for the holder in slot, which covers the whole
// run. Other holders that covered the whole run get a cut at its old end. It returns how many
// blocks it added, as attach does.
//
// Example: holders A and B have all of [a b], and A stores c. The run becomes [a b c] with A in
// full and a cut after 2 blocks for B.
func (x *Index) extend(id nodeID, slot uint32, hashes []kv.BlockHash) int {
	n := x.node(id)
	old := len(n.hashes)
	n.hashes = append(x.roomy(n.hashes, len(hashes)), hashes...)
	done := x.name(id, old)
	if done == 0 {
		return 0
	}
	// The holders of the whole old run get a cut at its end. The new end belongs to slot alone.
	for i := range n.words() {
		for _, h := range slotsOf(n.word(i).full, i, x.slots[:0]) {
			if h != slot {
				n.cover(h, old)
			}
		}
	}
	x.unique += done
	x.addHeld(slot, done)
	return done
}

// roomy returns run with room for more blocks: a quarter more than it needs, but no more than a run may
// have, where append would leave a fifth of each long run unused.
func (x *Index) roomy(run []kv.BlockHash, more int) []kv.BlockHash {
	need := len(run) + more
	if need <= cap(run) {
		return run
	}
	grown := make([]kv.BlockHash, len(run), max(need, min(need+need/4, x.runBlocks)))
	copy(grown, run)
	return grown
}

// addChild adds a child of parent with these blocks, held by slot alone. It returns the child
// and how many blocks it added, as attach does. If the hash of the first block is taken, it adds
// nothing and returns parent and 0.
func (x *Index) addChild(parent nodeID, slot uint32, hashes []kv.BlockHash) (nodeID, int) {
	id := x.nodes.add()
	n := x.node(id)
	n.start = x.node(parent).end()
	n.hashes = slices.Clone(hashes)
	done := x.name(id, 0)
	if done == 0 {
		x.nodes.drop(id)
		return parent, 0
	}
	n.cover(slot, done)
	x.link(parent, id)
	x.unique += done
	x.addHeld(slot, done)
	return id, done
}
