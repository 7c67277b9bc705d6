package schedtest

import (
	"fmt"

	"github.com/coppice-llm/coppice/scheduler"
)

// shares holds the policy DLPM to its promise: of any two tenants of whom somebody
// could be taken all the time, the one was not served much more than the other, in
// whatever stretch of time. What is much stands at [scheduler.DLPM].
type shares struct {
	blind
	r      *rig
	prompt int // longest
	output int // longest
	pairs  map[[2]string]*stretch
	round  int
}

// stretch is a time in which both of two tenants could be served.
type stretch struct {
	least, most int // served tokens of the one less those of the other
	round       int // when it was last seen
}

func newShares(r *rig) *shares { return &shares{r: r, pairs: map[[2]string]*stretch{}} }

func (*shares) name() string { return "shares" }

func (c *shares) added(o *order, err error) error {
	if err == nil {
		c.prompt, c.output = max(c.prompt, len(o.req.Prompt)), max(c.output, o.limit)
	}
	return nil
}

// eligible tells whether somebody of a tenant could be taken next: one that follows
// a prompt in flight can't, and one that does not fit is passed over.
func (c *shares) eligible(tenant string) bool {
	for _, o := range c.r.book.live {
		if o.req.Tenant != tenant {
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

func (c *shares) settled() error {
	cfg := &c.r.cfg
	if cfg.Policy != scheduler.DLPM || cfg.Tenant.MaxRunning > 0 {
		return nil
	}
	c.round++
	bound := 2 * (cfg.Quantum + c.prompt + cfg.MaxRunning*c.output)
	all := c.r.sched.Tenants()
	for i := range all {
		for j := range i {
			a, b := &all[j], &all[i]
			if !c.eligible(a.Tenant) || !c.eligible(b.Tenant) {
				continue
			}
			d := int(a.ServedTokens) - int(b.ServedTokens)
			s := c.pairs[[2]string{a.Tenant, b.Tenant}]
			if s == nil || s.round != c.round-1 {
				s = &stretch{least: d, most: d}
				c.pairs[[2]string{a.Tenant, b.Tenant}] = s
			}
			s.round, s.least, s.most = c.round, min(s.least, d), max(s.most, d)
			c.r.report.Unfair = max(c.r.report.Unfair, float64(s.most-s.least)/float64(bound))
			if s.most-s.least > bound {
				return fmt.Errorf("tenants %q and %q both wait, and what they are served differs by %d tokens, want at most %d",
					a.Tenant, b.Tenant, s.most-s.least, bound)
			}
		}
	}
	return nil
}
