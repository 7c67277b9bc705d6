package schedtest

import (
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// drawDrafts turns drafts on in two of three worlds.
func (w *setup) drawDrafts(rng stream) {
	w.cfg.Speculate = scheduler.SpeculateOff
	if !rng.one(3) {
		w.speculate(rng)
	}
}

// speculate turns drafts on. Where steps take no time, no number of drafts is worth its time, so the
// configuration gives a number.
func (w *setup) speculate(rng stream) {
	w.cfg.Speculate = pick(rng, 1, 2, 4, 16, scheduler.SpeculateAuto)
	if w.profile == "" {
		w.cfg.Speculate = pick(rng, scheduler.Speculate(1), 3, 16)
	}
	w.device.MaxDrafts = pick(rng, 0, 0, 1, 3, 8)
}

// guess gives a request a Prediction in most worlds with drafts: its output with some errors.
func (w *world) guess(req *scheduler.Request) {
	rng := w.setup.guesses
	if w.cfg.Speculate == scheduler.SpeculateOff || w.setup.unexpected {
		return
	}
	req.Speculate = pick(rng, scheduler.SpeculateDefault, scheduler.SpeculateDefault, scheduler.SpeculateDefault, scheduler.SpeculateOff, scheduler.SpeculateAuto, 2)
	errors := pick(rng, 2, 3, 5, 20)
	if rng.one(4) || !w.sound(req) || req.Pooling != scheduler.NoPooling {
		return
	}
	params := req.Sampling
	params.Seed = engine.BranchSeed(params.Seed, 0)
	for _, t := range w.oracle.Expect(req.Prompt, params, outputLimit(req, &w.cfg, &w.info), newOutline(req, w.cfg.Vocabulary).mask) {
		switch {
		case !rng.one(errors):
			req.Prediction = append(req.Prediction, t)
		case rng.one(2): // one token replaces another
			req.Prediction = append(req.Prediction, kv.Token(rng.IntN(w.info.Vocab)))
		case rng.one(2): // or is one too many, or left out
			req.Prediction = append(req.Prediction, t, t)
		}
	}
}

// drafted checks the bills of drafts, and that no page with only refused ones is in the tree, from which
// events and lower tiers have it.
type drafted struct {
	watcher
	pages   map[uint64][][]kv.PageID         // of running plans: by row, the pages that it reads or writes, if it has drafts
	refused []kv.PageID                      // of the plan that completes
	seen    map[kv.Namespace]map[uint64]bool // groups of tokens in the prompts and outputs of a namespace: see group
	counts  map[*sample]*[2]uint64           // of open samples: guesses verified, and those that became tokens
	metrics [2]uint64
}

// groupTokens is the number of tokens of a group: a guess and the tokens before it that a text of another
// request must have in common.
const groupTokens = 5

// group returns a number for the last tokens of a text; 0 if it is too short.
func group(text []kv.Token) (n uint64) {
	if len(text) < groupTokens {
		return 0
	}
	for _, t := range text[len(text)-groupTokens:] {
		n = n<<12 + uint64(t) + 1
	}
	return n
}

// text returns the prompt and the output of s so far.
func (s *sample) text() []kv.Token { return slices.Concat(s.of.req.Prompt, s.got) }

func (c *drafted) added(o *order, err error) {
	if err != nil {
		return
	}
	for n := range o.req.Prompt {
		c.see(o.req.Namespace, o.req.Prompt[:n+1])
	}
}

func (c *drafted) see(ns kv.Namespace, text []kv.Token) {
	if c.seen[ns] == nil {
		c.seen[ns] = map[uint64]bool{}
	}
	c.seen[ns][group(text)] = true
}

// known reports whether s may guess at t: its format or the expected output may suggest it, or it followed
// the last tokens in its own text or in another of its namespace.
func (c *drafted) known(s *sample, t kv.Token) bool {
	req, text := &s.of.req, append(s.text(), t)
	if req.Format != nil || slices.Contains(req.Prediction, t) || c.seen[req.Namespace][group(text)] {
		return true
	}
	for n := 4; n < len(text); n++ {
		if slices.Equal(text[n-4:n], text[len(text)-4:]) {
			return true
		}
	}
	return false
}

func (c *drafted) planned(p *scheduler.Plan, rows []rowView) {
	if !slices.ContainsFunc(rows, func(v rowView) bool { return len(v.row.Drafts) > 0 }) {
		return
	}
	all := make([][]kv.PageID, len(rows))
	for i := range rows {
		if all[i] = rows[i].pages; len(rows[i].row.Drafts) > 0 && !c.known(rows[i].of, rows[i].row.Drafts[0]) {
			c.failf("%s of namespace %+v has a guess that nothing in its namespace suggests: %d", label(rows[i].of), rows[i].of.of.req.Namespace, rows[i].row.Drafts)
		}
	}
	c.pages[p.Batch.Seq] = all
}

// completed looks for pages of refused drafts in the tree.
func (c *drafted) completed(uint64) {
	if len(c.refused) == 0 || c.r.cache == nil {
		return
	}
	for v := range c.r.cache.Walk() {
		for _, id := range v.Pages {
			if slices.Contains(c.refused, id) {
				c.failf("the tree has page %d, on which all tokens were refused", id)
			}
		}
	}
}

// resulted counts the drafts of rows whose samples are open. Of a sample that was given up, or is out of
// time, no token counts.
func (c *drafted) resulted(f *flight, res *engine.Result, err error) {
	pages := c.pages[f.seq]
	delete(c.pages, f.seq)
	c.refused = c.refused[:0]
	if err != nil {
		return
	}
	for i := range res.Out {
		o := &res.Out[i]
		row := &f.plan.Batch.Rows[o.Row]
		s, n := f.of[o.Row], len(row.Drafts)
		if s == nil || s.ended || n == 0 || o.Err != nil {
			continue
		}
		if s.bound && s.lastSeq == f.seq { // else the pages are others' already
			end := int(row.Start) + row.Own() + int(o.Confirmed)
			c.refused = append(c.refused, pages[o.Row][kv.CeilPages(end, c.r.info.PageTokens):]...)
		}
		if c.counts[s] == nil {
			c.counts[s] = new([2]uint64)
		}
		accepted := min(int(o.Confirmed), len(s.want)-len(s.got))
		if s.of.abort != nil || s.endBy > 0 {
			accepted = 0
		}
		for i, n := range [2]int{n, accepted} {
			c.counts[s][i] += uint64(n)
			c.metrics[i] += uint64(n)
		}
	}
}

func (c *drafted) told(s *sample, o *scheduler.Output) {
	if s != nil && o.Sampled {
		c.see(s.of.req.Namespace, append(s.text(), o.Token))
	}
	if s == nil || o.Ending.Reason == scheduler.NotEnded {
		return
	}
	var want [2]uint64
	if n := c.counts[s]; n != nil {
		want = *n
	}
	delete(c.counts, s)
	for source := range scheduler.DraftSource(scheduler.DraftSources) {
		if d := &o.Ending.Drafts; d.Accepted[source] > d.Drafted[source] {
			c.failf("request %d is billed for %d right drafts from %v, of %d", o.Request, d.Accepted[source], source, d.Drafted[source])
		}
	}
	if n, accepted := o.Ending.Drafts.Sum(); n != want[0] || accepted != want[1] {
		c.failf("request %d is billed for %d drafts, %d of them right, want %d and %d", o.Request, n, accepted, want[0], want[1])
	}
}

func (c *drafted) settled() {
	m := c.r.sched.Metrics()
	if n, accepted := m.Drafts.Sum(); n != c.metrics[0] || accepted != c.metrics[1] {
		c.failf("the metrics count %d drafts, %d of them right, want %d and %d", n, accepted, c.metrics[0], c.metrics[1])
	}
}

// sound reports whether a request has an output that can be computed before the scheduler accepts it.
func (w *world) sound(req *scheduler.Request) bool {
	n := outputLimit(req, &w.cfg, &w.info)
	return len(req.Prompt) > 0 && req.Sampling.Validate(w.info.Vocab) == nil && n > 0 && n <= 4*w.setup.largest &&
		!slices.ContainsFunc(req.Prompt, func(t kv.Token) bool { return int(t) >= w.info.Vocab })
}
