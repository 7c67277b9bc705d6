package grammar

import "github.com/coppice-llm/coppice/internal/bail"

const (
	maxHeight   = 1000    // nesting of terms in one unit
	callSize    = 10      // a term used more than once may become a unit if it has this many states
	inlineTotal = 1 << 12 // it is inlined if not prefix-free and its copies have at most these in all
)

// plan decides which terms become units: recursive rules, bodies of long repeats, and terms
// that are used often and are prefix-free or large. A unit is walked over the vocabulary only
// once, however often it is called. But if it is not prefix-free, a caller has to follow two
// stacks, one within it and one after it; such a term is inlined where its copies are small.
type plan struct {
	terms    *terms
	limits   Limits
	machine  *machine
	unitOf   []int32          // by term: its unit, -1 for none
	ruleUnit map[int32]int32  // unit of each rule that is called
	counters map[int32]target // target of each Repeat that counts
	bodies   map[int32]int32  // counting unit of each term that is the body of one
	size     []int            // by term: states that it adds to the unit around it
	height   []int32          // by term: its nesting within that unit
	ids      map[target]int32
	next     int32 // the next term to decide about
	jobs     []job
}

// job is a unit to build. If unit is [candidate], finish decides after building whether the
// term becomes a unit.
type job struct {
	term, unit int32
	counting   bool
	uses       int // of a candidate: states of all its copies if it is inlined
}

const candidate = -1

// newPlan makes units of rule 0 and of all rules that terms still call. Only recursive rules are
// still called: newTerms has replaced the other calls.
func newPlan(t *terms, limits Limits) *plan {
	p := &plan{
		terms: t, limits: limits, machine: &machine{},
		unitOf: make([]int32, len(t.all)), size: make([]int, len(t.all)), height: make([]int32, len(t.all)),
		ruleUnit: map[int32]int32{}, counters: map[int32]target{}, bodies: map[int32]int32{}, ids: map[target]int32{},
	}
	for i := range p.unitOf {
		p.unitOf[i] = -1
	}
	p.unitOf[t.roots[0]] = p.newUnit()
	p.ruleUnit[0] = p.unitOf[t.roots[0]]
	for i := range t.all {
		if x := &t.all[i]; x.op == Call {
			root := x.sub[0]
			if p.unitOf[root] < 0 {
				p.unitOf[root] = p.newUnit()
			}
			p.ruleUnit[x.rule] = p.unitOf[root]
		}
	}
	return p
}

func (p *plan) newUnit() int32 {
	p.machine.units = append(p.machine.units, unit{start: -1})
	return int32(len(p.machine.units) - 1)
}

// target returns the index of t in machine.targets, which it adds if it is new.
func (p *plan) target(t target) int32 {
	id, known := p.ids[t]
	if !known {
		id = int32(len(p.machine.targets))
		p.ids[t] = id
		p.machine.targets = append(p.machine.targets, t)
	}
	return id
}

// decide decides whether term p.next becomes a unit and appends the jobs for it. The parts of the
// term were decided before.
func (p *plan) decide() {
	i := p.next
	p.next++
	p.measure(i)
	switch {
	case p.unitOf[i] >= 0:
		p.becomes(i, p.unitOf[i])
	case !p.terms.nonEmpty[i] || p.terms.all[i].op == Call || p.counts(i):
	case p.height[i] > maxHeight:
		p.becomes(i, p.newUnit())
	case p.terms.uses[i] > 1 && p.size[i] >= callSize && p.terms.all[i].op != Text:
		p.jobs = append(p.jobs, job{term: i, unit: candidate, uses: int(p.terms.uses[i]) * p.size[i]})
	}
}

// counts reports whether term i is a repeat that counts.
func (p *plan) counts(i int32) bool {
	_, counts := p.counters[i]
	return counts
}

// becomes makes term i the unit with index unit.
func (p *plan) becomes(i, unit int32) {
	p.unitOf[i] = unit
	p.jobs = append(p.jobs, job{term: i, unit: unit})
	p.size[i], p.height[i] = 1, 1
}

// measure sets size and height of term i and decides whether it is a repeat that counts.
func (p *plan) measure(i int32) {
	const most = 1 << 40
	x := &p.terms.all[i]
	size, height := 1, int32(0)
	switch x.op {
	case Text:
		size = len(x.text)
	case Special:
		size = 2 * len(x.text)
	case Runes:
		for _, r := range x.runes {
			if r.Hi > 0x7F {
				size += 3
			}
		}
	case Seq, Either, Repeat:
		for _, s := range x.sub {
			size = min(size+p.size[s], most)
			height = max(height, p.height[s])
		}
	}
	if x.op == Repeat {
		if copies := int(max(x.min, x.max)); copies > 1 {
			if x.max == Unlimited {
				copies++
			}
			if copies*size > p.limits.unroll && p.terms.nonEmpty[x.sub[0]] {
				p.count(i)
				size, height = 1, 0
			} else {
				size *= copies
			}
		}
	}
	p.size[i], p.height[i] = size, height+1
}

// count makes the body of repeat i a counting unit, if another repeat has not done so, and sets
// the repeat's target.
func (p *plan) count(i int32) {
	x := &p.terms.all[i]
	body := x.sub[0]
	unit, known := p.bodies[body]
	if !known {
		unit = p.newUnit()
		p.bodies[body] = unit
		p.jobs = append(p.jobs, job{term: body, unit: unit, counting: true})
	}
	t := target{unit, x.min, x.max}
	if t.most == Unlimited {
		t.most = forever
	}
	if p.terms.nullable[body] {
		t.least = 0
	}
	p.counters[i] = t
}

// build builds the nfa of a job and returns the construction of its automaton.
func (p *plan) build(j job) (_ *subset, err error) {
	defer bail.Recover(&err)
	b := thompson{newNFA(), p}
	put := b.putOpen
	if j.counting {
		put = b.put // the body may also be a plain unit, which is then called
	}
	put(j.term, 0, 1)
	return newSubset(b.nfa, p.limits), nil
}

// finish completes a job whose automaton is a: it joins a to the machine, or drops it if the
// job's term is a candidate that is better inlined.
func (p *plan) finish(j job, a *automaton) error {
	a.trim()
	if j.unit == candidate {
		if !a.prefixFree() && j.uses <= inlineTotal {
			return nil
		}
		j.unit = p.newUnit()
		p.unitOf[j.term] = j.unit
		p.size[j.term], p.height[j.term] = 1, 1
	}
	return p.machine.join(j, a, p.limits.Nodes)
}

// join appends the nodes of automaton a to the machine, as the unit of job j. A counting unit
// gets a copy of its first node as start, flagged boundary. The error wraps ErrTooLarge if the
// machine then exceeds limit nodes, counted as in Limits.Nodes.
func (m *machine) join(j job, a *automaton, limit int) error {
	base := int32(len(m.nodes))
	add := func(i int, f flags) {
		n := node{edge: int32(len(m.edges)), call: int32(len(m.calls)), unit: j.unit, flags: f}
		for _, e := range a.edges[i] {
			m.edges = append(m.edges, edge{e.lo, e.hi, e.to + base})
		}
		for _, c := range a.calls[i] {
			m.calls = append(m.calls, call{c.target, c.ret + base})
		}
		n.edgeEnd, n.callEnd = int32(len(m.edges)), int32(len(m.calls))
		m.nodes = append(m.nodes, n)
	}
	for i, isFinal := range a.final {
		f := flags(0)
		if isFinal && j.counting {
			f = tick
		} else if isFinal {
			f = final
		}
		add(i, f)
	}
	m.units[j.unit].start = base
	if j.counting {
		m.units[j.unit].start = int32(len(m.nodes))
		add(0, boundary)
	}
	if len(m.nodes)+(len(m.edges)+len(m.calls))/16 > limit {
		return errNodes(limit)
	}
	return nil
}
