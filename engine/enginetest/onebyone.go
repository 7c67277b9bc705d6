package enginetest

import (
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// oneByOne verifies drafts with rows that have none: it runs a row's own tokens, then one row for
// each draft while the samples confirm them, then the refused drafts. It is slow and right, but for
// its fault. Submit returns when all is done.
type oneByOne struct {
	engine.Backend
	fault draftFault

	seq   uint64
	named int // deferred rows of the batch in progress that name their token
	slots map[engine.Slot]*oneSlot
}

// draftFault is a rule that a oneByOne breaks.
type draftFault int

const (
	noDraftFault draftFault = iota
	acceptUnverified
	repeatNumbers
	keepRefused
	countRefused
	keepFirst
)

// oneSlot is the state of a slot since its bind.
type oneSlot struct {
	bind    engine.SlotBind
	out     []kv.Token
	first   kv.Token    // sample 0 of the last row
	refused *engine.Row // the refused drafts of the last row, nil if there are none
}

// inPlaceOf returns a function that puts a oneByOne with this fault in front of a sound backend.
func inPlaceOf(f draftFault) func(engine.Backend) engine.Backend {
	return func(sound engine.Backend) engine.Backend {
		return &oneByOne{Backend: sound, fault: f, slots: map[engine.Slot]*oneSlot{}}
	}
}

// Submit implements engine.Backend.
func (o *oneByOne) Submit(x *engine.Batch) (engine.Ticket, error) {
	y := *x
	y.Binds, y.Rows = slices.Clone(x.Binds), slices.Clone(x.Rows)
	for _, b := range x.Binds {
		o.slots[b.Slot] = &oneSlot{bind: b}
	}
	var late []engine.Row // after all
	for i := range y.Rows {
		r := &y.Rows[i]
		late = append(late, o.begin(&y, r)...)
		r.Drafts, r.DraftMasks = nil, nil
	}
	res, err := o.run(&y)
	if err != nil {
		return nil, err
	}
	for i := range x.Rows {
		if !x.Rows[i].Sample {
			continue
		}
		if err := o.verify(&x.Rows[i], i, res); err != nil {
			return nil, err
		}
	}
	for _, r := range late {
		if _, err := o.run(&engine.Batch{Rows: []engine.Row{r}}); err != nil {
			return nil, err
		}
	}
	res.Seq = x.Seq
	res.Stats.GivenTokens, res.Stats.DeferredTokens = res.Stats.GivenTokens-o.named, res.Stats.DeferredTokens+o.named
	o.named = 0
	return finished{newEnded(), res}, nil
}

// begin lets what the last row of the slot has left act on row r of batch x, as the fault says. It
// returns rows to run after the batch.
func (o *oneByOne) begin(x *engine.Batch, r *engine.Row) (late []engine.Row) {
	s := o.slots[r.Slot]
	if r.Deferred && o.fault == keepFirst {
		o.name(r, s.first)
	}
	if s.refused == nil {
		return nil
	}
	switch o.fault {
	case keepRefused:
		late = []engine.Row{{Slot: r.Slot, Start: s.refused.Start, Tokens: s.refused.Tokens[:1], Pages: r.Pages}}
	case countRefused:
		b := s.bind
		b.Output = slices.Concat(b.Output, s.out, s.refused.Tokens[:1])
		x.Binds = append(x.Binds, b)
		if r.Deferred {
			o.name(r, s.out[len(s.out)-1])
		}
	}
	s.refused = nil
	return late
}

// name makes a deferred row one that names its token, which does not show in the counts.
func (o *oneByOne) name(r *engine.Row, t kv.Token) {
	r.Deferred, r.Tokens = false, []kv.Token{t}
	o.named++
}

// verify runs the drafts of row r, whose own tokens have run, and completes its answer in res.
func (o *oneByOne) verify(r *engine.Row, i int, res *engine.Result) error {
	at := slices.IndexFunc(res.Out, func(a engine.RowOut) bool { return a.Row == i })
	answer := &res.Out[at]
	s := o.slots[r.Slot]
	s.first = answer.Token
	res.Stats.Drafted += len(r.Drafts)
	p := s.bind.Sampling
	for n, t := range r.Drafts {
		if answer.Err == nil && (answer.Token == t || o.fault == acceptUnverified && n == 1) {
			if err := o.next(r, n, answer, res, r.Digest || p.Logprobs || p.TopLogprobs > 0); err != nil {
				return err
			}
			s.out = append(s.out, t)
			continue
		}
		s.refused = &engine.Row{Slot: r.Slot, Start: r.Start + int32(r.Own()+n), Tokens: r.Drafts[n:], Pages: r.Pages}
		more, err := o.run(&engine.Batch{Rows: []engine.Row{*s.refused}})
		if err != nil {
			return err
		}
		add(&res.Stats, &more.Stats)
		break
	}
	if answer.Err != nil {
		answer.Confirmed, answer.Drafts = 0, nil
	}
	s.out = append(s.out, answer.Token)
	res.Stats.Confirmed += int(answer.Confirmed)
	return nil
}

// next runs draft n of row r, which is confirmed, and samples after it. asks says that the row wants
// more than tokens.
func (o *oneByOne) next(r *engine.Row, n int, answer *engine.RowOut, res *engine.Result, asks bool) error {
	row := engine.Row{
		Slot: r.Slot, Start: r.Start + int32(r.Own()+n), Tokens: r.Drafts[n : n+1], Pages: r.Pages,
		Sample: true, Digest: r.Digest, SampleIndex: r.SampleIndex + int32(n) + 1, Mask: r.MaskAt(n + 1),
	}
	if o.fault == repeatNumbers && n == 1 {
		row.SampleIndex--
	}
	more, err := o.run(&engine.Batch{Rows: []engine.Row{row}})
	if err != nil {
		return err
	}
	add(&res.Stats, &more.Stats)
	a := more.Out[0]
	a.Row, a.Confirmed = answer.Row, answer.Confirmed+1
	if asks {
		a.Drafts = append(answer.Drafts, engine.DraftOut{Logprob: answer.Logprob, Top: answer.Top, Digest: answer.Digest})
	}
	*answer = a
	return nil
}

// run runs a batch to its end.
func (o *oneByOne) run(x *engine.Batch) (*engine.Result, error) {
	o.seq++
	x.Seq = o.seq
	t, err := o.Backend.Submit(x)
	if err != nil {
		return nil, err
	}
	return wait(t)
}

func add(to, more *engine.StepStats) {
	to.GivenTokens += more.GivenTokens
	to.KVTokensRead += more.KVTokensRead
	to.Samples += more.Samples
}

// finished is a completed ticket.
type finished struct {
	ended
	res *engine.Result
}

func (f finished) Result() (*engine.Result, error) { return f.res, nil }
