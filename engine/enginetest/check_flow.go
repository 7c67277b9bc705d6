package enginetest

import (
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// checkDeferred decodes with rows whose token is not known at submission, with as many batches
// in flight as the backend accepts.
func checkDeferred(h *harness) {
	const steps = 8
	reqs := h.requests(2, steps)
	r := h.open(usual(4))
	var seqs []*sequence
	first := &engine.Batch{}
	for i, q := range reqs {
		s := r.sequence(engine.Slot(i), q.params, q.prompt, steps)
		seqs = append(seqs, s)
		first.Binds = append(first.Binds, s.bind())
		first.Rows = append(first.Rows, s.row(&r.info, 100))
	}
	batches := []*engine.Batch{first}
	for n := 1; n < steps; n++ {
		b := &engine.Batch{}
		for _, s := range seqs {
			s.ran++
			b.Rows = append(b.Rows, engine.Row{
				Slot: s.slot, Start: int32(s.ran - 1), Deferred: true, Sample: true, Digest: true,
				SampleIndex: int32(n), Pages: s.pages[:kv.CeilPages(s.ran, r.info.PageTokens)],
			})
		}
		batches = append(batches, b)
	}
	results := r.pipeline(batches)
	for i, s := range seqs {
		for n, res := range results {
			s.take(batches[n], res, i)
		}
		equal(fmt.Sprintf("deferred request %d", i), s.out, reqs[i].want)
	}
}

// pipeline runs batches with MaxInflight of them in flight.
func (r *rig) pipeline(batches []*engine.Batch) []*engine.Result {
	var tickets []engine.Ticket
	var results []*engine.Result
	for len(results) < len(batches) {
		for len(tickets) < len(batches) && len(tickets)-len(results) < r.info.MaxInflight {
			tickets = append(tickets, must(r.submit(batches[len(tickets)])))
		}
		results = append(results, must(wait(tickets[len(results)])))
	}
	return results
}

// checkPreemptResume stops a request, gives its slot and pages to another, and
// resumes it elsewhere by computing its prompt and output again.
func checkPreemptResume(h *harness) {
	const steps, stop = 7, 3
	reqs := h.requests(4, steps)
	r := h.open(usual(16))
	for i := range reqs {
		q, other := reqs[i], reqs[(i+1)%len(reqs)]
		s := r.sequence(0, q.params, q.prompt, steps)
		r.finish(s, 100, stop)
		o := r.sequence(0, other.params, other.prompt, steps)
		copy(o.pages, s.pages)
		r.finish(o, 100, steps)
		s.pages, s.ran = r.pages(len(q.prompt)+steps), 0
		r.finish(s, 25, steps)
		equal("resumed request", s.out, q.want)
		equal("the one between", o.out, other.want)
		r.free = append(r.free, s.pages...)
	}
}

// checkSlotReuse gives the slot and the pages of a running batch to the next batch.
func checkSlotReuse(h *harness) {
	reqs := h.requests(4, 1)
	r := h.open(usual(16))
	pages := r.pages(128)
	var batches []*engine.Batch
	var seqs []*sequence
	for i := range 12 {
		q := reqs[i*3%len(reqs)]
		s := &sequence{slot: 3, params: q.params, prompt: q.prompt, pages: pages}
		seqs = append(seqs, s)
		batches = append(batches, &engine.Batch{Binds: []engine.SlotBind{s.bind()}, Rows: []engine.Row{s.row(&r.info, 100)}})
	}
	results := r.pipeline(batches)
	for i, s := range seqs {
		s.take(batches[i], results[i], 0)
		equal(fmt.Sprintf("batch %d on a reused slot", i), s.out, reqs[i*3%len(reqs)].want)
	}
}

// checkRowError poisons the pages of one row: that row must fail, the others must not.
func checkRowError(h *harness) {
	reqs := h.requests(2, 3)
	r := h.open(usual(16))
	bad := r.sequence(0, reqs[0].params, reqs[0].prompt, 3)
	good := r.sequence(1, reqs[1].params, reqs[1].prompt, 3)
	r.step(100, []engine.SlotBind{bad.bind(), good.bind()}, bad, good)
	r.poison(bad.pages[0])
	b := &engine.Batch{Rows: []engine.Row{bad.row(&r.info, 1), good.row(&r.info, 1)}}
	res := r.run(b)
	if _, err := out(res, 0); !errors.Is(err, engine.ErrLogits) {
		failf("a row on NaN pages ends with %v, want ErrLogits", err)
	}
	good.take(b, res, 1)
	r.step(1, nil, good)
	equal("neighbour of a failed row", good.out, reqs[1].want)
}

// checkStats compares the stats of known batches with the expected counts.
func checkStats(h *harness) {
	r := h.open(usual(8))
	s := r.sequence(0, engine.SamplingParams{}, r.tokens(1, 20), 3)
	o := r.sequence(1, engine.SamplingParams{}, r.tokens(2, 5), 3)
	steps := []struct {
		batch engine.Batch
		want  engine.StepStats
	}{
		{engine.Batch{Binds: []engine.SlotBind{s.bind(), o.bind()}, Rows: []engine.Row{s.row(&r.info, 12), o.row(&r.info, 100)}},
			engine.StepStats{GivenTokens: 17, KVTokensRead: 12*13/2 + 5*6/2, Samples: 1}},
		{engine.Batch{Copies: []engine.PageCopy{{Src: s.pages[1], Dst: r.pages(1)[0], Tokens: 4}}, Rows: []engine.Row{
			s.row(&r.info, 100), {Slot: 1, Start: 5, Deferred: true, Sample: true, SampleIndex: 1, Pages: o.pages[:1]}}},
			engine.StepStats{GivenTokens: 8, DeferredTokens: 1, KVTokensRead: 20*21/2 - 12*13/2 + 6, Samples: 2, CopiedPages: 1}},
		{engine.Batch{}, engine.StepStats{}},
	}
	for i := range steps {
		res := r.run(&steps[i].batch)
		got := res.Stats
		got.Nanos = 0
		if got != steps[i].want {
			failf("batch %d: stats %+v, want %+v", i, got, steps[i].want)
		}
	}
}
