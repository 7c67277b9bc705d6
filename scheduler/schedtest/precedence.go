package schedtest

import "github.com/coppice-llm/coppice/scheduler"

// precedence checks the reason of each preemption. Under a policy that preempts, a sequence
// may be preempted for a waiting one whose priority exceeds its own by the threshold. Under
// every policy it may be preempted for a running one that needs a page and whose priority
// is not lower. No sample may be preempted twice without a token in between.
type precedence struct {
	watcher
	ran map[*sample]bool // samples that had a slot at the previous check
}

// running lists the samples that have a slot, as reported by the scheduler.
func (r *rig) running() map[*sample]bool {
	set := map[*sample]bool{}
	for _, run := range r.sched.Running(r.clock.Now(), nil) {
		if o := r.book.byID[run.Request]; o != nil {
			set[o.samples[run.Sample]] = true
		}
	}
	return set
}

func (c *precedence) planned(p *scheduler.Plan, _ []rowView) {
	before := c.ran
	c.ran = c.r.running()
	for v := range c.r.book.liveSamples() {
		if !before[v] || c.ran[v] || v.ended {
			continue
		}
		if v.binds > 1 && v.tokens() == v.target {
			c.failf("plan %d: %s was preempted again before it sampled", p.Batch.Seq, label(v))
		}
		if !c.justified(v, before) {
			c.failf("plan %d: request %d of priority %d was preempted, but no request of that priority, nor a waiting one that exceeds it by %d, took its place",
				p.Batch.Seq, v.of.req.ID, v.of.req.Priority, c.r.cfg.PreemptThreshold)
		}
	}
}

// justified reports whether there was a reason to preempt v. One reason is a sample that
// got a slot in this plan and whose priority exceeds that of v by the threshold, under a
// policy that preempts. Another is a sample, possibly v itself, of no lower priority that had a
// slot and needs a page. before has the samples that had a slot before the plan.
func (c *precedence) justified(v *sample, before map[*sample]bool) bool {
	cfg, lowest := &c.r.cfg, int(v.of.req.Priority)
	for s := range c.r.book.liveSamples() {
		switch priority := int(s.of.req.Priority); {
		case c.ran[s] && !before[s]:
			if cfg.Policy.Preempts() && priority-lowest >= cfg.PreemptThreshold {
				return true
			}
		case before[s] && s.computed >= s.target && s.computed%c.r.info.PageTokens == 0:
			if priority >= lowest {
				return true
			}
		}
	}
	return false
}

func (c *precedence) settled() {
	c.ran = c.r.running()
}
