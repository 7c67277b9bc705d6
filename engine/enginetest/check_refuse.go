package enginetest

import (
	"errors"
	"math"
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// checkValidation submits batches that must be refused, each a valid one with one fault, and
// then shows that they had no effect.
func checkValidation(h *harness) {
	reqs := h.requests(2, 2)
	q := reqs[1]
	r := h.open(usual(16))
	s := r.sequence(0, q.params, q.prompt, 2)
	r.step(100, []engine.SlotBind{s.bind()}, s)
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	bind, row := badBind, badRow
	faults := []badBatch{
		{"old Seq", func(b *engine.Batch) { b.Seq = r.seq }},
		{"too many rows", func(b *engine.Batch) {
			for len(b.Rows) <= r.info.MaxRows {
				b.Rows = append(b.Rows, b.Rows[0])
			}
		}},
		{"too many tokens", row(func(x *engine.Row) {
			x.Start, x.Tokens = 0, make([]kv.Token, r.info.MaxTokens+1)
			x.Pages = make([]kv.PageID, kv.CeilPages(r.info.MaxTokens+1, r.info.PageTokens))
		})},
		{"slot -1", row(func(x *engine.Row) { x.Slot = -1 })},
		{"slot past end", row(func(x *engine.Row) { x.Slot = engine.Slot(r.info.MaxSlots) })},
		{"no tokens", row(func(x *engine.Row) { x.Tokens = nil })},
		{"deferred with tokens", row(func(x *engine.Row) { x.Deferred = true })},
		{"deferred, never sampled", row(func(x *engine.Row) { x.Slot, x.Tokens, x.Deferred = 5, nil, true })},
		{"deferred, bound again", func(b *engine.Batch) {
			b.Binds = []engine.SlotBind{{Slot: 0}}
			b.Rows[0].Tokens, b.Rows[0].Deferred = nil, true
		}},
		{"start -1", row(func(x *engine.Row) { x.Start = -1 })},
		{"start past the model", row(func(x *engine.Row) { x.Start = int32(r.info.MaxPositions) })},
		{"sample index -1", row(func(x *engine.Row) { x.SampleIndex = -1 })},
		{"pages past the last position", row(func(x *engine.Row) { x.Pages = make([]kv.PageID, r.info.MaxPositions/r.info.PageTokens+2) })},
		{"a page too few", row(func(x *engine.Row) { x.Slot, x.Pages = 5, x.Pages[1:] })},
		{"page past end", row(func(x *engine.Row) {
			x.Pages = append([]kv.PageID{kv.PageID(r.info.NumPages)}, x.Pages[1:]...)
		})},
		{"page -1", row(func(x *engine.Row) { x.Pages = append([]kv.PageID{kv.NoPage}, x.Pages[1:]...) })},
		{"token past end", row(func(x *engine.Row) { x.Tokens = []kv.Token{kv.Token(r.info.Vocab)} })},
		{"copy to itself", func(b *engine.Batch) { b.Copies = []engine.PageCopy{{Src: 1, Dst: 1, Tokens: 1}} }},
		{"copy of no tokens", func(b *engine.Batch) { b.Copies = []engine.PageCopy{{Src: s.pages[0], Dst: 60}} }},
		{"copy past the page", func(b *engine.Batch) { b.Copies = []engine.PageCopy{{Src: 0, Dst: 1, Tokens: 17}} }},
		{"copy from nowhere", func(b *engine.Batch) { b.Copies = []engine.PageCopy{{Src: -1, Dst: s.pages[0], Tokens: 1}} }},
		{"bind past end", func(b *engine.Batch) { b.Binds = []engine.SlotBind{{Slot: engine.Slot(r.info.MaxSlots)}} }},
		{"temperature NaN", bind(engine.SamplingParams{Temperature: nan})},
		{"temperature infinite", bind(engine.SamplingParams{Temperature: inf})},
		{"top-p 1.5", bind(engine.SamplingParams{TopP: 1.5})},
		{"min-p -1", bind(engine.SamplingParams{MinP: -1})},
		{"top-k -1", bind(engine.SamplingParams{TopK: -1})},
		{"presence 3", bind(engine.SamplingParams{PresencePenalty: 3})},
		{"top log-probabilities 21", bind(engine.SamplingParams{TopLogprobs: 21})},
		{"bias past end", bind(engine.SamplingParams{Bias: []engine.TokenBias{{Token: kv.Token(r.info.Vocab)}}})},
	}
	faults = append(append(faults, beyond(r.info.Capabilities)...), slices.Concat(badDrafts(&r.info), badHidden(&r.info))...)
	for _, f := range faults {
		good := *s
		b := &engine.Batch{Seq: r.seq + 1, Rows: []engine.Row{good.row(&r.info, 1)}}
		f.change(b)
		if _, err := r.b.Submit(b); !errors.Is(err, engine.ErrInvalid) {
			failf("a batch with %s: %v, want ErrInvalid", f.name, err)
		}
	}
	r.step(1, nil, s)
	equal("after batches that were refused", s.out, q.want)
}

// badBatch turns a valid batch into one that must be refused.
type badBatch struct {
	name   string
	change func(b *engine.Batch)
}

func badBind(p engine.SamplingParams) func(b *engine.Batch) {
	return func(b *engine.Batch) { b.Binds = []engine.SlotBind{{Slot: 1, Sampling: p}} }
}

func badRow(change func(x *engine.Row)) func(b *engine.Batch) {
	return func(b *engine.Batch) { change(&b.Rows[0]) }
}

// beyond returns batches that need capabilities which the backend lacks.
func beyond(can engine.Capabilities) []badBatch {
	var all []badBatch
	if !can.Digests {
		all = append(all, badBatch{"a digest", badRow(func(x *engine.Row) { x.Digest = true })})
	}
	if !can.PromptLogprobs {
		all = append(all, badBatch{"log-probabilities of a prompt", badRow(func(x *engine.Row) { x.PromptLogprobs = true })})
	}
	if !can.Logprobs {
		all = append(all, badBatch{"a log-probability", badBind(engine.SamplingParams{Logprobs: true})},
			badBatch{"most probable tokens", badBind(engine.SamplingParams{TopLogprobs: 1})})
	}
	if !can.Penalties {
		all = append(all, badBatch{"a penalty", badBind(engine.SamplingParams{PresencePenalty: 1})})
	}
	return all
}

// checkBusy submits without waiting: never more than MaxInflight batches may be pending, and
// none may be refused while fewer are. A backend that never returns ErrBusy must complete
// batches before Submit returns, or it breaks the first rule.
func checkBusy(h *harness) {
	o := usual(16)
	o.MaxInflight = 3
	r := h.open(o)
	if r.info.MaxInflight < 2 {
		failf("MaxInflight is %d, want at least 2", r.info.MaxInflight)
	}
	pages, tokens := r.pages(64), r.tokens(1, 64)
	var tickets []engine.Ticket
	pending := func() int {
		n := 0
		for _, t := range tickets {
			select {
			case <-t.Done():
			default:
				n++
			}
		}
		return n
	}
	refused := 0
	for range 12 {
		before := pending()
		t, err := r.submit(&engine.Batch{Rows: []engine.Row{{Tokens: tokens, Pages: pages}}})
		switch {
		case errors.Is(err, engine.ErrBusy):
			if before < r.info.MaxInflight {
				failf("ErrBusy with %d of %d batches pending", before, r.info.MaxInflight)
			}
			refused++
			<-tickets[len(tickets)-1].Done()
		case err != nil:
			ok(err)
		default:
			tickets = append(tickets, t)
			// The batch may complete between the two calls, so success is fine as well.
			if _, err := t.Result(); err != nil && !errors.Is(err, engine.ErrPending) {
				failf("a ticket's result at once: %w, want ErrPending", err)
			}
			if n := pending(); n > r.info.MaxInflight {
				failf("%d batches are pending, at most %d may be", n, r.info.MaxInflight)
			}
		}
	}
	for _, t := range tickets {
		must(wait(t))
	}
	h.t.Logf("%d of 12 submissions were refused", refused)
}

// checkClose closes with batches and a move in flight.
func checkClose(h *harness) {
	for inflight := range 3 {
		o := usual(16)
		r := h.open(o)
		pages, tokens := r.pages(o.MaxTokens), r.tokens(1, o.MaxTokens)
		var tickets []engine.Ticket
		for range inflight {
			t := must(r.submit(&engine.Batch{Rows: []engine.Row{{Tokens: tokens, Pages: pages, Sample: true}}}))
			tickets = append(tickets, t)
		}
		r.closeMoving(pages[0])
		ok(r.b.Close())
		for i, t := range tickets {
			select {
			case <-t.Done():
			default:
				failf("ticket %d is pending after Close", i)
			}
			if _, err := t.Result(); err != nil && !errors.Is(err, engine.ErrClosed) {
				failf("ticket %d ends with %v, want a result or ErrClosed", i, err)
			}
		}
		ok(r.b.Close()) // a second one
		if _, err := r.submit(&engine.Batch{}); !errors.Is(err, engine.ErrClosed) {
			failf("Submit after Close: %v, want ErrClosed", err)
		}
		if r.mover == nil {
			continue
		}
		if err := r.await(r.moves); err != nil && !errors.Is(err, engine.ErrClosed) {
			failf("a move that was pending ends with %v, want ErrClosed or none", err)
		}
		if _, err := r.begin(kv.TierDevice, kv.TierHost, nil, nil); !errors.Is(err, engine.ErrClosed) {
			failf("Move after Close: %v, want ErrClosed", err)
		}
	}
}

// closeMoving begins a move that is pending when Close is called, if the backend is a mover.
func (r *rig) closeMoving(page kv.PageID) {
	if r.mover != nil {
		host := must(r.mover.HostAlloc(r.info.PageBytes))
		must(r.begin(kv.TierDevice, kv.TierHost, []kv.PageID{page}, [][]byte{host}))
	}
}
