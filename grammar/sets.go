package grammar

import "slices"

// setTable numbers sets of stacks for walks through the trie, and caches the transitions between
// them, so that most steps are one lookup. Ambiguous rules have large sets but few different ones,
// because most bytes lead to the same set.
type setTable struct {
	class   [256]uint8
	classes int
	known   map[uint64]int32
	states  []numbered
	next    []int32 // [state*classes+class]: a state, dead, or 0 for not known
	sets    []stack
}

// numbered is a numbered set: setTable.sets[from:to].
type numbered struct {
	from, to int32
	exits    []int32 // of a walker: numbers of bodies after which the unit may end here
	need     int32   // of a walker: least need of its stacks
	work     int32   // of an explorer: moves charged for a step from it
}

const dead = -1 // no text leads on

// forget drops the numbered sets.
func (t *setTable) forget() {
	t.known = map[uint64]int32{}
	t.states = append(t.states[:0], numbered{}) // 0 is none
	t.next = append(t.next[:0], make([]int32, t.classes)...)
	t.sets = t.sets[:0]
}

// transition returns the index in t.next of the transition from state by byte b.
func (t *setTable) transition(state int32, b byte) int { return int(state)*t.classes + int(t.class[b]) }

// number returns the state of a set with these exits, and whether the state is new. It copies the
// set, which may lie in the spare capacity of t.sets: append then copies the stacks onto themselves.
func (t *setTable) number(set []stack, exits []int32) (state int32, isNew bool) {
	h := uint64(len(exits))
	for _, e := range exits {
		h = mix(h ^ uint64(e))
	}
	for i := range set {
		h = set[i].hashed(h)
	}
	for ; ; h++ {
		i, known := t.known[h]
		if !known {
			break
		}
		if s := &t.states[i]; slices.Equal(t.sets[s.from:s.to], set) && slices.Equal(s.exits, exits) {
			return i, false
		}
	}
	state = int32(len(t.states))
	t.known[h] = state
	s := numbered{from: int32(len(t.sets)), exits: slices.Clone(exits)}
	t.sets = append(t.sets, set...)
	s.to = int32(len(t.sets))
	t.states = append(t.states, s)
	t.next = append(t.next, make([]int32, t.classes)...)
	return state, true
}
