package missratio

// thin lowers take until at most five sixths of samples blocks are sampled, and drops
// the other blocks from the table.
func (c *Curve) thin() {
	base := c.take.base
	if base == everything {
		// Start at the highest base at which some tracked octave is thinned.
		base = 1
		for i := range c.table.entries {
			base = max(base, 1/thinning(int(c.table.entries[i].octave)))
		}
	}
	for left := c.table.n; left > c.cfg.samples*5/6; {
		base *= 0.9
		c.take.set(base)
		left = 0
		for i := range c.table.entries {
			if c.sampled(&c.table.entries[i]) {
				left++
			}
		}
	}
	c.table.filter(c.sampled)
	if c.trust.base > base {
		c.trust.set(base)
	}
}

// sampled reports whether e is a block that take samples.
func (c *Curve) sampled(e *entry) bool { return e.hash != 0 && e.hash <= c.take.limit[e.octave] }

// compact makes room in the line, and drops the blocks of walks that the line forgot. If
// less than half of samples blocks remain, it raises take.
func (c *Curve) compact() {
	clear(c.refers)
	for i := range c.table.entries {
		if e := &c.table.entries[i]; e.hash != 0 {
			c.refers[e.walk] = true
		}
	}
	moved := c.line.compact(c.cfg.maxTokens, c.refers)
	c.table.filter(func(e *entry) bool {
		e.walk = moved[e.walk]
		return e.walk != forgotten
	})
	switch {
	case c.trust.base < c.take.base:
		// A block that was not sampled before take rose may be missing in the table
		// although an old walk touched it. So trust rises only when the line has
		// forgotten all walks from before.
		if c.raised = moved[c.raised]; c.raised == forgotten {
			c.trust.set(c.take.base)
		}
	case c.take.base < everything && c.table.n < c.cfg.samples/2:
		c.take.set(min(2*c.take.base, everything))
		c.raised = uint32(len(c.line.walks) - 1)
	}
}
