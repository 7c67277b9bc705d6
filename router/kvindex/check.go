package kvindex

import (
	"fmt"
	"math/bits"
)

// Check verifies all invariants and returns the first broken one with its values, nil if all
// hold. It visits all nodes and blocks. Under -tags invariants it runs after each change.
func (x *Index) Check() error {
	sums := make([]int, len(x.holders.all))
	nodes, unique := 0, 0
	for id := x.node(root).child; id != root; id = x.following(id) {
		if err := x.checkNode(id); err != nil {
			return fmt.Errorf("node %d: %w", id, err)
		}
		n := x.node(id)
		nodes++
		unique += len(n.hashes)
		for slot := range sums {
			sums[slot] += n.covered(uint32(slot))
		}
	}
	if err := x.checkBelow(x.node(root)); err != nil {
		return err
	}
	held := 0
	for slot, sum := range sums {
		hold := x.holders.all[slot]
		if sum != hold.blocks || sum > 0 && !hold.known {
			return fmt.Errorf("slot %d (%v, known %v) has %d blocks in the tree, %d by count", slot, hold.holder, hold.known, sum, hold.blocks)
		}
		held += sum
	}
	if held != x.held || unique != x.unique || unique != x.blocks.n {
		return fmt.Errorf("%d held and %d distinct blocks in the tree, %d and %d by count, %d by name", held, unique, x.held, x.unique, x.blocks.n)
	}
	if want := x.Stats().Nodes; nodes != want {
		return fmt.Errorf("%d nodes in the tree, %d in use", nodes, want)
	}
	return nil
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

// checkNode verifies the length, position and links of node id. A node with only one child must not fit into one run with it: join should have merged
// the two, and a lookup would cost one step more than needed.
func (x *Index) checkNode(id nodeID) error {
	n := x.node(id)
	p := x.node(n.parent)
	switch {
	case len(n.hashes) == 0 || len(n.hashes) > x.runBlocks:
		return fmt.Errorf("%d blocks, want 1 to %d", len(n.hashes), x.runBlocks)
	case n.start != p.end():
		return fmt.Errorf("starts at %d, its parent ends at %d", n.start, p.end())
	case !n.anyFull():
		return fmt.Errorf("no holder has the last of %d blocks", len(n.hashes))
	}
	kids := uint32(0)
	for kid, prev := n.child, root; kid != root; kid, prev = x.node(kid).next, kid {
		if k := x.node(kid); k.parent != id || k.prev != prev {
			return fmt.Errorf("child %d has parent %d and prev %d, want %d", kid, k.parent, k.prev, prev)
		}
		kids++
	}
	if err := x.checkBelow(n); err != nil {
		return err
	}
	if kids != n.kids || kids == 1 && len(n.hashes)+len(x.node(n.child).hashes) <= x.runBlocks {
		return fmt.Errorf("%d children, %d by count, fits the first", kids, n.kids)
	}
	if err := x.checkNames(id, n); err != nil {
		return err
	}
	return x.checkSets(n, p)
}

// checkNames verifies that the table blocks leads from each hash in the run of node id to its block.
func (x *Index) checkNames(id nodeID, n *node) error {
	for i, hash := range n.hashes {
		if at, off, ok := x.place(hash); !ok || at != id || off != i+1 {
			return fmt.Errorf("block %d, %x, is found in node %d as block %d: %v", i, hash, at, off-1, ok)
		}
	}
	return nil
}

// checkSets verifies the holders of n, whose parent is p. Each slot in n.full is in n.held. Each
// slot in n.held is in p.full. Each slot in n.held but not in n.full has exactly one cut, of
// more than 0 and fewer than all blocks of the run.
//
// Example of a fault: a holder in held of a child but not in full of the parent would have
// blocks after a gap, and Find would count them.
func (x *Index) checkSets(n, p *node) error {
	cuts := 0
	for i := range n.words() {
		w := n.word(i)
		if w.full&^w.held != 0 || n.parent != root && w.held&^p.word(i).full != 0 {
			return fmt.Errorf("word %d: full %x, held %x, the parent's full %x", i, w.full, w.held, p.word(i).full)
		}
		cuts += bits.OnesCount64(w.held &^ w.full)
	}
	for _, c := range n.cuts {
		if c.blocks == 0 || int(c.blocks) >= len(n.hashes) || n.isFull(c.slot) || !n.isHeld(c.slot) {
			return fmt.Errorf("cut %+v in a run of %d", c, len(n.hashes))
		}
		cuts--
	}
	if cuts != 0 {
		return fmt.Errorf("%d more holders in part than cuts", cuts)
	}
	return nil
}

// checkBelow verifies that n counts its children exactly if it has enough children, and that
// each count is right.
func (x *Index) checkBelow(n *node) error {
	counts := n.below()
	if counts == nil && n.kids >= x.manyKids || counts != nil && n.kids < x.manyKids/2 {
		return fmt.Errorf("%d children, counted: %v", n.kids, counts != nil)
	}
	for slot, count := range counts {
		for kid := n.child; kid != root; kid = x.node(kid).next {
			if x.node(kid).isHeld(uint32(slot)) {
				count--
			}
		}
		if count != 0 {
			return fmt.Errorf("slot %d: %d children by count, %d more than there are", slot, counts[slot], int32(count))
		}
	}
	return nil
}
