package grammar

// stepper moves sets of stacks by a byte. The sets are closed: a stack whose frame
// may end stands beside what it returns to, and frames that nothing follows in
// their unit are left out.
type stepper struct {
	*machine
	*pool

	ended    bool    // the last set may end at a bottom that is not unknown
	exits    []int32 // the last set may end at the unknown after these many bodies, unsorted
	overflow bool    // a set had over maxStacks; stays until it is taken back

	pending []pending // calls of this step, by target
	all     []stack   // the set in the making, closed from the front
}

// pending is a unit to enter, and what it is to return to.
type pending struct {
	target int32
	rank   int32
	ups    []stack
}

// step appends to dst where byte b leads from set; ended and exits are of it.
func (s *stepper) step(dst, set []stack, b byte) []stack {
	s.all = s.all[:0]
	s.pending = s.pending[:0]
	for i := range set {
		s.advance(&set[i], b)
	}
	for len(s.pending) > 0 {
		s.enterNext(b)
	}
	return s.close(dst)
}

// start appends to dst the set with frame f on cell up alone.
func (s *stepper) start(dst []stack, f stack) []stack {
	s.all = append(s.all[:0], f)
	return s.close(dst)
}

// returned appends to dst the set of what unit's end on cell up leads to.
func (s *stepper) returned(dst []stack, up *cell) []stack {
	s.all = append(s.all[:0], up.stacks...)
	dst = s.close(dst)
	s.ended = s.ended || up.bottom
	return dst
}

// advance follows the edges of one stack by b and notes its calls.
func (s *stepper) advance(f *stack, b byte) {
	n := &s.nodes[f.node]
	if n.flags&boundary != 0 && f.most == 0 && f.up != s.unknown {
		return
	}
	for _, e := range s.nodeEdges(n) {
		if e.lo <= b && b <= e.hi {
			s.push(stack{frame{e.to, f.least, f.most}, f.up})
		}
	}
	for _, c := range s.nodeCalls(n) {
		t := s.targets[c.target].unit
		if !s.units[t].first.has(b) {
			continue
		}
		p := s.pendingOf(c.target)
		if s.nodes[c.ret].leaf() && !f.up.bottom {
			p.ups = append(p.ups, f.up.stacks...) // nothing is left to do there
		} else {
			p.ups = append(p.ups, stack{frame{c.ret, f.least, f.most}, f.up})
		}
	}
}

func (s *stepper) pendingOf(target int32) *pending {
	for i := range s.pending {
		if s.pending[i].target == target {
			return &s.pending[i]
		}
	}
	if len(s.pending) < cap(s.pending) {
		s.pending = s.pending[:len(s.pending)+1]
	} else {
		s.pending = append(s.pending, pending{})
	}
	p := &s.pending[len(s.pending)-1]
	p.target, p.rank, p.ups = target, s.units[s.targets[target].unit].rank, p.ups[:0]
	return p
}

// enterNext enters a pending unit that no other pending one may call first.
func (s *stepper) enterNext(b byte) {
	next := 0
	for i := range s.pending {
		if s.pending[i].rank < s.pending[next].rank {
			next = i
		}
	}
	last := len(s.pending) - 1
	s.pending[next], s.pending[last] = s.pending[last], s.pending[next]
	p := &s.pending[last]
	ups := sortStacks(p.ups)
	if len(ups) > maxStacks {
		s.overflow = true
		ups = ups[:maxStacks]
	}
	up := s.cell(ups)
	t := s.targets[p.target]
	f := stack{frame{s.units[t.unit].start, t.least, t.most}, up}
	s.pending = s.pending[:last]
	s.advance(&f, b)
}

// push adds a stack to the set unless it is there.
func (s *stepper) push(f stack) {
	for i := range s.all {
		if s.all[i] == f {
			return
		}
	}
	if len(s.all) >= maxStacks {
		s.overflow = true
		return
	}
	s.all = append(s.all, f)
}

// close completes s.all and appends to dst what of it has anything to follow.
func (s *stepper) close(dst []stack) []stack {
	s.ended, s.exits = false, s.exits[:0]
	from := len(dst)
	for i := 0; i < len(s.all); i++ {
		f := s.all[i]
		n := &s.nodes[f.node]
		live := n.flags&rest != 0
		if n.flags&tick != 0 {
			s.push(s.ticked(f, n.unit))
		}
		if n.flags&boundary != 0 {
			if f.up == s.unknown {
				s.exits = append(s.exits, f.most)
			} else {
				live = f.most > 0
				if f.least == 0 {
					s.ret(f.up)
				}
			}
		} else if n.flags&final != 0 {
			s.ret(f.up)
		}
		if live {
			dst = append(dst, f)
		}
	}
	return dst[:from+len(sortStacks(dst[from:]))]
}

// ticked is where f, at the end of a body, goes on.
func (s *stepper) ticked(f stack, unit int32) stack {
	f.node = s.units[unit].start
	switch {
	case f.up == s.unknown:
		f.most++
	default:
		f.least = max(f.least-1, 0)
		if f.most != forever {
			f.most--
		}
	}
	return f
}

// ret adds what a unit returns to.
func (s *stepper) ret(up *cell) {
	if up.bottom {
		s.ended = true
		return
	}
	for _, f := range up.stacks {
		s.push(f)
	}
}
