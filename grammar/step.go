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

	pending []pending // calls of this step, each target once
	slot    []int32   // of each target: where in pending it is, if it is there
	open    []int32   // those of pending that are not entered: a heap by rank
	all     []stack   // the set in the making, closed from the front
	work    int       // edges, calls and pending ones that the last step looked at
}

// pending is a unit to enter, and what it is to return to.
type pending struct {
	target  int32
	rank    int32
	entered bool
	ups     []stack
}

func newStepper(m *machine, longest int) stepper {
	return stepper{machine: m, pool: newPool(longest), slot: make([]int32, len(m.targets))}
}

// step appends to dst where byte b leads from set; ended and exits are of it.
func (s *stepper) step(dst, set []stack, b byte) []stack {
	s.all = s.all[:0]
	s.pending, s.work = s.pending[:0], 0
	for i := range set {
		s.advance(&set[i], b)
	}
	for len(s.open) > 0 {
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
	s.work += 1 + int(n.edgeEnd-n.edge) + int(n.callEnd-n.call)
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
		if len(p.ups) > 4*maxStacks { // mostly the same ones, of thousands of callers
			p.ups = s.distinct(p.ups)
		}
	}
}

// distinct sorts stacks, leaves doubles out and drops what is over maxStacks.
func (s *stepper) distinct(ups []stack) []stack {
	ups = sortStacks(ups)
	if len(ups) > maxStacks {
		s.overflow = true
		ups = ups[:maxStacks]
	}
	return ups
}

func (s *stepper) pendingOf(target int32) *pending {
	if i := int(s.slot[target]); i < len(s.pending) && s.pending[i].target == target && !s.pending[i].entered {
		return &s.pending[i]
	}
	at := len(s.pending)
	if at < cap(s.pending) {
		s.pending = s.pending[:at+1]
	} else {
		s.pending = append(s.pending, pending{})
	}
	s.slot[target] = int32(at)
	p := &s.pending[at]
	p.target, p.rank, p.entered, p.ups = target, s.units[s.targets[target].unit].rank, false, p.ups[:0]
	s.open = append(s.open, int32(at))
	for i := len(s.open) - 1; i > 0 && s.earlier(i, (i-1)/2); i = (i - 1) / 2 {
		s.open[i], s.open[(i-1)/2] = s.open[(i-1)/2], s.open[i]
	}
	return p
}

// earlier says if open[i] is to be entered before open[j].
func (s *stepper) earlier(i, j int) bool {
	s.work++
	a, b := s.open[i], s.open[j]
	if x, y := s.pending[a].rank, s.pending[b].rank; x != y {
		return x < y
	}
	return a < b
}

// first takes from open what is to be entered first.
func (s *stepper) first() *pending {
	at, last := s.open[0], len(s.open)-1
	s.open[0] = s.open[last]
	s.open = s.open[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child+1 < last && s.earlier(child+1, child) {
			child++
		}
		if child >= last || !s.earlier(child, i) {
			return &s.pending[at]
		}
		s.open[i], s.open[child] = s.open[child], s.open[i]
		i = child
	}
}

// enterNext enters a pending unit that no other pending one may call first.
func (s *stepper) enterNext(b byte) {
	p := s.first()
	p.entered = true
	up := s.cell(s.distinct(p.ups))
	t := s.targets[p.target]
	f := stack{frame{s.units[t.unit].start, t.least, t.most}, up}
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
