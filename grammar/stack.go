package grammar

import "slices"

// frame is a place in a unit: in one that counts, how many more bodies must come
// (least) and may come (most, or forever), the one begun included. In a walk of a
// counting unit whose counts are unknown (see unknown), most is how many bodies
// were ended since.
type frame struct{ node, least, most int32 }

// stack is a frame and what is below it.
type stack struct {
	frame
	up *cell
}

// cell is what a unit returns to: several stacks, if several called it at once. It
// is immutable, and equal ones of a pool are one.
type cell struct {
	stacks []stack // ascending; none in a bottom
	bottom bool    // nothing is known of what is below: the end, for the root's
	hash   uint64
	need   int32 // see walk.go; of cells above an unknown one
	normal *cell // with counts cut to what a token can tell apart
}

// unknown is what a counting unit returns to while its counts are not known: a
// frame on it has the bodies ended since in most.
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

func (s *stack) hashed(h uint64) uint64 {
	h = mix(h ^ uint64(uint32(s.node)))
	if s.least|s.most != 0 {
		h = mix(h ^ uint64(uint32(s.least))<<32 ^ uint64(uint32(s.most)))
	}
	return mix(h*3 ^ s.up.hash)
}

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

// sortStacks orders s and leaves doubles out. It is one stack nearly always.
func sortStacks(s []stack) []stack {
	if len(s) < 2 {
		return s
	}
	slices.SortFunc(s, compareStacks)
	return slices.Compact(s)
}

// pool makes equal cells one. It forgets them all when there are too many: matchers
// hold what they need, and equal cells that are two cost memory, not truth.
type pool struct {
	table   []*cell // open addressing; len a power of two
	n       int
	bytes   int
	clip    int32 // counts from here on are alike to any token
	unknown *cell
	scratch []stack
}

const cellBytes = 96 // of a cell with one stack and its place in the table

func newPool(longest int) *pool {
	return &pool{table: make([]*cell, 64), clip: int32(longest) + 1, unknown: newBottom(2)}
}

// forget empties the pool.
func (p *pool) forget() {
	clear(p.table)
	p.n, p.bytes = 0, 0
}

// cell is the cell of stacks, which are sorted and copied.
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
		c.normal = p.cell(sortStacks(p.scratch)) // is its own: one level deep
	}
	return c
}

// normal is s with its counts cut.
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
