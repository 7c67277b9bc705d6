package grammar

// Compiler compiles rules in small steps, so that its caller can check a deadline between
// them. It may be used by one goroutine at a time.
type Compiler struct {
	v      *Vocabulary
	limits Limits
	plan   *plan
	subset *subset // the automaton of plan.jobs[0], in construction
	walker *walker
	free   *free // nil: none
	g      *Grammar
	err    error
}

// NewCompiler prepares to compile rules for the tokens of v. It reads the rules completely,
// which takes about a microsecond per expression; Run does not use them again. Errors are
// those of [Rules.Validate], under limits, and [ErrNothing] also if every text of the rules
// needs a byte that no token of v has.
func NewCompiler(v *Vocabulary, rules Rules, limits Limits) (*Compiler, error) {
	limits = limits.WithDefaults()
	t, err := newTerms(rules, limits, v.written, v.contents())
	if err != nil {
		return nil, err
	}
	return &Compiler{v: v, limits: limits, plan: newPlan(t, limits)}, nil
}

// Around makes the grammar one of free text around texts of the rules, which must be such that no
// text of them begins another. Call it before Run. The error wraps [ErrInvalid] or [ErrTooLarge].
func (c *Compiler) Around(f Free) (err error) {
	c.free, err = newFree(f)
	return err
}

// Run continues the compilation and reports whether the grammar is complete. It does about as
// many units of work as the parameter work says; a unit takes a fraction of a microsecond. Run
// can do more: it does not stop while it builds the NFA of one automaton, which takes up to about
// Limits.Nodes units. The error wraps [ErrTooLarge]; later calls return it again.
func (c *Compiler) Run(work int) (done bool, err error) {
	for work > 0 && c.g == nil && c.err == nil {
		switch {
		case c.walker != nil:
			done, c.err = c.walker.run(&work)
			if done && c.err == nil {
				c.g = newGrammar(c.walker)
				c.plan, c.walker = nil, nil
				if c.free != nil {
					c.err = c.g.surround(c.free)
				}
			}
		case c.subset != nil:
			c.err = c.construct(&work)
		case len(c.plan.jobs) > 0:
			c.subset, c.err = c.plan.build(c.plan.jobs[0])
			if c.subset != nil {
				work -= len(c.subset.nfa.arcs) / 8
			}
		case int(c.plan.next) < len(c.plan.terms.all):
			c.plan.decide()
			work--
		default:
			m := c.plan.machine
			m.root = m.units[c.plan.ruleUnit[0]].start
			m.link()
			work -= len(m.edges) / 8
			c.walker = newWalker(m, c.v, c.limits)
		}
	}
	return c.g != nil && c.err == nil, c.err
}

// construct continues the automaton of the first job in plan.jobs and lowers *work by the work
// done. When the automaton is complete, it finishes the job.
func (c *Compiler) construct(work *int) error {
	done, err := c.subset.run(work)
	if !done || err != nil {
		return err
	}
	j := c.plan.jobs[0]
	c.plan.jobs = c.plan.jobs[1:]
	a := &c.subset.out
	c.subset = nil
	return c.plan.finish(j, a)
}

// Grammar returns the compiled grammar; nil until Run has returned true.
func (c *Compiler) Grammar() *Grammar { return c.g }
