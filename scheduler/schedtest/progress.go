package schedtest

import (
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/scheduler"
)

// progress checks that every wait has a cause and ends.
type progress struct {
	watcher

	messages int             // messages since the last event other than mail
	idle     int             // settled calls since the last plan began or ended
	drainAt  int             // plan at which arrivals ended
	drain    int             // maximum number of plans for the requests open then; 0 while requests arrive
	passed   map[*sample]int // by waiting sample: later samples that were admitted before it
	again    map[*sample]int // by waiting sample: admissions of earlier samples that had been preempted
}

// These limits are far beyond what correct runs need; with a bug, waits are unbounded.
const (
	maxIdle   = 5000 // arrivals and messages during one plan
	drainSlow = 8    // plans for each token still to be generated
)

func (c *progress) moved() { c.messages, c.idle = 0, 0 }

func (c *progress) added(*order, error)             { c.messages = 0 }
func (c *progress) aborted(*order)                  { c.messages = 0 }
func (c *progress) told(*sample, *scheduler.Output) { c.messages = 0 }
func (c *progress) completed(uint64)                { c.moved() }

// planned counts, for each waiting request, the later ones that have overtaken it.
func (c *progress) planned(p *scheduler.Plan, rows []rowView) {
	c.moved()
	if c.passed == nil {
		c.passed, c.again = map[*sample]int{}, map[*sample]int{}
	}
	for _, s := range c.r.book.bound(&p.Batch) {
		if s == nil {
			continue
		}
		if s.binds > 0 {
			c.readmitted(s)
			continue
		}
		delete(c.passed, s)
		delete(c.again, s)
		for _, o := range c.r.book.live {
			if o == s.of {
				break
			}
			older := o.samples[0]
			if older.binds > 0 || older.ended || boundIn(p, older) || c.r.lower.reading(o) {
				continue
			}
			c.passed[older]++
			if n, bound := c.passed[older], c.overtakers(o); bound > 0 {
				c.r.report.Longest = max(c.r.report.Longest, float64(n)/float64(bound))
				if n > bound {
					c.failf("request %d waits while %d later ones are served, want at most %d", o.req.ID, n, bound)
				}
			}
		}
	}
}

// readmitted counts, for each waiting request that is later than s, that s was preempted and is
// admitted again.
func (c *progress) readmitted(s *sample) {
	for _, o := range slices.Backward(c.r.book.live) {
		if o == s.of {
			return
		}
		if later := o.samples[0]; later.binds == 0 {
			c.again[later]++
		}
	}
}

func boundIn(p *scheduler.Plan, s *sample) bool {
	return slices.ContainsFunc(p.Batch.Binds, func(b engine.SlotBind) bool { return b.Sampling.Seed == s.seed })
}

// overtakers returns how many later samples may be admitted before the samples of o:
// MaxBypass while o does not fit; those admitted while o waits for the same prefix to be
// computed; and those that the policy prefers. Those admitted while a part of o's prompt is read from a lower tier don't count:
// o may wait for it until the read's deadline, however many are served. Each OldestEvery-th admission goes to the
// oldest, and counts as a bypass if the oldest does not fit, so the policy's preference is
// bounded too. An older request that is preempted may be the oldest several times: if
// the policy preempts, once for each of its tokens. The result 0 means no bound: under a policy that is fair to tenants,
// and not to requests, and for tenants with a limit.
func (c *progress) overtakers(o *order) int {
	cfg := &c.r.cfg
	if cfg.Policy.Fair() || cfg.Tenant.MaxRunning > 0 {
		return 0
	}
	n := cfg.MaxBypass + followers*cfg.MaxRunning
	if cfg.Policy.Starves() {
		n += cfg.OldestEvery * (cfg.MaxBypass + o.older + c.again[o.samples[0]] + len(o.samples))
	}
	return n
}

const followers = 8

func (c *progress) posted() {
	if c.messages++; c.messages > 4*c.r.info.NumPages+20 {
		c.failf("%d messages between pool and scheduler without other progress", c.messages)
	}
}

func (c *progress) settled() {
	r := c.r
	open := len(r.book.live)
	if open == 0 {
		return
	}
	if len(r.flights) == 0 && r.mail.underway == 0 && !r.lower.busy() {
		c.failf("%d requests are open without a plan, result or page in flight", open)
	}
	if c.idle++; c.idle > maxIdle {
		c.failf("%d requests are open, but no plan began or ended in %d events", open, c.idle)
	}
	if c.drain > 0 && r.plans-c.drainAt > c.drain {
		c.failf("%d requests are open %d plans after the last arrival, want 0", open, r.plans-c.drainAt)
	}
}

// stopped is called when no more requests will arrive.
func (c *progress) stopped() {
	c.drainAt, c.drain = c.r.plans, 100
	for _, o := range c.r.book.live {
		c.drain += drainSlow * o.run()
	}
}

// dry is called when no event is left on the clock. It returns an error if a request is
// open.
func (c *progress) dry() {
	if open := len(c.r.book.live); open > 0 {
		c.failf("%d requests are open, %d plans run, and nothing more will happen", open, len(c.r.flights))
	}
}
