package grammar

import "math"

// machine is a compiled grammar without its masks: automata over bytes, one per unit, that call
// each other.
//
// The state of a match is a set of stacks of frames. A frame is a node and, in a counting unit,
// how often its body must and may still be matched. A unit is entered only when it matches at
// least a byte: if its texts include "", its callers have an epsilon arc around the call.
type machine struct {
	nodes   []node
	edges   []edge
	calls   []call
	targets []target
	units   []unit
	root    int32 // start node of rule 0
}

// node is a state of a unit's automaton. Its edges are machine.edges[edge:edgeEnd] and its calls
// machine.calls[call:callEnd].
type node struct {
	edge, edgeEnd int32
	call, callEnd int32
	unit          int32
	flags         flags
}

// flags are properties of a node.
type flags uint8

const (
	final    flags = 1 << iota // the unit may end here
	tick                       // one body of a counting unit may end here
	boundary                   // start of a counting unit, between two bodies
	rest                       // a stack may rest here between bytes, so tokens may end here
)

// edge leads to node to by any byte from lo to hi.
type edge struct {
	lo, hi byte // inclusive
	to     int32
}

// call is an edge of a node that matches a whole text of a unit and continues at node ret.
type call struct{ target, ret int32 }

// target is a unit and, if it counts, how often its body must and may be matched.
type target struct{ unit, least, most int32 }

// forever is target.most of a repeat without an upper bound.
const forever = math.MaxInt32

// unit is an automaton that can be called: a recursive rule, the body of a counting repeat, or a
// shared part of rules.
type unit struct {
	start int32
	order int32   // in which units are entered: lower than that of the units that its start node may call
	first byteSet // bytes with which its texts may begin
}

// byteSet is a bit set of bytes: byte b is bit b%64 of word b/64.
type byteSet [4]uint64

var allBytes = byteSet{1<<64 - 1, 1<<64 - 1, 1<<64 - 1, 1<<64 - 1}

func (s *byteSet) has(b byte) bool { return s[b>>6]>>(b&63)&1 != 0 }

// writesUTF8 reports whether s has all bytes, but possibly specialByte, which UTF-8 does not have.
func (s *byteSet) writesUTF8() bool {
	all := *s
	all.add(specialByte, specialByte)
	return all == allBytes
}

func (s *byteSet) add(lo, hi byte) {
	for b := int(lo); b <= int(hi); b++ {
		s[b>>6] |= 1 << (b & 63)
	}
}

// any reports whether s has a byte of the span at.
func (s *byteSet) any(at span) bool {
	for b := int(at.lo); b <= int(at.hi); b++ {
		if s.has(byte(b)) {
			return true
		}
	}
	return false
}

func (s *byteSet) union(o *byteSet) {
	for i := range s {
		s[i] |= o[i]
	}
}

func (m *machine) nodeEdges(n *node) []edge { return m.edges[n.edge:n.edgeEnd] }
func (m *machine) nodeCalls(n *node) []call { return m.calls[n.call:n.callEnd] }

// leaf reports whether a node has no successor within its unit: it can only end the unit.
func (n *node) leaf() bool {
	return n.edge == n.edgeEnd && n.call == n.callEnd && n.flags&(tick|boundary) == 0
}

// link completes a machine that has all its units: it sets their order and first bytes and the
// rest flags of nodes.
func (m *machine) link() {
	order, _ := postorder(len(m.units), m.allUnits(), func(u int32) []int32 {
		var to []int32
		for _, c := range m.nodeCalls(&m.nodes[m.units[u].start]) {
			to = append(to, m.targets[c.target].unit)
		}
		return to
	})
	for i, u := range order {
		at := &m.units[u]
		at.order = int32(len(order) - i)
		start := &m.nodes[at.start]
		at.first = m.firstOf(start)
	}
	m.markRest()
}

// markRest sets the flag rest on nodes that can be reached after a byte (or are the root) and
// have edges or calls. That a node is the start of a unit does not count as reached, except in a
// counting unit, which returns to its start.
func (m *machine) markRest() {
	seen := make([]bool, len(m.nodes))
	var stack []int32
	visit := func(n int32) {
		if !seen[n] {
			seen[n] = true
			stack = append(stack, n)
		}
	}
	mark := func(n int32) {
		visit(n)
		if at := &m.nodes[n]; at.edge < at.edgeEnd || at.call < at.callEnd {
			at.flags |= rest
		}
	}
	mark(m.root)
	for len(stack) > 0 {
		n := &m.nodes[stack[len(stack)-1]]
		stack = stack[:len(stack)-1]
		for _, e := range m.nodeEdges(n) {
			mark(e.to)
		}
		for _, c := range m.nodeCalls(n) {
			mark(c.ret)
			start := m.units[m.targets[c.target].unit].start
			visit(start)
			if m.nodes[start].flags&boundary != 0 {
				mark(start)
			}
		}
	}
}

func (m *machine) allUnits() []int32 {
	all := make([]int32, len(m.units))
	for i := range all {
		all[i] = int32(i)
	}
	return all
}

// firstOf returns the bytes of n's edges and the first bytes of the units that it calls.
func (m *machine) firstOf(n *node) (first byteSet) {
	for _, e := range m.nodeEdges(n) {
		first.add(e.lo, e.hi)
	}
	for _, c := range m.nodeCalls(n) {
		first.union(&m.units[m.targets[c.target].unit].first)
	}
	return first
}

// classes partitions the bytes into classes: every edge has either all bytes of a class or none
// of them. It returns the class of each byte and the number of classes.
func (m *machine) classes() (class [256]uint8, n int) {
	var cut [257]bool
	for _, e := range m.edges {
		cut[e.lo], cut[int(e.hi)+1] = true, true
	}
	for b := range 256 {
		if b > 0 && cut[b] {
			n++
		}
		class[b] = uint8(n)
	}
	return class, n + 1
}

// follows returns for each unit the bytes that may come directly after a text of the unit.
func (m *machine) follows() []byteSet {
	follow := make([]byteSet, len(m.units))
	heirs := make([][]int32, len(m.units)) // by unit u: units that may end where u ends
	for i := range m.nodes {
		for _, c := range m.nodeCalls(&m.nodes[i]) {
			ret, unit := &m.nodes[c.ret], m.targets[c.target].unit
			first := m.firstOf(ret)
			follow[unit].union(&first)
			if ret.flags&tick != 0 {
				first = m.firstOf(&m.nodes[m.units[ret.unit].start])
				follow[unit].union(&first)
			}
			if ret.flags&(final|tick) != 0 {
				heirs[ret.unit] = append(heirs[ret.unit], unit)
			}
		}
	}
	work := m.allUnits()
	for len(work) > 0 {
		u := work[len(work)-1]
		work = work[:len(work)-1]
		for _, heir := range heirs[u] {
			set := follow[heir]
			if set.union(&follow[u]); set != follow[heir] {
				follow[heir] = set
				work = append(work, heir)
			}
		}
	}
	return follow
}
