package grammar

// stepper computes the set of stacks that follows a set after a byte. Its sets are closed: if the
// unit of a stack may end, the set also has the stacks to which the unit returns. A stack whose
// frame has no successor in its unit is left out.
type stepper struct {
	*machine
	*pool

	ended    bool    // the last set may end at a bottom other than unknown
	exits    []int32 // numbers of bodies after which the last set may end at unknown, unsorted
	overflow bool    // some set had over maxStacks; never reset here

	pending []pending // calls of this step, one entry per target
	slot    []int32   // by target: its index in pending, valid only if that entry has the target
	open    []int32   // indices of pending entries not entered yet, a heap by order
	all     []stack   // the set in construction; close works through it from the front
	work    int       // edges, calls and heap comparisons of the last step
}

// pending is a unit to enter and the stacks to which it returns.
type pending struct {
	target  int32
	order   int32
	entered bool
	ups     []stack
}

func newStepper(m *machine, longest int) stepper {
	return stepper{machine: m, pool: newPool(longest), slot: make([]int32, len(m.targets))}
}

// step appends to dst the set into which byte b turns set, and sets s.ended and s.exits for the
// result. It first collects the calls of all stacks and then enters the called units in their order, so
// that a unit is entered once with all its callers.
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

// start appends to dst the closed set that contains the stack f.
func (s *stepper) start(dst []stack, f stack) []stack {
	s.all = append(s.all[:0], f)
	return s.close(dst)
}

// returned appends to dst the closed set after the end of a unit that was entered with the cell
// up.
func (s *stepper) returned(dst []stack, up *cell) []stack {
	s.all = append(s.all[:0], up.stacks...)
	dst = s.close(dst)
	s.ended = s.ended || up.bottom
	return dst
}

// advance follows the edges of the stack f by byte b, and adds the calls of units that may begin
// with b to s.pending.
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
			p.ups = append(p.ups, f.up.stacks...) // tail call: skip the leaf frame
		} else {
			p.ups = append(p.ups, stack{frame{c.ret, f.least, f.most}, f.up})
		}
		if len(p.ups) > 4*maxStacks { // thousands of callers, mostly with equal stacks
			p.ups = s.distinct(p.ups)
		}
	}
}

// distinct returns ups sorted and without duplicates. If there are more than maxStacks, it drops
// the others and sets s.overflow.
func (s *stepper) distinct(ups []stack) []stack {
	ups = sortStacks(ups)
	if len(ups) > maxStacks {
		s.overflow = true
		ups = ups[:maxStacks]
	}
	return ups
}

// pendingOf returns this step's pending entry of target that is not entered yet. If there is
// none, it adds one to s.pending and to the heap s.open.
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
	p.target, p.order, p.entered, p.ups = target, s.units[s.targets[target].unit].order, false, p.ups[:0]
	s.open = append(s.open, int32(at))
	for i := len(s.open) - 1; i > 0 && s.earlier(i, (i-1)/2); i = (i - 1) / 2 {
		s.open[i], s.open[(i-1)/2] = s.open[(i-1)/2], s.open[i]
	}
	return p
}

// earlier reports whether open[i] must be entered before open[j]: by order, then by index.
func (s *stepper) earlier(i, j int) bool {
	s.work++
	a, b := s.open[i], s.open[j]
	if x, y := s.pending[a].order, s.pending[b].order; x != y {
		return x < y
	}
	return a < b
}

// popOpen removes the entry to be entered first from s.open and returns it.
func (s *stepper) popOpen() *pending {
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

// enterNext enters the pending unit that is first in the order. No other pending unit can call it at this
// byte, so its callers are complete.
func (s *stepper) enterNext(b byte) {
	p := s.popOpen()
	p.entered = true
	up := s.cell(s.distinct(p.ups))
	t := s.targets[p.target]
	f := stack{frame{s.units[t.unit].start, t.least, t.most}, up}
	s.advance(&f, b)
}

// push adds the stack f to s.all. It does nothing if f is there already, and sets s.overflow if
// s.all is full.
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

// close completes s.all: it adds the stacks to which ended units return and those after ended
// bodies. It appends to dst the stacks that have successors, sorted, and sets s.ended and
// s.exits.
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

// ticked returns f as it is after the end of a body: at the start of its unit, with its counts
// updated.
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

// ret adds the stacks of the cell up, to which a unit returns. At a bottom it sets s.ended
// instead.
func (s *stepper) ret(up *cell) {
	if up.bottom {
		s.ended = true
		return
	}
	for _, f := range up.stacks {
		s.push(f)
	}
}
