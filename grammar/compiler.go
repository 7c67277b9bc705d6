package grammar

// Compiler compiles rules in small steps, so that its caller can look at a clock
// between them. It belongs to one goroutine at a time.
type Compiler struct {
	v      *Vocabulary
	limits Limits
	plan   *plan
	subset *subset // of plan.jobs[0]
	walker *walker
	g      *Grammar
	err    error
}

// NewCompiler begins to compile rules for the tokens of v. The rules are read here
// alone, at about a microsecond for each expression. Errors: those of
// [Rules.Validate], under limits; [ErrNothing] also where the tokens of v lack bytes
// that every text of the rules has.
func NewCompiler(v *Vocabulary, rules Rules, limits Limits) (*Compiler, error) {
	limits = limits.WithDefaults()
	t, err := newTerms(rules, limits, v.written)
	if err != nil {
		return nil, err
	}
	return &Compiler{v: v, limits: limits, plan: newPlan(t, limits)}, nil
}

// Run does about work units of what is left to do, each a fraction of a microsecond,
// and says whether all is done. A unit that is put into states for the first time is
// one piece of work, of at most some Limits.Nodes units. Errors: [ErrTooLarge], and
// the same again from then on.
func (c *Compiler) Run(work int) (done bool, err error) {
	for work > 0 && c.g == nil && c.err == nil {
		switch {
		case c.walker != nil:
			done, c.err = c.walker.run(&work)
			if done && c.err == nil {
				c.g = newGrammar(c.walker)
				c.plan, c.walker = nil, nil
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
	return c.g != nil, c.err
}

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

// Grammar is what was compiled, nil before Run said that it is done.
func (c *Compiler) Grammar() *Grammar { return c.g }
