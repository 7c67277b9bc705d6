package enginetest

import (
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// checkBatchMix runs requests that join one after another, so that prefill chunks and decode rows
// mix in all orders of rows.
func checkBatchMix(h *harness) {
	const steps = 6
	reqs := h.requests(3, steps)
	r := h.open(usual(16))
	var live []*sequence
	for i, q := range reqs {
		s := r.sequence(engine.Slot(i), q.params, q.prompt, steps)
		live = append([]*sequence{s}, live...) // newest first
		r.step(16, []engine.SlotBind{s.bind()}, live...)
	}
	for len(live) > 0 {
		r.step(9, nil, live...)
		live = slices.DeleteFunc(live, func(s *sequence) bool {
			if len(s.out) < steps {
				return false
			}
			equal(fmt.Sprintf("request %d among others", s.slot), s.out, reqs[s.slot].want)
			return true
		})
	}
}

// checkChunking runs the same prompt in chunks of several lengths, below, at and above the page
// size.
func checkChunking(h *harness) {
	reqs := h.requests(3, 3)
	q := reqs[2]
	for _, n := range []int{1, 3, 15, 16, 17, len(q.prompt) - 1, 100} {
		r := h.open(usual(16))
		s := r.sequence(1, q.params, q.prompt, 3)
		r.finish(s, n, 3)
		equal(fmt.Sprintf("chunks of %d", n), s.out, q.want)
	}
}

// checkPageSize runs the same request on pages of 1 to 64 tokens.
func checkPageSize(h *harness) {
	reqs := h.requests(3, 3)
	q := reqs[2]
	for _, n := range []int{1, 2, 4, 16, 64} {
		r := h.open(usual(n))
		s := r.sequence(0, q.params, q.prompt, 3)
		r.finish(s, 23, 3)
		equal(fmt.Sprintf("pages of %d", n), s.out, q.want)
	}
}

// checkPagePermutation places two sequences on shuffled, interleaved pages.
func checkPagePermutation(h *harness) {
	reqs := h.requests(3, 3)
	r := h.open(usual(4))
	for range 3 {
		r.shuffle()
		for _, q := range reqs[1:] {
			s := r.sequence(2, q.params, q.prompt, 3)
			r.finish(s, 30, 3)
			equal(fmt.Sprintf("pages %v", s.pages), s.out, q.want)
		}
	}
}

// checkCopyOnWrite runs requests that share the first page and a part of the second page of a
// cached sequence: 1 token of it, 2 tokens, up to all. Each copies that part to its own page and
// continues there. Then the sequence that owns the original must continue unchanged.
func checkCopyOnWrite(h *harness) {
	const page = 8
	r := h.open(usual(page))
	base := r.sequence(0, engine.SamplingParams{}, r.tokens(1, 2*page), 1)
	r.finish(base, 100, 1)
	for n := 1; n <= page; n++ {
		prompt := append(slices.Clone(base.prompt[:page+n]), r.tokens(uint64(50+n), 5)...)
		want := h.solo(engine.SamplingParams{}, prompt, 1)
		s := r.sequence(1, engine.SamplingParams{}, prompt, 1)
		s.pages[0], s.ran = base.pages[0], page+n
		b := &engine.Batch{
			Binds:  []engine.SlotBind{s.bind()},
			Copies: []engine.PageCopy{{Src: base.pages[1], Dst: s.pages[1], Tokens: int32(n)}},
			Rows:   []engine.Row{s.row(&r.info, 100)},
		}
		s.take(b, r.run(b), 0)
		equal(fmt.Sprintf("leaving at slot %d", n), s.out, want)
	}
	want := h.solo(engine.SamplingParams{}, base.prompt, 2)
	r.finish(base, 100, 2)
	equal("the source of the copies", base.out, want)
}

// checkInBatchSharing computes, in one batch, a prefix and two requests that use it.
func checkInBatchSharing(h *harness) {
	r := h.open(usual(16))
	prefix := r.tokens(1, 32)
	first := r.sequence(0, engine.SamplingParams{}, prefix, 1)
	b := &engine.Batch{Binds: []engine.SlotBind{first.bind()}, Rows: []engine.Row{first.row(&r.info, 100)}}
	var wants [][]sample
	seqs := []*sequence{first}
	for i := range 3 {
		prompt := append(slices.Clone(prefix), r.tokens(uint64(20+i), 3+i)...)
		want := h.solo(engine.SamplingParams{}, prompt, 1)
		s := r.sequence(engine.Slot(i+1), engine.SamplingParams{}, prompt, 1)
		copy(s.pages, first.pages[:2])
		s.ran = len(prefix)
		b.Binds = append(b.Binds, s.bind())
		b.Rows = append(b.Rows, s.row(&r.info, 100))
		seqs, wants = append(seqs, s), append(wants, want)
	}
	res := r.run(b)
	for i, want := range wants {
		s := seqs[i+1]
		s.take(b, res, i+1)
		equal(fmt.Sprintf("row %d on a prefix of row 0", i+1), s.out, want)
	}
}

// checkStalePoison fills the pool with NaN before it is used, so that reading one slot past a
// sequence's end is detected.
func checkStalePoison(h *harness) {
	reqs := h.requests(2, 3)
	for _, n := range []int{4, 64} {
		r := h.open(usual(n))
		r.poison(r.free...) // all pages
		for i, q := range reqs {
			s := r.sequence(engine.Slot(i), q.params, q.prompt, 3)
			r.finish(s, 10, 3)
			equal("pages of stale NaN", s.out, q.want)
		}
	}
}

// poison sets every byte of the pages: NaN in f32, f16, bf16 and e4m3 alike.
func (r *rig) poison(pages ...kv.PageID) {
	host := must(r.mover.HostAlloc(r.info.PageBytes))
	defer r.mover.HostFree(host)
	for i := range host {
		host[i] = 0xff
	}
	for _, p := range pages {
		ok(r.await(must(r.begin(kv.TierHost, kv.TierDevice, []kv.PageID{p}, [][]byte{host}))))
	}
}
