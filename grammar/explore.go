package grammar

const (
	// beyondWork is the default of Limits.beyond. It bounds the moves of stacks by a byte that
	// one mask takes for the tokens that reach past the end of a unit. If a mask needs more, the
	// whole trie is walked for it instead.
	beyondWork = 1 << 13
	// exploreWork bounds the moves of a walk of the whole trie, to some milliseconds. Tokens that
	// the walk has not reached by then are refused, although the rules may allow them.
	exploreWork = 1 << 17
)

// explorer walks the whole trie from a set of stacks.
type explorer struct {
	setTable
	used []uint32 // as setTable.next: the latest mask whose walk took this transition
	path []int32
	mask uint32 // number of the mask being made
}

func (x *explorer) init(m *machine, longest int) {
	x.class, x.classes = m.classes()
	x.path = make([]int32, longest+1)
	x.forget()
}

// forget empties the caches of sets and transitions.
func (x *explorer) forget() {
	x.setTable.forget()
	x.used = append(x.used[:0], make([]uint32, x.classes)...)
	x.mask = 0
}

// explore overwrites dst with the mask of set: the tokens that its stacks allow. It charges the
// same work for cached and for new transitions, so that a mask does not depend on earlier masks.
func (g *Grammar) explore(dst []uint64, set []stack) {
	x, v := &g.explorer, g.v
	if len(x.next)*8+len(x.sets)*24 > g.limits.Memo || x.mask == 1<<32-1 {
		x.forget()
	}
	clear(dst)
	x.mask++
	x.path[0] = x.number(g.machine, set)
	work := exploreWork
	for i := int32(1); int(i) < len(v.label); {
		label := v.label[i]
		depth := label >> 8
		from := x.path[depth-1]
		slot := x.transition(from, byte(label))
		if x.used[slot] != x.mask {
			if work <= 0 {
				i = v.skip[i]
				continue
			}
			x.used[slot] = x.mask
			work -= int(x.states[from].work)
			if x.next[slot] == 0 {
				x.next[slot] = g.discover(from, byte(label))
			}
		}
		to := x.next[slot]
		if to == dead {
			i = v.skip[i]
			continue
		}
		x.path[depth] = to
		for _, t := range v.order[v.ends[i]:v.ends[i+1]] {
			dst[t>>6] |= 1 << (t & 63)
		}
		if s := &x.states[to]; s.from == s.to {
			i = v.skip[i]
		} else {
			i++
		}
	}
}

// discover returns the state to which byte b leads from the state from, or dead.
func (g *Grammar) discover(from int32, b byte) int32 {
	x := &g.explorer
	s, n := x.states[from], len(x.sets)
	x.sets = g.step(x.sets, x.sets[s.from:s.to], b)
	if len(x.sets) == n && !g.ended {
		return dead
	}
	set := x.sets[n:]
	x.sets = x.sets[:n]
	return x.number(g.machine, set)
}

// number returns the state of a set; it adds the state if it is new.
func (x *explorer) number(m *machine, set []stack) int32 {
	state, isNew := x.setTable.number(set, nil)
	if isNew {
		s := &x.states[state]
		s.work = s.to - s.from + 1
		for i := range set {
			n := &m.nodes[set[i].node]
			s.work += (n.callEnd - n.call) / 64
		}
		x.used = append(x.used, make([]uint32, x.classes)...)
	}
	return state
}
