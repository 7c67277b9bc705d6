package kvindex

import (
	"math/bits"

	"github.com/coppice-llm/coppice/kv"
)

// nodeID identifies a node while it is in the tree.
type nodeID uint32

// root is the parent of all nodes that begin a sequence. As a link it means none.
const root nodeID = 0

// maxRun bounds the blocks of a run, and with it the cost of a split or join by one event: about
// 15 µs. A prompt of 16,000 tokens in blocks of 16 still fits into one run.
const maxRun = 1024

// node is a run of blocks between two forks. It has no children, several, or a single one that
// does not fit into the same run.
//
// A holder covers the first blocks of the run: all of them if its slot is in full, as many as
// its cut says if its slot is only in held. A slot that is in held of a child is in full of the
// parent. Every node except the root has a slot in full, so no block is without a holder.
//
// Example: of a run of 6 blocks holder A has all and holder B the first 4. Then full is {A},
// held is {A, B}, and cuts is [{B, 4}].
type node struct {
	hashes     []kv.BlockHash // of the run; owned by the node
	cuts       []cut          // one per holder in held but not in full, in no order
	full, held uint64         // bits of slots 0 to 63

	more   *moreHolders // for slots from 64 on, or for many children; else nil
	start  uint32       // number of blocks before the run
	parent nodeID
	child  nodeID // first child
	next   nodeID // next and previous sibling
	prev   nodeID
	kids   uint32
}

// cut says that the holder in slot has only the first blocks of a run, more than 0 and fewer
// than all.
type cut struct{ slot, blocks uint32 }

// moreHolders holds the parts that few nodes need: the words of the sets after the first one,
// and the number of children by slot (see node.below).
type moreHolders struct {
	words []pair
	below []uint32
}

// pair is the i-th word of a node's set full and the i-th word of its set held.
type pair struct{ full, held uint64 }

// end returns the number of blocks from the root to the end of the run.
func (n *node) end() uint32 { return n.start + uint32(len(n.hashes)) }

// words returns the number of words of each of the two sets.
func (n *node) words() int {
	if n.more == nil {
		return 1
	}
	return 1 + len(n.more.words)
}

// word returns the i-th word of both sets. Beyond the last word it is zero.
func (n *node) word(i int) pair {
	switch {
	case i == 0:
		return pair{n.full, n.held}
	case n.more != nil && i <= len(n.more.words):
		return n.more.words[i-1]
	}
	return pair{}
}

// setWord sets the i-th word of both sets to p, and lengthens the sets as needed. A node whose
// holders are all in slots 0 to 63 needs no moreHolders: its sets are in the node itself.
func (n *node) setWord(i int, p pair) {
	if i == 0 {
		n.full, n.held = p.full, p.held
		return
	}
	if n.more == nil {
		if p == (pair{}) {
			return
		}
		n.more = &moreHolders{}
	}
	for len(n.more.words) < i {
		n.more.words = append(n.more.words, pair{})
	}
	n.more.words[i-1] = p
}

// isFull reports whether the holder in slot has the whole run.
func (n *node) isFull(slot uint32) bool {
	return n.word(int(slot/64)).full>>(slot%64)&1 != 0
}

// isHeld reports whether the holder in slot has at least the first block of the run.
func (n *node) isHeld(slot uint32) bool {
	return n.word(int(slot/64)).held>>(slot%64)&1 != 0
}

// anyFull reports whether any holder covers the whole run.
func (n *node) anyFull() bool {
	for i := range n.words() {
		if n.word(i).full != 0 {
			return true
		}
	}
	return false
}

// covered returns the number of blocks of the run that the holder in slot has.
func (n *node) covered(slot uint32) int {
	switch {
	case n.isFull(slot):
		return len(n.hashes)
	case n.isHeld(slot):
		return int(n.cuts[n.cutOf(slot)].blocks)
	}
	return 0
}

// cutOf returns the index in cuts of the cut of slot, or -1 if there is none.
func (n *node) cutOf(slot uint32) int {
	for i := range n.cuts {
		if n.cuts[i].slot == slot {
			return i
		}
	}
	return -1
}

// cover sets the number of leading blocks of the run that the holder in slot has, 0 to all. 0
// removes the holder. The holder may have had none, some or all of the blocks before. The order
// of cuts has no meaning, so the last cut replaces a removed one.
func (n *node) cover(slot uint32, blocks int) {
	i, bit := int(slot/64), uint64(1)<<(slot%64)
	p := n.word(i)
	if p.held&bit != 0 && p.full&bit == 0 { // remove or change its cut
		at := n.cutOf(slot)
		if 0 < blocks && blocks < len(n.hashes) {
			n.cuts[at].blocks = uint32(blocks)
			return
		}
		last := len(n.cuts) - 1
		n.cuts[at] = n.cuts[last]
		if n.cuts = n.cuts[:last]; last == 0 {
			n.cuts = nil
		}
	}
	switch {
	case blocks == 0:
		p.full &^= bit
		p.held &^= bit
	case blocks == len(n.hashes):
		p.full |= bit
		p.held |= bit
	default:
		p.full &^= bit
		p.held |= bit
		n.cuts = append(n.cuts, cut{slot, uint32(blocks)})
	}
	n.setWord(i, p)
}

// slotOf returns the first slot in word, which is the i-th word of a set. The word must not be
// 0.
func slotOf(word uint64, i int) uint32 { return uint32(64*i + bits.TrailingZeros64(word)) }

// slotsOf appends to dst the slots in word, which is the i-th word of a set.
func slotsOf(word uint64, i int, dst []uint32) []uint32 {
	for ; word != 0; word &= word - 1 {
		dst = append(dst, slotOf(word, i))
	}
	return dst
}

// slab holds the nodes in pages of slabNodes nodes, and no node ever moves. In a growing slice
// all nodes would move now and then. That would be a pause for the writer, and invalid pointers
// for callers that add a node while they use another one.
type slab struct {
	pages []*[slabNodes]node
	next  nodeID // the first ID never used
	free  []nodeID
}

const slabNodes = 256

func (s *slab) at(id nodeID) *node { return &s.pages[id/slabNodes][id%slabNodes] }

// add returns the ID of an empty node.
func (s *slab) add() nodeID {
	if last := len(s.free) - 1; last >= 0 {
		id := s.free[last]
		s.free = s.free[:last]
		return id
	}
	if int(s.next) == len(s.pages)*slabNodes {
		s.pages = append(s.pages, new([slabNodes]node))
	}
	s.next++
	return s.next - 1
}

// drop empties node id and frees the ID for reuse.
func (s *slab) drop(id nodeID) {
	*s.at(id) = node{}
	s.free = append(s.free, id)
}
