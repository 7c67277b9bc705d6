package schedtest

import "github.com/coppice-llm/coppice/scheduler"

// promptFloor checks that prompts in flight get their share of each step, however many
// sequences decode.
type promptFloor struct{ watcher }

func (c *promptFloor) planned(p *scheduler.Plan, rows []rowView) {
	cfg := &c.r.cfg
	got, decoding := 0, false
	for _, v := range rows {
		if v.row.Deferred {
			decoding = true
		} else {
			got += c.cost(v.row.Len(), int(v.row.Start))
		}
	}
	if !decoding || cfg.PromptFloor <= 0 {
		return
	}
	wanted, token, running := 0, 0, c.r.running()
	for s := range c.r.book.liveSamples() {
		if !s.bound || s.ended || s.computed >= s.target || !s.ranSince || s.of.abort != nil || s.endBy > 0 || !running[s] || boundIn(p, s) {
			continue
		}
		wanted += min(c.cost(s.target-s.computed, s.computed), cfg.ChunkTokens)
		token = max(token, c.cost(1, s.target-1)) // the last token costs most
	}
	// The unused budget is less than the cost of one more token.
	kept := cfg.PromptFloor
	if cfg.ITLTarget > 0 {
		kept = min(kept, 16) // regardless of the remaining time
	}
	if floor := min(kept, cfg.ChunkTokens, wanted); wanted > 0 && got+token-1 < floor {
		c.failf("plan %d gives prompts %d of the budget; they could use %d, and their floor is %d", p.Batch.Seq, got, wanted, cfg.PromptFloor)
	}
}

// cost returns what n prompt tokens cost of a step's budget, if as many tokens come before
// them as before says.
func (c *promptFloor) cost(n, before int) int {
	if k := c.r.cfg.AttentionTokens; k > 0 {
		return n + (n*(2*before+n)+2*k-1)/(2*k)
	}
	return n
}
