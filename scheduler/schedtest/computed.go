package schedtest

import (
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/scheduler"
)

// computed checks token counts: the backend must report the planned tokens, and the scheduler's
// metrics must agree with its plans.
type computed struct {
	watcher
	counts        scheduler.Metrics // the expected metrics
	withoutRow    int               // samples that were bound and have had no row yet
	cachedUnknown bool              // a sample lost its slot before its first row
}

func (c *computed) added(_ *order, err error) {
	if err == nil {
		c.counts.Requests++
	}
}

func (c *computed) planned(p *scheduler.Plan, rows []rowView) {
	c.counts.Steps++
	c.counts.Rows += uint64(len(rows))
	for _, s := range c.r.book.bound(&p.Batch) {
		c.bind(s)
	}
	for _, v := range rows {
		s := v.of
		start, end := int(v.row.Start), int(v.row.Start)+v.row.Own()
		reached := s.reached
		if v.fresh {
			reached = max(reached, s.computed)
			if v.first {
				c.counts.CachedTokens += uint64(start)
				c.withoutRow--
			}
		}
		c.counts.RecomputedTokens += uint64(max(min(end, reached)-start, 0))
	}
}

// bind counts the prompt of s at its first admission. The number of its cached tokens is
// known from its first row, or from its bill if it never gets a row.
func (c *computed) bind(s *sample) {
	switch {
	case s == nil:
	case s.binds == 0:
		c.counts.PromptTokens += uint64(len(s.of.req.Prompt))
		c.withoutRow++
	case !s.ranSince:
		c.cachedUnknown = true
	}
}

func (c *computed) resulted(f *flight, res *engine.Result, err error) {
	if err != nil {
		return
	}
	st := &res.Stats
	if ran := st.GivenTokens + st.DeferredTokens; ran != f.tokens || st.CopiedPages != f.copies || res.Seq != f.seq {
		c.failf("plan %d has %d tokens and %d copies, the backend ran %d and %d as plan %d",
			f.seq, f.tokens, f.copies, ran, st.CopiedPages, res.Seq)
	}
	if !c.r.opts.Faults && st.Samples-st.Confirmed != f.samples || st.Drafted != f.drafted {
		c.failf("plan %d samples %d tokens and has %d drafts, the backend %d and %d", f.seq, f.samples, f.drafted, st.Samples-st.Confirmed, st.Drafted)
	}
}

func (c *computed) told(s *sample, o *scheduler.Output) {
	if o.Sampled {
		c.counts.OutputTokens++
	}
	if r := o.Ending.Reason; r != scheduler.NotEnded {
		c.counts.Endings[r]++
		if s != nil && s.binds > 0 && s.cached < 0 {
			c.counts.CachedTokens += uint64(o.Ending.CachedTokens)
			c.withoutRow--
		}
	}
}

func (c *computed) settled() {
	m, want := c.r.sched.Metrics(), c.counts
	if c.withoutRow > 0 {
		want.CachedTokens = m.CachedTokens // the cached tokens of samples without a row are not known yet
	}
	if c.cachedUnknown {
		want.RecomputedTokens = m.RecomputedTokens
	}
	type pair struct {
		what      string
		got, want uint64
	}
	for _, p := range [...]pair{
		{"requests", m.Requests, want.Requests},
		{"steps", m.Steps, want.Steps},
		{"rows", m.Rows, want.Rows},
		{"prompt tokens", m.PromptTokens, want.PromptTokens},
		{"cached tokens", m.CachedTokens, want.CachedTokens},
		{"recomputed tokens", m.RecomputedTokens, want.RecomputedTokens},
		{"output tokens", m.OutputTokens, want.OutputTokens},
	} {
		if p.got != p.want {
			c.failf("the metrics count %d %s, the plans and outputs showed %d", p.got, p.what, p.want)
		}
	}
	if m.Endings != want.Endings {
		c.failf("the metrics count endings %v, callers saw %v", m.Endings, want.Endings)
	}
}
