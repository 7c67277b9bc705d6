package grammar

import "slices"

// memo keeps the masks of the sets of stacks seen last, a fixed number of them, in
// groups of which the one unused for longest makes room.
type memo struct {
	slots []remembered
	words int
	clock uint64
	key   []stack // looked for last
}

type remembered struct {
	hash   uint64
	used   uint64 // 0: empty
	number uint64 // of no other set
	key    []stack
	mask   []uint64
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

// find returns the slot of set. If the set is not known, the caller fills in the mask.
func (m *memo) find(p *pool, set []stack) (_ *remembered, known bool) {
	m.key = m.key[:0]
	for i := range set {
		m.key = append(m.key, p.normal(set[i]))
	}
	m.key = sortStacks(m.key)
	h := uint64(len(m.key))
	for i := range m.key {
		h = m.key[i].hashed(h)
	}
	m.clock++
	group := m.slots[h%uint64(len(m.slots)/memoWays)*memoWays:][:memoWays]
	victim := &group[0]
	for i := range group {
		s := &group[i]
		if s.used != 0 && s.hash == h && slices.Equal(s.key, m.key) {
			s.used = m.clock
			return s, true
		}
		if s.used < victim.used {
			victim = s
		}
	}
	victim.hash, victim.used, victim.number, victim.key = h, m.clock, m.clock, append(victim.key[:0], m.key...)
	if victim.mask == nil {
		victim.mask = make([]uint64, m.words)
	}
	return victim, false
}
