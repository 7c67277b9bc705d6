package schedtest

import (
	"iter"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// book records the requests, their outputs and the plans, derived only from the scheduler's
// inputs and outputs.
type book struct {
	live  []*order // accepted and not ended, oldest first
	byID  map[scheduler.RequestID]*order
	seeds map[uint64]*sample // of live requests, by sampling seed, which identifies the sample of a bind
	slots []*sample          // by slot: the sample bound last, nil if that has ended

	tables engine.Tables // the slots' page tables after the plans so far

	coming *scheduler.Request // while Add runs: it may displace other requests

	ended   int // number of ended samples
	samples int
}

// order is one accepted request.
type order struct {
	req     scheduler.Request
	limit   int // maximum number of output tokens
	samples []*sample
	open    int // samples that have not ended
	added   time.Duration
	older   int // samples that were live at the arrival

	abort     error  // the error of the caller's Abort
	abortPlan uint64 // Seq of the latest plan at the time of abort
}

// sample is one output of a request.
type sample struct {
	of     *order
	index  int
	seed   uint64
	want   []kv.Token       // the whole output unless an abort or a deadline ends it earlier
	reason scheduler.Ending // the ending of want
	got    []kv.Token
	ended  bool

	seen
}

// seen is the state of a sample, derived from plans.
type seen struct {
	slot          engine.Slot
	bound         bool // the sample has the slot
	binds         int
	ranSince      bool   // it has had a row since the latest bind
	computed      int    // end of its latest row, with the drafts that are known to be confirmed
	target        int    // its length at the latest bind: prefill up to here
	reached       int    // largest computed before any bind
	ran           int    // prompt tokens in rows, each counted once
	cached        int    // start of its first row, or -1
	cachedUnknown bool   // preempted before its first row after a bind, so its cached tokens are unknown
	endBy         uint64 // Seq of the running plan with which it must end, as its deadline has passed
	boundAt       time.Duration
	firstAt       time.Duration
	lastSeq       uint64 // latest plan with one of its rows
}

// newBook returns a book for a backend with the given number of slots.
func newBook(slots int) book {
	return book{byID: map[scheduler.RequestID]*order{}, seeds: map[uint64]*sample{}, slots: make([]*sample, slots), tables: engine.NewTables(slots)}
}

// tokens returns the length of the sample, prompt and output.
func (s *sample) tokens() int { return len(s.of.req.Prompt) + len(s.got) }

// run returns the maximum number of tokens that are computed for one request.
func (o *order) run() int { return (len(o.req.Prompt) + o.limit) * len(o.samples) }

func (b *book) open(o *order) {
	for _, other := range b.live {
		o.older += other.open
	}
	o.open = len(o.samples)
	b.live = append(b.live, o)
	b.byID[o.req.ID] = o
	for _, s := range o.samples {
		b.seeds[s.seed] = s
	}
	b.samples += len(o.samples)
}

// close removes an ended sample from the book.
func (b *book) close(s *sample) {
	s.ended = true
	b.ended++
	b.release(s)
	delete(b.seeds, s.seed)
	o := s.of
	if o.open--; o.open == 0 {
		delete(b.byID, o.req.ID)
		b.live = slices.DeleteFunc(b.live, func(other *order) bool { return other == o })
	}
}

func (b *book) release(s *sample) {
	if s.bound && b.slots[s.slot] == s {
		b.slots[s.slot] = nil
	}
	s.bound = false
}

// bound iterates over the binds of a plan, each with the open sample that it is for; nil if there is
// none.
func (b *book) bound(p *engine.Batch) iter.Seq2[*engine.SlotBind, *sample] {
	return func(yield func(*engine.SlotBind, *sample) bool) {
		for i := range p.Binds {
			if bind := &p.Binds[i]; !yield(bind, b.seeds[bind.Sampling.Seed]) {
				return
			}
		}
	}
}

// liveSamples iterates over the samples of the live requests, the oldest first. Some may have ended.
func (b *book) liveSamples() iter.Seq[*sample] {
	return func(yield func(*sample) bool) {
		for _, o := range b.live {
			for _, s := range o.samples {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// rowView is a row of a plan with its sample.
type rowView struct {
	row   *engine.Row
	pages []kv.PageID // pages that the row reads or writes, by position
	of    *sample     // nil: no open sample
	fresh bool        // the first row since a bind
	first bool        // the very first row, and its start shows the cached tokens
}

// read appends to dst a view of each row of p, with the sample that the row belongs to. It
// finds the sample by the binds of this and earlier plans. pageTokens is the page size in
// tokens.
func (b *book) read(p *scheduler.Plan, pageTokens int, dst []rowView) []rowView {
	for i := range p.Batch.Rows {
		row := &p.Batch.Rows[i]
		v, rebound := rowView{row: row, pages: b.pages(&p.Batch, row, pageTokens)}, false
		if int(row.Slot) < len(b.slots) && row.Slot >= 0 {
			if v.of = b.slots[row.Slot]; v.of != nil {
				v.fresh = !v.of.ranSince
			}
		}
		for bind, s := range b.bound(&p.Batch) {
			if bind.Slot == row.Slot {
				v.of, v.fresh, rebound = s, true, true
			}
		}
		if s := v.of; s != nil {
			v.first = s.cached < 0 && !s.cachedUnknown && !(rebound && s.binds > 0 && !s.ranSince)
		}
		dst = append(dst, v)
	}
	return dst
}

// pages lists the pages that a row of batch reads or writes, by position: those in the
// slot's page table after the batch. It returns nil for a slot that does not exist.
func (b *book) pages(batch *engine.Batch, row *engine.Row, pageTokens int) []kv.PageID {
	if row.Slot < 0 || int(row.Slot) >= len(b.slots) {
		return nil
	}
	table := slices.Clone(b.tables.Of(row.Slot))
	for i := range batch.Binds {
		if batch.Binds[i].Slot == row.Slot {
			table = slices.Clone(batch.Binds[i].Pages)
		}
	}
	for i := range batch.Rows {
		if r := &batch.Rows[i]; r.Slot == row.Slot {
			table = append(table, r.Pages...)
		}
	}
	for _, w := range batch.Swaps {
		if w.Slot == row.Slot && int(w.At) < len(table) {
			table[w.At] = w.Page
		}
	}
	return table[:min(len(table), kv.CeilPages(int(row.Start)+row.Len(), pageTokens))]
}

// apply records the plan p, made at the time now. rows are the views that read returned for
// it.
func (b *book) apply(now time.Duration, p *scheduler.Plan, rows []rowView) {
	b.tables.Apply(&p.Batch)
	for bind, s := range b.bound(&p.Batch) {
		if old := b.slots[bind.Slot]; old != nil {
			b.release(old) // preempted, or ended since the previous plan
		}
		if s == nil {
			continue
		}
		b.release(s)
		if s.binds > 0 && !s.ranSince {
			s.cachedUnknown = true
		}
		s.reached = max(s.reached, s.computed)
		s.slot, s.bound, s.ranSince = bind.Slot, true, false
		s.computed, s.target = 0, s.tokens()
		if s.binds++; s.binds == 1 {
			s.boundAt = now
		}
		b.slots[bind.Slot] = s
	}
	for _, v := range rows {
		s := v.of
		if s == nil {
			continue
		}
		if v.first {
			s.cached = int(v.row.Start)
		}
		s.ran += max(min(int(v.row.Start)+v.row.Own(), len(s.of.req.Prompt))-max(int(v.row.Start), s.reached), 0)
		s.ranSince, s.computed, s.lastSeq = true, int(v.row.Start)+v.row.Own(), p.Batch.Seq
	}
}

// confirm records how many drafts of its row each sample of f has computed, by the result res.
func (b *book) confirm(f *flight, res *engine.Result) {
	for i := range res.Out {
		if o := &res.Out[i]; o.Confirmed > 0 && f.of[o.Row] != nil {
			f.of[o.Row].computed += int(o.Confirmed)
		}
	}
}
