package schedtest

import (
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// rowLimits checks the rows of plans: they respect budget and slots, each row begins where the
// previous row of its sample ended and has the request's tokens, and no row writes to a page
// that another row uses.
type rowLimits struct {
	watcher
	last uint64 // Seq of the latest plan

	slots   []engine.Slot // scratch, as is the next
	writers []kv.PageID
}

func (c *rowLimits) planned(p *scheduler.Plan, rows []rowView) {
	b := &p.Batch
	cfg := &c.r.cfg
	tokens := p.Tokens()
	switch {
	case b.Seq <= c.last:
		c.failf("plan %d follows plan %d", b.Seq, c.last)
	case len(c.r.flights) >= cfg.MaxInflight:
		c.failf("plan %d is made while %d are in flight, want at most %d", b.Seq, len(c.r.flights), cfg.MaxInflight)
	case len(rows) == 0 && len(p.Moves) == 0:
		c.failf("plan %d has neither rows nor moves", b.Seq)
	case len(rows) > cfg.MaxRunning:
		c.failf("plan %d has %d rows, want at most %d", b.Seq, len(rows), cfg.MaxRunning)
	case tokens > cfg.StepTokens:
		c.failf("plan %d has %d tokens, want at most %d", b.Seq, tokens, cfg.StepTokens)
	}
	c.last = b.Seq
	c.binds(b)
	c.slots = c.slots[:0]
	for i := range rows {
		if slices.Contains(c.slots, rows[i].row.Slot) {
			c.failf("plan %d: slot %d has two rows", b.Seq, rows[i].row.Slot)
		}
		c.slots = append(c.slots, rows[i].row.Slot)
		c.row(&rows[i])
	}
	c.owner(p, rows)
	if cost := c.cost(rows); cost > cfg.StepTokens {
		c.failf("plan %d costs %d, want at most %d", b.Seq, cost, cfg.StepTokens)
	}
	c.writes(rows)
}

// owner checks that p.Request names, for each row, the sample for which the binds say that
// the row's slot is.
func (c *rowLimits) owner(p *scheduler.Plan, rows []rowView) {
	for i, v := range rows {
		if id, sample := p.Request(i); id != v.of.of.req.ID || sample != v.of.index {
			c.failf("plan %d, row %d: belongs to request %d, sample %d; its slot is bound for %s", p.Batch.Seq, i, id, sample, label(v.of))
		}
	}
}

// cost returns what the rows use of a step's budget: 1 for a decode row, and 1 +
// context/AttentionTokens for a token of a prompt. A row of a single token costs 1, since
// the scheduler may always plan one.
func (c *rowLimits) cost(rows []rowView) int {
	sum := 0
	for _, v := range rows {
		n, before, k := v.row.Len(), int(v.row.Start), c.r.cfg.AttentionTokens
		if sum += n; v.row.Own() > 1 && k > 0 {
			sum += n * (2*before + n) / (2 * k)
		}
	}
	return sum
}

// binds checks that each slot is bound once, to an open request, with its tokens so far.
func (c *rowLimits) binds(b *engine.Batch) {
	c.slots = c.slots[:0]
	for bind, s := range c.r.book.bound(b) {
		switch {
		case slices.Contains(c.slots, bind.Slot):
			c.failf("slot %d is bound twice", bind.Slot)
		case bind.Slot < 0 || int(bind.Slot) >= c.r.cfg.MaxRunning:
			c.failf("slot %d is bound, there are %d", bind.Slot, c.r.cfg.MaxRunning)
		case s == nil:
			c.failf("slot %d is bound for a request that is not open (seed %d)", bind.Slot, bind.Sampling.Seed)
		case s.of.abort != nil:
			c.failf("slot %d is bound for request %d, which was aborted", bind.Slot, s.of.req.ID)
		case bind.Sampling.Penalised() && !(slices.Equal(bind.Prompt, s.of.req.Prompt) && slices.Equal(bind.Output, s.got)):
			c.failf("the penalties of request %d count a prompt of %d and an output of %d tokens, want %d and %d",
				s.of.req.ID, len(bind.Prompt), len(bind.Output), len(s.of.req.Prompt), len(s.got))
		}
		c.slots = append(c.slots, bind.Slot)
	}
}

func (c *rowLimits) row(v *rowView) {
	s, row := v.of, v.row
	if s == nil {
		c.failf("slot %d belongs to no open sample", row.Slot)
	}
	start, end := int(row.Start), int(row.Start)+row.Own()
	id, prompt := s.of.req.ID, s.of.req.Prompt
	switch {
	case !v.fresh && start != s.computed:
		c.failf("request %d continues at token %d, its last row ended at %d", id, start, s.computed)
	case row.Sample && int(row.SampleIndex) != end-len(prompt):
		c.failf("request %d samples output %d after token %d of a prompt of %d", id, row.SampleIndex, end, len(prompt))
	case !row.Sample && end >= s.tokens() && s.of.req.Pooling == scheduler.NoPooling:
		c.failf("request %d is computed to its end at token %d, but does not sample", id, end)
	case row.Digest && !(row.Sample && s.of.req.Digest):
		c.failf("request %d gets a digest without a request for it, or without a sample", id)
	case !row.Deferred && end > s.tokens():
		c.failf("request %d gets tokens up to %d, but has %d", id, end, s.tokens())
	case row.Deferred && (v.fresh || start < len(prompt)):
		c.failf("request %d gets a sampled token at %d, within a prompt of %d", id, start, len(prompt))
	}
	c.drafts(v)
	c.hidden(v)
	for i, t := range row.Tokens {
		want := kv.Token(0)
		if at := start + i; at < len(prompt) {
			want = prompt[at]
		} else {
			want = s.got[at-len(prompt)]
		}
		if t != want {
			c.failf("request %d gets token %d at %d, want %d", id, t, start+i, want)
		}
	}
}

// drafts checks the number of a row's drafts: as the request and the configuration allow, and with the
// token after them within the limit of the output.
func (c *rowLimits) drafts(v *rowView) {
	n, s := len(v.row.Drafts), v.of
	if n == 0 {
		return
	}
	most := c.r.cfg.Speculate
	if most != scheduler.SpeculateOff && s.of.req.Speculate != scheduler.SpeculateDefault {
		most = s.of.req.Speculate
	}
	switch {
	case most == scheduler.SpeculateOff || most > 0 && n > int(most) || n > c.r.info.MaxDrafts:
		c.failf("request %d has %d drafts, Speculate is %v, the backend takes %d", s.of.req.ID, n, most, c.r.info.MaxDrafts)
	case int(v.row.SampleIndex)+n >= s.of.limit:
		c.failf("request %d has %d drafts after %d tokens, the limit of its output is %d", s.of.req.ID, n, v.row.SampleIndex, s.of.limit)
	}
}

// writes checks that a page to which a row writes is used by no other row. The engine's
// contract permits a row to read what earlier rows write, but no plan needs that.
func (c *rowLimits) writes(rows []rowView) {
	pageTokens := c.r.info.PageTokens
	c.writers = c.writers[:0]
	for i, v := range rows {
		for _, id := range v.pages[min(int(v.row.Start)/pageTokens, len(v.pages)):] {
			if slices.Contains(c.writers, id) {
				c.failf("page %d is written by two rows, or twice by row %d", id, i)
			}
			c.writers = append(c.writers, id)
		}
	}
	for i, v := range rows {
		for _, id := range v.pages[:min(int(v.row.Start)/pageTokens, len(v.pages))] {
			if slices.Contains(c.writers, id) {
				c.failf("page %d is read by row %d and written by another", id, i)
			}
		}
	}
}
