package grammar

import "slices"

// frame is a place in a unit. In a counting unit, least and most are the numbers of further
// bodies that are required and allowed (most may be forever); both numbers include a body that
// has begun. In the walk of a counting unit whose counts are unknown (see pool.unknown), most
// instead is the number of bodies that have ended since the walk began.
type frame struct{ node, least, most int32 }

// stack is a frame and the cell below it.
type stack struct {
	frame
	up *cell
}

// cell holds the stacks that a unit returns to: several, if several called it at the same byte.
// A cell is immutable. A pool has only one of equal cells, so they are compared by pointer.
type cell struct {
	stacks []stack // ascending; none in a bottom
	bottom bool    // the end of the text, for the root's; not known, in a walk
	hash   uint64
	need   int32 // of cells above pool.unknown: bodies needed to return to it, see walk.go
	normal *cell // the same with counts clipped to those that a token can distinguish
}

// newBottom returns a cell without stacks. hash distinguishes the bottoms of a pool.
func newBottom(hash uint64) *cell {
	c := &cell{bottom: true, hash: mix(hash)}
	c.normal = c
	return c
}

func mix(h uint64) uint64 {
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	h ^= h >> 29
	h *= 0x9fb21c651e98df25
	return h ^ h>>32
}

// hashed returns a hash of h and s. The cell below s contributes its own hash.
func (s *stack) hashed(h uint64) uint64 {
	h = mix(h ^ uint64(uint32(s.node)))
	if s.least|s.most != 0 {
		h = mix(h ^ uint64(uint32(s.least))<<32 ^ uint64(uint32(s.most)))
	}
	return mix(h*3 ^ s.up.hash)
}

// compareStacks orders stacks within one set. Cells are ordered by their hashes.
func compareStacks(a, b stack) int {
	switch {
	case a.node != b.node:
		return int(a.node) - int(b.node)
	case a.most != b.most:
		return int(a.most) - int(b.most)
	case a.least != b.least:
		return int(a.least) - int(b.least)
	case a.up == b.up:
		return 0
	case a.up.hash < b.up.hash:
		return -1
	}
	return 1
}

// sortStacks sorts s and removes duplicates. s is nearly always a single stack.
func sortStacks(s []stack) []stack {
	if len(s) < 2 {
		return s
	}
	slices.SortFunc(s, compareStacks)
	return slices.Compact(s)
}

// pool interns cells. When it grows too large it forgets all of them: matchers keep the cells
// that they use, and two equal cells cost memory but change no result.
type pool struct {
	table   []*cell // open addressing; len a power of two
	n       int
	bytes   int
	clip    int32 // longest token + 1: no token can distinguish higher counts
	unknown *cell // cell below a counting unit in a walk, where the unit's counts are not known
	scratch []stack
}

const cellBytes = 96 // a cell with one stack and its entry in the table

func newPool(longest int) *pool {
	return &pool{table: make([]*cell, 64), clip: int32(longest) + 1, unknown: newBottom(2)}
}

// forget empties the pool.
func (p *pool) forget() {
	clear(p.table)
	p.n, p.bytes = 0, 0
}

// cell returns the cell of stacks, which must be sorted. It copies them if the cell is new.
func (p *pool) cell(stacks []stack) *cell {
	h := uint64(len(stacks))
	for i := range stacks {
		h = stacks[i].hashed(h)
	}
	at := h & uint64(len(p.table)-1)
	for ; p.table[at] != nil; at = (at + 1) & uint64(len(p.table)-1) {
		if c := p.table[at]; c.hash == h && slices.Equal(c.stacks, stacks) {
			return c
		}
	}
	c := &cell{stacks: slices.Clone(stacks), hash: h, need: -1}
	for i := range stacks {
		need := stacks[i].up.need
		if stacks[i].up == p.unknown {
			need = stacks[i].most + 1
		}
		if c.need < 0 || need < c.need {
			c.need = need
		}
	}
	p.table[at] = c
	p.n++
	p.bytes += cellBytes + (len(stacks)-1)*24
	if p.n*2 > len(p.table) {
		p.grow()
	}
	c.normal = c
	p.scratch = p.scratch[:0]
	same := true
	for _, s := range stacks {
		n := p.normal(s)
		same = same && n == s
		p.scratch = append(p.scratch, n)
	}
	if !same {
		c.normal = p.cell(sortStacks(p.scratch)) // recurses once: a normal cell is its own normal
	}
	return c
}

// normal returns s with its counts, and those of the stacks below it, limited to p.clip. If s
// lies directly on p.unknown, it returns s unchanged.
func (p *pool) normal(s stack) stack {
	if s.up == p.unknown {
		return s
	}
	s.least, s.most, s.up = min(s.least, p.clip), min(s.most, p.clip), s.up.normal
	return s
}

func (p *pool) grow() {
	old := p.table
	p.table = make([]*cell, 2*len(old))
	for _, c := range old {
		if c == nil {
			continue
		}
		at := c.hash & uint64(len(p.table)-1)
		for p.table[at] != nil {
			at = (at + 1) & uint64(len(p.table)-1)
		}
		p.table[at] = c
	}
}
