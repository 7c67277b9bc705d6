package schedtest

import "github.com/coppice-llm/coppice/scheduler"

// shares checks the promise of policies that are fair: in any period in which a tenant has a waiting
// request that could be admitted, no other tenant is served more than it by more than the bound
// at [scheduler.DLPM]. It counts the service by plans and outputs.
type shares struct {
	watcher
	of      []*account // in order of the first request
	byName  map[string]*account
	charged map[*sample]int // un-cached prompt tokens of samples that have or had a slot
}

// account is the service that a tenant has received.
type account struct {
	name   string
	weight int
	served int // un-cached prompt tokens, from first admission on, and output tokens
	prompt int // longest un-cached prompt
	output int // longest output
	runs   int // maximum number of concurrent samples
	waits  bool
	least  map[*account]int // while the tenant waits: the lowest lead of each other tenant over it
}

// over returns the most tokens that a tenant may be served beyond its share.
func (a *account) over() int { return a.prompt + a.runs*a.output }

func newShares(r *rig) *shares {
	return &shares{watcher: watcher{r, "shares"}, byName: map[string]*account{}, charged: map[*sample]int{}}
}

func (c *shares) off() bool { return !c.r.cfg.Policy.Fair() }

func (c *shares) added(o *order, err error) {
	if err != nil || c.off() {
		return
	}
	a := c.byName[o.req.Tenant]
	if a == nil {
		a = &account{name: o.req.Tenant, weight: max(c.r.cfg.Tenants[o.req.Tenant].Weight, 1)}
		c.byName[a.name] = a
		c.of = append(c.of, a)
	}
	a.output = max(a.output, o.limit)
}

// planned charges tenants for the prompts that get a slot for the first time. It also ends
// the period of a tenant that waited, if none of its requests can be admitted after this
// plan. Such a tenant may have been skipped because its request began to wait for a fetch,
// and the fetch may end before the next check.
func (c *shares) planned(p *scheduler.Plan, _ []rowView) {
	if c.off() {
		return
	}
	runs := map[string]int{}
	cached := map[[2]uint64]int{}
	for _, run := range c.r.sched.Running(c.r.clock.Now(), nil) {
		runs[run.Tenant]++
		cached[[2]uint64{uint64(run.Request), uint64(run.Sample)}] = run.CachedTokens
	}
	for _, a := range c.of {
		a.runs = max(a.runs, runs[a.name])
	}
	for _, s := range c.r.book.bound(&p.Batch) {
		if _, known := c.charged[s]; s == nil || known {
			continue
		}
		n := len(s.of.req.Prompt) - cached[[2]uint64{uint64(s.of.req.ID), uint64(s.index)}]
		a := c.byName[s.of.req.Tenant]
		a.served, a.prompt, c.charged[s] = a.served+n, max(a.prompt, n), n
	}
	for _, a := range c.of {
		a.waits = a.waits && c.choosable(a.name)
	}
}

// told charges for outputs. It takes back the charge for prompt tokens that were not computed;
// the tenant has lost its turn for them, so a new period begins.
func (c *shares) told(s *sample, o *scheduler.Output) {
	if s == nil || c.off() {
		return
	}
	a := c.byName[s.of.req.Tenant]
	if o.Sampled {
		a.served++
	}
	if o.Ending.Reason == scheduler.NotEnded {
		return
	}
	if n := c.charged[s] - o.Ending.ComputedTokens; n != 0 {
		a.served -= n
		a.waits = false
	}
	delete(c.charged, s)
}

// choosable reports whether a request of a tenant could be admitted next. A request can't
// if it waits for a prefix being computed or for a fetch, or does not fit. choosable
// ignores requests that would be long without the cache: the queue knows their cached
// length only in blocks of 64 tokens, and at most two long ones are computed at a time.
func (c *shares) choosable(tenant string) bool {
	for _, o := range c.r.book.live {
		if o.req.Tenant != tenant || c.long(len(o.req.Prompt)+o.limit) {
			continue
		}
		for _, w := range c.r.sched.Why(o.req.ID) {
			if w.Cause == scheduler.AwaitsTurn || w.Cause == scheduler.AwaitsSlot {
				return true
			}
		}
	}
	return false
}

// long reports whether n tokens without cached ones cost more than four whole steps.
func (c *shares) long(n int) bool {
	cost, k := n, c.r.cfg.AttentionTokens
	if k > 0 {
		cost += (n*n + 2*k - 1) / (2 * k)
	}
	return cost > 4*c.r.cfg.StepTokens
}

func (c *shares) settled() {
	if c.off() || c.r.lost != nil {
		return
	}
	for _, u := range c.r.sched.Tenants() {
		if a := c.byName[u.Tenant]; a == nil || u.ServedTokens > uint64(a.served) {
			c.failf("tenant %q was served %d tokens by the metrics, counted %+v", u.Tenant, u.ServedTokens, a)
		}
	}
	for _, a := range c.of {
		if !c.choosable(a.name) {
			a.waits = false
			continue
		}
		if !a.waits {
			a.waits, a.least = true, map[*account]int{}
		}
		for _, b := range c.of {
			c.compare(a, b)
		}
	}
}

// compare returns an error if b was served too much more than a since a began to wait. It
// multiplies both tenants' figures by both weights, so that they can be compared.
func (c *shares) compare(a, b *account) {
	lead := b.served*a.weight - a.served*b.weight
	least, known := a.least[b]
	if !known || lead < least {
		least = lead
		a.least[b] = lead
	}
	bound := 2*c.r.cfg.Quantum*a.weight*b.weight + a.over()*b.weight + b.over()*a.weight
	c.r.report.Unfair = max(c.r.report.Unfair, float64(lead-least)/float64(bound))
	if lead-least <= bound {
		return
	}
	c.failf("tenant %q waits (weight %d, served %d) while %q (weight %d, served %d) is ahead by %d tokens times both weights, want at most %d",
		a.name, a.weight, a.served, b.name, b.weight, b.served, lead-least, bound)
}
