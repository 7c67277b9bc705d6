package grammar

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
)

// automaton holds a unit's nodes before they join the machine; node 0 is the start.
type automaton struct {
	final []bool
	edges [][]edge // by node: disjoint and ascending if deterministic
	calls [][]call
}

// subset makes an nfa deterministic by the subset construction, one node at a time. If the
// automaton gets more nodes than the field most allows (4 for each state of the nfa, and
// Limits.slack), subset starts again and only removes the epsilon arcs. The result may then have
// several edges by one byte, and the machine follows several nodes of the unit at once.
type subset struct {
	nfa   *nfa
	known map[string]int32
	sets  [][]int32 // by node: its states that have arcs by bytes or calls, or are the end; ascending
	out   automaton
	done  int // nodes whose edges are complete
	limit int // most nodes, before ErrTooLarge
	most  int // most nodes of a deterministic automaton

	plain bool // not deterministic; nodes are the nfa's states from then on
	count int  // if plain: nodes plus a sixteenth of their edges
	moves int  // states and arcs visited by all closures, to count work

	stamp   []int32
	now     int32
	stack   []int32
	targets []int32
	key     []byte
}

func newSubset(n *nfa, limits Limits) *subset {
	s := &subset{nfa: n, known: map[string]int32{}, limit: limits.Nodes, most: 4*len(n.head) + limits.slack, stamp: make([]int32, len(n.head))}
	s.node(s.closure(0))
	return s
}

// run does about *work units of work, one per node, lowers *work by the work done, and reports
// whether the automaton is complete. The error wraps ErrTooLarge.
func (s *subset) run(work *int) (done bool, err error) {
	if s.plain {
		return s.withoutSkips(work)
	}
	for s.done < len(s.sets) && *work > 0 {
		if len(s.sets) > s.most {
			s.out, s.done, s.plain = automaton{}, 0, true
			return s.withoutSkips(work)
		}
		if len(s.sets) > s.limit {
			return false, errNodes(s.limit)
		}
		*work -= s.expand(s.done)
		s.done++
	}
	return s.done == len(s.sets), nil
}

func errNodes(limit int) error {
	return fmt.Errorf("%w: automata of over %d nodes, or 16 edges for each (Limits.Nodes): use smaller repeats or fewer alternatives", ErrTooLarge, limit)
}

// closure returns the states that can be reached from states by epsilon arcs, sorted. It leaves
// out states that have only epsilon arcs, but keeps state 1, the end. The slice is valid until
// the next call.
func (s *subset) closure(states ...int32) []int32 {
	s.now++
	s.stack = s.stack[:0]
	for _, n := range states {
		if s.stamp[n] != s.now {
			s.stamp[n] = s.now
			s.stack = append(s.stack, n)
		}
	}
	set := s.targets[:0]
	for len(s.stack) > 0 {
		n := s.stack[len(s.stack)-1]
		s.stack = s.stack[:len(s.stack)-1]
		matters := n == 1
		s.moves++
		for a := s.nfa.head[n]; a >= 0; a = s.nfa.arcs[a].next {
			s.moves++
			arc := &s.nfa.arcs[a]
			if arc.target != byNothing {
				matters = true
			} else if s.stamp[arc.to] != s.now {
				s.stamp[arc.to] = s.now
				s.stack = append(s.stack, arc.to)
			}
		}
		if matters {
			set = append(set, n)
		}
	}
	slices.Sort(set)
	s.targets = set
	return set
}

// node returns the number of the node for set, a result of closure. It adds the node if it is
// new.
func (s *subset) node(set []int32) int32 {
	s.key = s.key[:0]
	for _, n := range set {
		s.key = binary.LittleEndian.AppendUint32(s.key, uint32(n))
	}
	if i, known := s.known[string(s.key)]; known {
		return i
	}
	i := int32(len(s.sets))
	s.known[string(s.key)] = i
	s.sets = append(s.sets, slices.Clone(set))
	return i
}

// expand appends the edges and calls of node i to the automaton and returns the work that this
// took.
func (s *subset) expand(i int) int {
	moves, byTarget := s.moves, map[int32][]int32{}
	bytes, targets, isFinal := s.leaving(s.sets[i])
	for _, a := range targets {
		byTarget[a.target] = append(byTarget[a.target], a.to)
	}
	var calls []call
	for _, t := range slices.Sorted(maps.Keys(byTarget)) {
		calls = append(calls, call{t, s.node(s.closure(byTarget[t]...))})
	}
	edges, work := s.byteEdges(bytes)
	s.add(isFinal, edges, calls)
	return 1 + (work+s.moves-moves)/16
}

// leaving returns the arcs by bytes and those by calls that leave a set of states, and reports whether one of the states is
// final.
func (s *subset) leaving(states []int32) (bytes, targets []arc, isFinal bool) {
	for _, n := range states {
		isFinal = isFinal || n == 1
		for a := s.nfa.head[n]; a >= 0; a = s.nfa.arcs[a].next {
			switch arc := s.nfa.arcs[a]; {
			case arc.target == byBytes:
				bytes = append(bytes, arc)
			case arc.target >= 0:
				targets = append(targets, arc)
			}
		}
	}
	return bytes, targets, isFinal
}

// add appends a node to the automaton.
func (s *subset) add(isFinal bool, edges []edge, calls []call) {
	s.out.final = append(s.out.final, isFinal)
	s.out.edges = append(s.out.edges, edges)
	s.out.calls = append(s.out.calls, calls)
}

// byteEdges merges arcs by bytes into edges that are disjoint and ascending: it cuts the bytes at
// every bound of an arc, and joins neighbouring ranges that lead to the same node. work is the
// number of arcs that it has looked at.
func (s *subset) byteEdges(arcs []arc) (edges []edge, work int) {
	var cut [257]bool
	for _, a := range arcs {
		cut[a.lo], cut[int(a.hi)+1] = true, true
	}
	var to []int32
	for lo := 0; lo < 256; {
		hi := lo
		for hi < 255 && !cut[hi+1] {
			hi++
		}
		to = to[:0]
		for _, a := range arcs {
			if int(a.lo) <= lo && hi <= int(a.hi) {
				to = append(to, a.to)
			}
		}
		work += len(arcs)
		if len(to) > 0 {
			next := s.node(s.closure(to...))
			if n := len(edges); n > 0 && edges[n-1].to == next && int(edges[n-1].hi) == lo-1 {
				edges[n-1].hi = byte(hi)
			} else {
				edges = append(edges, edge{byte(lo), byte(hi), next})
			}
		}
		lo = hi + 1
	}
	return edges, work
}

// withoutSkips is run for an automaton that is not deterministic: it makes one node of each state
// of the nfa, with all arcs of the state's epsilon closure.
func (s *subset) withoutSkips(work *int) (done bool, err error) {
	for ; s.done < len(s.nfa.head) && *work > 0; s.done++ {
		var edges []edge
		var calls []call
		moves := s.moves
		bytes, targets, isFinal := s.leaving(s.closure(int32(s.done)))
		for _, a := range bytes {
			edges = append(edges, edge{a.lo, a.hi, a.to})
		}
		for _, a := range targets {
			calls = append(calls, call{a.target, a.to})
		}
		if s.count += 1 + (len(edges)+len(calls))/16; s.count > s.limit {
			return false, errNodes(s.limit)
		}
		*work -= 1 + (len(edges)+s.moves-moves)/16
		s.add(isFinal, edges, calls)
	}
	return s.done == len(s.nfa.head), nil
}

// trim removes edges and calls to nodes from which no final node can be reached.
func (a *automaton) trim() {
	n := len(a.final)
	from := make([][]int32, n)
	var finals []int32
	for i := range n {
		for _, e := range a.edges[i] {
			from[e.to] = append(from[e.to], int32(i))
		}
		for _, c := range a.calls[i] {
			from[c.ret] = append(from[c.ret], int32(i))
		}
		if a.final[i] {
			finals = append(finals, int32(i))
		}
	}
	reached, _ := postorder(n, finals, func(i int32) []int32 { return from[i] })
	alive := make([]bool, n)
	for _, i := range reached {
		alive[i] = true
	}
	for i := range n {
		a.edges[i] = slices.DeleteFunc(a.edges[i], func(e edge) bool { return !alive[e.to] })
		a.calls[i] = slices.DeleteFunc(a.calls[i], func(c call) bool { return !alive[c.ret] })
	}
}

// prefixFree reports whether no text of the unit is a proper prefix of another: no final node
// has edges or calls. The end of such a unit is known without looking ahead.
func (a *automaton) prefixFree() bool {
	for i, f := range a.final {
		if f && (len(a.edges[i]) > 0 || len(a.calls[i]) > 0) {
			return false
		}
	}
	return true
}
