package kvindex

import (
	"math/bits"

	"github.com/coppice-llm/coppice/kv"
)

// nodeID names a node while it lives.
type nodeID uint32

// root stands before all first blocks; as a link it means none.
const root nodeID = 0

// maxRun bounds the blocks of a run, and so what one event may cost by splitting
// or joining: some 15 µs. A prompt of 16,000 tokens still fits one run.
const maxRun = 1024

// node is a run of blocks between two forks. Of its children there are none or
// several, or one that does not fit into the same run. It is two cache lines, the
// first of which is all that a lookup reads.
//
// A holder covers the first blocks of the run: all if its bit is in full, those of
// its cut if it is only in held. Who is in held of a child is in full of its
// parent. There is somebody in full unless it is the root, so no block is without
// holder.
type node struct {
	locals     []kv.LocalHash // of the run, owned
	cuts       []cut          // of who is in held and not in full, in no order
	full, held uint64         // of slots 0 to 63

	hashes []kv.BlockHash // of the run, owned, len(locals)
	more   *moreHolders   // of slots from 64 on, and of many children; nil if there are none
	_      [8]byte        // so that a node is two cache lines
	start  uint32         // blocks before the run
	parent nodeID
	child  nodeID // first of the children
	next   nodeID // siblings, in both directions
	prev   nodeID
	kids   uint32
}

// cut says that a holder has the first blocks of a run, 0 < blocks < len.
type cut struct{ slot, blocks uint32 }

// moreHolders is what few nodes have: the sets' words from the second on, and the
// counts of below.go.
type moreHolders struct {
	words []pair
	below []uint32
}

type pair struct{ full, held uint64 }

// end is the number of blocks from the root to the end of the run.
func (n *node) end() uint32 { return n.start + uint32(len(n.locals)) }

// words is the number of words of the sets.
func (n *node) words() int {
	if n.more == nil {
		return 1
	}
	return 1 + len(n.more.words)
}

// word is the i-th word of both sets, zero beyond the last.
func (n *node) word(i int) pair {
	switch {
	case i == 0:
		return pair{n.full, n.held}
	case n.more != nil && i <= len(n.more.words):
		return n.more.words[i-1]
	}
	return pair{}
}

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

func (n *node) isFull(slot uint32) bool {
	return n.word(int(slot/64)).full>>(slot%64)&1 != 0
}

func (n *node) isHeld(slot uint32) bool {
	return n.word(int(slot/64)).held>>(slot%64)&1 != 0
}

// anyFull tells whether somebody covers the whole run.
func (n *node) anyFull() bool {
	for i := range n.words() {
		if n.word(i).full != 0 {
			return true
		}
	}
	return false
}

// covered is how many blocks of the run a holder has.
func (n *node) covered(slot uint32) int {
	switch {
	case n.isFull(slot):
		return len(n.locals)
	case n.isHeld(slot):
		return int(n.cuts[n.cutOf(slot)].blocks)
	}
	return 0
}

func (n *node) cutOf(slot uint32) int {
	for i := range n.cuts {
		if n.cuts[i].slot == slot {
			return i
		}
	}
	return -1
}

// cover lets a holder have the first blocks of the run, 0 for none of it.
func (n *node) cover(slot uint32, blocks int) {
	i, bit := int(slot/64), uint64(1)<<(slot%64)
	p := n.word(i)
	if p.held&bit != 0 && p.full&bit == 0 { // the cut goes or changes
		at := n.cutOf(slot)
		if 0 < blocks && blocks < len(n.locals) {
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
	case blocks == len(n.locals):
		p.full |= bit
		p.held |= bit
	default:
		p.full &^= bit
		p.held |= bit
		n.cuts = append(n.cuts, cut{slot, uint32(blocks)})
	}
	n.setWord(i, p)
}

// slotOf is the first slot in the i-th word of a set.
func slotOf(word uint64, i int) uint32 { return uint32(64*i + bits.TrailingZeros64(word)) }

// slotsOf appends the slots of a word of a set.
func slotsOf(word uint64, i int, dst []uint32) []uint32 {
	for ; word != 0; word &= word - 1 {
		dst = append(dst, slotOf(word, i))
	}
	return dst
}

// slab holds the nodes in pages that do not move.
type slab struct {
	pages []*[slabNodes]node
	next  nodeID // never given so far
	free  []nodeID
}

const slabNodes = 256

func (s *slab) at(id nodeID) *node { return &s.pages[id/slabNodes][id%slabNodes] }

// add takes a slot for an empty node. It moves nothing.
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

func (s *slab) drop(id nodeID) {
	*s.at(id) = node{}
	s.free = append(s.free, id)
}
