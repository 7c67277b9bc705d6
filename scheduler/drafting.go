package scheduler

import (
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler/internal/drafts"
)

// drafting is the state of a sequence that may verify drafts.
type drafting struct {
	most     int              // drafts of a row
	always   bool             // all guesses are verified, worth their time or not
	guesses  *drafts.Sequence // nil before its first decode row
	walk     *grammar.Matcher // scratch: a copy of the sequence's matcher; nil without a format
	inflight int              // drafts of its row in flight
	waits    bool             // its guesses are worth waiting for its token in flight
	next     []kv.Token       // drafts of its row in the plan that is being made
	source   DraftSource      // of next
	counts   DraftCounts
}

// drafter chooses the drafts of each step.
type drafter struct {
	cfg     *Config
	info    *engine.Info
	running *runningSet
	budget  *budget
	room    *room
	texts   *drafts.Texts // nil: no cache, or no drafts

	record  drafts.Record // of all sequences
	balance drafts.Balance
	arena   drafts.Arena
	offers  []drafts.Offer
	of      []*sequence // by offer
	pauses  bool        // this step verifies no guesses that must be worth their time
	without int         // steps since the latest one with drafts
}

// readTokens bounds the tokens that a step reads for guesses: some 0.3 ms. A longer prompt is read over
// several steps, and has no guesses before that.
const readTokens = 1 << 15

// speculates returns the number of drafts that a row of req may have, 0 for none, and reports whether
// all guesses are verified, worth their time or not.
func (c *Config) speculates(info *engine.Info, req *Request) (most int, always bool) {
	s := req.Speculate
	if s == SpeculateDefault {
		s = c.Speculate
	}
	switch {
	case c.Speculate == SpeculateOff || s == SpeculateOff:
		return 0, false
	case s == SpeculateAuto:
		return info.MaxDrafts, false
	}
	return min(int(s), info.MaxDrafts), true
}

// draftAs gives q, a new sample, what it needs to have drafts, if it may have some.
func (q *sequence) draftAs(cfg *Config, info *engine.Info) {
	most, always := cfg.speculates(info, q.req)
	if most == 0 || q.limit < 2 {
		return
	}
	q.rows.drafts = &drafting{most: most, always: always}
	if q.text.matcher != nil {
		q.rows.drafts.walk = q.text.matcher.Clone()
	}
}

// draftsInFlight returns the number of drafts of q's row in flight.
func (q *sequence) draftsInFlight() int {
	if q.rows.drafts == nil {
		return 0
	}
	return q.rows.drafts.inflight
}

// holds reports whether no plan should be made while a row with drafts is in flight. The sequence of such
// a row has no row in the next plan, so with some of the sequences in each plan, twice as many steps
// would give as many tokens. It is better that the device waits for the host once, unless that takes as
// long as a step.
func (d *drafter) holds(ps *plans) bool {
	if len(ps.inflight) == 0 || d.info.Cost.Host > d.info.Cost.Step {
		return false
	}
	return slices.ContainsFunc(ps.inflight, func(p *Plan) bool { return p.drafted > 0 })
}

// read reads the new tokens of the running sequences. With several plans in flight, it decides which
// sequences get no row before their token in flight is known, because guesses that follow it are worth
// that.
func (d *drafter) read() {
	d.budget.drafts = 0
	if d.cfg.Speculate == SpeculateOff {
		return
	}
	d.pauses = d.balance.Pauses()
	d.without++
	left := readTokens
	for _, q := range d.running.all {
		s := q.rows.drafts
		if s == nil || q.computed < q.target {
			continue
		}
		if s.waits = false; s.guesses == nil {
			s.guesses = drafts.NewSequence(drafts.Origin{
				Prompt: q.prompt, Limit: cap(q.tokens) - q.prompt, Expect: q.req.Prediction, Format: q.req.Format, Texts: d.texts, Space: q.req.Namespace,
			})
		}
		left -= s.guesses.Take(q.tokens, left, &d.record)
	}
	if d.cfg.MaxInflight == 1 {
		return
	}
	step := d.step(len(d.running.all), min(d.cfg.StepTokens, d.fit(len(d.running.all))))
	d.offer(&step, func(q *sequence) bool { return q.wantsRow() }, d.room.pageTokens)
	d.take(&step)
	for i := range d.offers {
		d.of[i].rows.drafts.waits = d.offers[i].Take > 0 && d.of[i].rows.sampling > 0
	}
}

// choose decides which decoding sequences have drafts in the step that is being planned, and how many:
// it sets drafting.next. Drafts take idle pages, and budget beyond the prompts' floor; they never preempt or
// make a sequence wait for pages. They evict for the next page of a sequence at most, which the sequence
// is about to fill anyway.
func (d *drafter) choose() {
	if d.cfg.Speculate == SpeculateOff {
		return
	}
	// A page is left for each sequence that may need one in the next step.
	idle := max(d.room.lease.IdlePages()-len(d.running.all), 0)
	decoding := d.budget.count(d.running)
	most := d.cfg.StepTokens - decoding
	if len(d.running.prefilling) > 0 {
		most -= max(d.cfg.PromptFloor, 0)
	}
	step := d.step(decoding, min(most, d.fit(decoding)))
	d.offer(&step, func(q *sequence) bool { return q.rows.inflight == 0 && q.decodes(d.room.pageTokens) }, (idle+1)*d.room.pageTokens)
	d.take(&step)
	for i := range d.offers {
		q, o := d.of[i], &d.offers[i]
		s := q.rows.drafts
		idle = max(idle-d.hold(q, o, idle), 0)
		s.next, s.source = o.Tokens[:o.Take], o.Source
		d.budget.drafts += o.Take
	}
	clear(d.of)
	if d.budget.drafts > 0 {
		d.without = 0
	}
}

// fit returns how many drafts a step with that number of decoding rows has time for. The target promises
// the other sequences their next tokens, so it does not bound the drafts of a sequence that runs alone: its tokens
// come sooner with them.
func (d *drafter) fit(decoding int) int {
	if len(d.running.all) == 1 {
		return d.cfg.StepTokens
	}
	return d.budget.time.DraftsFit(decoding, d.budget.context)
}

// step returns the costs of a step with that number of decoding rows, which can verify the number most of
// guesses.
func (d *drafter) step(decoding, most int) drafts.Step {
	rows, each := d.budget.time.Drafts(decoding, d.budget.context)
	step := drafts.Step{Rows: decoding, Seconds: rows, Draft: each, Most: max(most, 0)}
	if d.cfg.MaxInflight > 1 {
		step.Lost = d.info.Cost.Host
	}
	return step
}

// offer collects the guesses of the sequences that may have some. They reach at most the number beyond of
// tokens past the pages of each.
func (d *drafter) offer(step *drafts.Step, may func(*sequence) bool, beyond int) {
	floor := step.Floor()
	if d.without >= probeEvery {
		floor = min(floor, probeRate)
	}
	d.arena.Reset()
	d.offers, d.of = d.offers[:0], d.of[:0]
	for _, q := range d.running.all {
		s := q.rows.drafts
		if s == nil || s.guesses == nil || d.pauses && !s.always {
			continue
		}
		if s.next = nil; !may(q) {
			continue
		}
		most := min(s.most, q.limit-q.outputTokens()-int(q.rows.sampling)-1, d.info.MaxPositions-q.computed-1,
			len(q.table.pages)*d.room.pageTokens+beyond-q.computed-1)
		least := floor
		if s.always {
			least = 0
		}
		o, ok := s.guesses.Offer(q.tokens, most, least, &d.record, &d.arena)
		if !ok {
			continue
		}
		if q.rows.sampling == 0 {
			n := q.passes(o.Tokens)
			o.Tokens, o.Gains = o.Tokens[:n], o.Gains[:n]
		}
		if len(o.Tokens) > 0 {
			d.offers, d.of = append(d.offers, o), append(d.of, q)
		}
	}
}

// take sets Take of the offers.
func (d *drafter) take(step *drafts.Step) {
	if len(d.offers) == 0 {
		return
	}
	taken := drafts.Choose(d.offers, *step)
	if taken == 0 {
		taken = d.probe(step)
	}
	left := step.Most - taken
	for i := range d.offers {
		if o := &d.offers[i]; d.of[i].rows.drafts.always {
			left += o.Take
			o.Take = min(len(o.Tokens), left)
			left -= o.Take
		}
	}
}

// A step in probeEvery verifies probeDrafts guesses although they do not seem worth their time, if they
// seem right by probeRate. It shows what drafts cost where the backend's figures are wrong. With guesses
// that take twice a step each, that costs a hundredth of the time.
const (
	probeEvery  = 256
	probeDrafts = 2
	probeRate   = 0.8
)

// probe takes some guesses of the first offer that seems right, if it is time for that, and returns
// their number.
func (d *drafter) probe(step *drafts.Step) int {
	at := slices.IndexFunc(d.offers, func(o drafts.Offer) bool { return o.Gains[0] >= probeRate })
	if at < 0 || d.without < probeEvery || step.Draft == 0 {
		return 0
	}
	d.offers[at].Take = min(probeDrafts, len(d.offers[at].Tokens), step.Most)
	return d.offers[at].Take
}

// hold gives q the pages that the drafts of o need, if as many are idle or the first can be evicted for, and
// cuts the drafts to the pages that q has then. It returns the number of new pages.
func (d *drafter) hold(q *sequence, o *drafts.Offer, idle int) int {
	end, has := q.computed+1+o.Take, len(q.table.pages)
	n := min(kv.CeilPages(end, d.room.pageTokens)-has, max(idle, 1))
	if n > idle && !d.room.take(1) {
		n = 0
	}
	if n > 0 {
		q.table.pages = d.room.hold(n, q.table.pages)
	}
	o.Take = min(o.Take, len(q.table.pages)*d.room.pageTokens-q.computed-1)
	return max(n, 0)
}

// passes returns how many of these guesses at the next tokens of q may be sampled without ending its
// output: a guess after the end is of no use, and the last token needs none.
func (q *sequence) passes(guesses []kv.Token) int {
	walk, always := q.rows.drafts.walk, q.group.allowed.always
	if walk != nil {
		walk.CopyFrom(q.text.matcher)
	}
	for i, t := range guesses {
		switch {
		case slices.Contains(q.req.StopTokens, t), always != nil && always.Bits[t/64]>>(t%64)&1 == 0:
			return i
		case walk != nil && (!walk.Accept(t) || walk.MustEnd()):
			return i
		}
	}
	return len(guesses)
}
