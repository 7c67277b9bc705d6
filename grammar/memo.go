package grammar

import "slices"

// memo caches masks by set of stacks. It has a fixed number of slots in groups of memoWays; a
// new mask replaces the least recently used one of its group.
type memo struct {
	slots []remembered
	words int
	clock uint64
	key   []stack // the set of the last find, normalised
}

// remembered is a slot of memo: the mask of one set of stacks.
type remembered struct {
	hash   uint64
	used   uint64 // 0: empty
	number uint64 // unique to the set, for Matcher.State
	key    []stack
	mask   []uint64
}

// memoWays is the number of slots of a group. A set can be in any slot of the group that its hash
// selects.
const memoWays = 4

// init allocates as many slots as fit into bytes, rounded down to a power of two, and at least
// memoWays.
func (m *memo) init(bytes, words int) {
	n := memoWays
	for 2*n*(words*8+128) <= bytes {
		n *= 2
	}
	*m = memo{slots: make([]remembered, n), words: words}
}

// find returns the slot of set. If known is false, it has given the slot to set, and the caller
// must overwrite the slot's mask.
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
