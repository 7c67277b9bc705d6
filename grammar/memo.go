package grammar

import "slices"

// memo is the masks of the sets of stacks seen last, a fixed number of them, in
// groups of which the one unused for longest makes room.
type memo struct {
	slots  []remembered
	words  int
	clock  uint64
	key    []stack // looked for last
	hash   uint64
	victim int
}

type remembered struct {
	hash uint64
	used uint64 // 0: empty
	key  []stack
	mask []uint64
}

const memoWays = 4

// init makes room for masks of some bytes together, and for memoWays at least.
func (m *memo) init(bytes, words int) {
	n := memoWays
	for 2*n*(words*8+128) <= bytes {
		n *= 2
	}
	*m = memo{slots: make([]remembered, n), words: words}
}

// find copies the mask of set into dst, if it is known. If not, keep tells it.
func (m *memo) find(dst []uint64, p *pool, set []stack) bool {
	m.key = m.key[:0]
	for i := range set {
		m.key = append(m.key, p.normal(set[i]))
	}
	m.key = sortStacks(m.key)
	h := uint64(len(m.key))
	for i := range m.key {
		h = m.key[i].hashed(h)
	}
	m.hash = h
	m.clock++
	group := int(h%uint64(len(m.slots)/memoWays)) * memoWays
	m.victim = group
	for i := group; i < group+memoWays; i++ {
		s := &m.slots[i]
		if s.used != 0 && s.hash == h && slices.Equal(s.key, m.key) {
			s.used = m.clock
			copy(dst, s.mask)
			return true
		}
		if s.used < m.slots[m.victim].used {
			m.victim = i
		}
	}
	return false
}

// keep remembers the mask of the set that find did not know.
func (m *memo) keep(mask []uint64) {
	s := &m.slots[m.victim]
	s.hash, s.used = m.hash, m.clock
	s.key = append(s.key[:0], m.key...)
	s.mask = append(s.mask[:0], mask...)
}
