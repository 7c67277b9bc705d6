package kvindex

import (
	"math/bits"

	"github.com/coppice-llm/coppice/kv"
)

// places leads from the hash of a block to its node. It has one entry of 8 bytes per block and no
// hashes: those stand in the nodes' runs, where a lookup compares them. See [Index.place].
//
// It is open addressing in segments that grow separately and by half, so that a store never waits for
// the copy of a large table, and entries fill 8/15 to 4/5 of it. A fuller table would take a byte a block
// less, and a store a third more time. The upper bits of a mixed hash, the
// tag, give the place in the segment. An entry contains its tag, so entries move without a look at
// their hashes.
type places struct {
	segments [placeSegments]placeSegment
	seed     uint64
	n        int
}

// placeSegments is the number of segments. An index of 16 million blocks, one of eight shards of 125
// million, has 30,000 blocks in each. Then 1 in 2^7 of the entries that a lookup passes has the tag
// of the sought block by chance, and costs a look at a node in vain.
const placeSegments = 512

type placeSegment struct {
	entries []entry
	used    int
}

// entry is the place of a block: the node in bits 32 to 63, the number of blocks before it, modulo maxRun, in
// bits 22 to 31, and the tag in bits 0 to 21. 0 is no entry: the root has no blocks.
//
// Because a run has at most maxRun blocks, the number modulo maxRun is enough to find the block in the
// run. Because it is counted from the root, not from the start of the run, a split or join changes only
// the entries of the blocks that get into another node.
type entry uint64

const tagBits = 22

func entryOf(id nodeID, depth uint32, tag uint64) entry {
	return entry(uint64(id)<<32 | uint64(depth%maxRun)<<tagBits | tag)
}

func (e entry) tag() uint64   { return uint64(e) & (1<<tagBits - 1) }
func (e entry) node() nodeID  { return nodeID(e >> 32) }
func (e entry) depth() uint32 { return uint32(e>>tagBits) % maxRun }

// leastPlaces is the room of the smallest segment that has entries.
const leastPlaces = 8

// find returns the segment and the tag of a hash. One multiplication of 64 by 64 to 128 bits, with both
// halves combined as in wyhash, spreads it.
func (p *places) find(hash kv.BlockHash) (s *placeSegment, tag uint64) {
	hi, lo := bits.Mul64(uint64(hash)^p.seed, 0xa0761d6478bd642f)
	mixed := hi ^ lo
	return &p.segments[mixed%placeSegments], mixed >> (64 - tagBits)
}

// home returns the index at which the search for a tag begins: the tag scaled to the room of the segment.
func (s *placeSegment) home(tag uint64) int { return int(tag * uint64(len(s.entries)) >> tagBits) }

// after returns the index after i; 0 comes after the last one.
func (s *placeSegment) after(i int) int {
	if i++; i < len(s.entries) {
		return i
	}
	return 0
}

// put adds the entry of a block. The caller knows that the hash has none.
func (p *places) put(hash kv.BlockHash, depth uint32, id nodeID) {
	s, tag := p.find(hash)
	if n := len(s.entries); 5*(s.used+1) > 4*n {
		s.resize(max(leastPlaces, n+n/2))
	}
	s.insert(entryOf(id, depth, tag))
	s.used++
	p.n++
}

func (s *placeSegment) insert(e entry) {
	i := s.home(e.tag())
	for s.entries[i] != 0 {
		i = s.after(i)
	}
	s.entries[i] = e
}

// seek returns the segment of a block's entry and its index there. It panics if there is none. No
// two blocks have equal entries, because they differ in the node or in their place in it.
func (p *places) seek(hash kv.BlockHash, depth uint32, id nodeID) (s *placeSegment, i int) {
	s, tag := p.find(hash)
	e := entryOf(id, depth, tag)
	for i = s.home(tag); s.entries[i] != e; i = s.after(i) {
		if s.entries[i] == 0 {
			panic("kvindex: a block of a node has no entry")
		}
	}
	return s, i
}

// move changes the node of a block's entry.
func (p *places) move(hash kv.BlockHash, depth uint32, from, to nodeID) {
	s, i := p.seek(hash, depth, from)
	s.entries[i] = entryOf(to, depth, s.entries[i].tag())
}

// delete removes a block's entry, and moves entries after it back so that searches still find them.
func (p *places) delete(hash kv.BlockHash, depth uint32, id nodeID) {
	s, hole := p.seek(hash, depth, id)
	for i := s.after(hole); s.entries[i] != 0; i = s.after(i) {
		// The entry at i may move to hole unless its home is after hole and at or before i.
		h := s.home(s.entries[i].tag())
		if h <= hole && (hole < i || h > i) || hole < i && h > i {
			s.entries[hole] = s.entries[i]
			hole = i
		}
	}
	s.entries[hole] = 0
	p.n--
	if s.used--; 3*s.used < len(s.entries) && len(s.entries) > leastPlaces {
		s.resize(max(leastPlaces, len(s.entries)/2))
	}
}

// resize moves the entries to an array with room for n.
func (s *placeSegment) resize(n int) {
	old := s.entries
	s.entries = make([]entry, n)
	for _, e := range old {
		if e != 0 {
			s.insert(e)
		}
	}
}

// place finds the block with this hash: its node, and in off the number of blocks of the node's
// run up to and including it. ok is false if the block is not in the tree.
//
// Example: in a node that starts after 8 blocks, the block at depth 10 (counted from 0) has off
// 3.
func (x *Index) place(hash kv.BlockHash) (id nodeID, off int, ok bool) {
	s, tag := x.blocks.find(hash)
	if len(s.entries) == 0 {
		return root, 0, false
	}
	for i := s.home(tag); ; i = s.after(i) {
		e := s.entries[i]
		if e == 0 {
			return root, 0, false
		}
		if e.tag() != tag {
			continue
		}
		id := e.node()
		n := x.node(id)
		if at := (e.depth() - n.start) % maxRun; int(at) < len(n.hashes) && n.hashes[at] == hash {
			return id, int(at) + 1, true
		}
	}
}

// childOf returns the child of node id whose run begins with the block of this hash, or root if there is
// none. A block of this hash elsewhere in the tree is not meant.
func (x *Index) childOf(id nodeID, hash kv.BlockHash) nodeID {
	if child, off, ok := x.place(hash); ok && off == 1 && x.node(child).parent == id {
		return child
	}
	return root
}
