package missratio

// thin lowers the rate until a sixth of the table is free, and drops the blocks that are
// no longer sampled.
func (c *Curve) thin() {
	base := c.take.base
	if base == everything {
		// Below this, the deepest octave there is gets thinner.
		base = 1
		for i := range c.table.entries {
			base = max(base, 1/thinning(int(c.table.entries[i].octave)))
		}
	}
	for left := c.table.n; left > c.cfg.Samples*5/6; {
		base *= 0.9
		c.take.set(base)
		left = 0
		for i := range c.table.entries {
			if c.sampled(&c.table.entries[i]) {
				left++
			}
		}
	}
	c.table.spare = c.table.spare[:0]
	for i := range c.table.entries {
		if e := &c.table.entries[i]; c.sampled(e) {
			c.table.spare = append(c.table.spare, *e)
		}
	}
	c.table.refill()
	if c.trust.base > base {
		c.trust.set(base)
	}
}

// sampled reports whether a tracked block is sampled at the present rate.
func (c *Curve) sampled(e *entry) bool { return e.hash != 0 && e.hash <= c.take.limit[e.octave] }

// compact makes room in the line and forgets the blocks that are too old for any capacity.
// If less than half of the samples remain, the rate rises.
func (c *Curve) compact() {
	clear(c.refers)
	for i := range c.table.entries {
		if e := &c.table.entries[i]; e.hash != 0 {
			c.refers[e.walk] = true
		}
	}
	moved := c.line.compact(c.cfg.MaxTokens, c.refers)
	c.table.spare = c.table.spare[:0]
	for i := range c.table.entries {
		if e := &c.table.entries[i]; e.hash != 0 && moved[e.walk] != forgotten {
			e.walk = moved[e.walk]
			c.table.spare = append(c.table.spare, *e)
		}
	}
	c.table.refill()
	switch {
	case c.trust.base < c.take.base:
		// A block that would not have been sampled before the rise may be absent without
		// being new, until all walks from before the rise are gone.
		if c.raised = moved[c.raised]; c.raised == forgotten {
			c.trust.set(c.take.base)
		}
	case c.take.base < everything && c.table.n < c.cfg.Samples/2:
		c.take.set(min(2*c.take.base, everything))
		c.raised = uint32(len(c.line.walks) - 1)
	}
}
