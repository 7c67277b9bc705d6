package enginetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// harness opens backends for one check and closes them afterwards.
type harness struct {
	t       testing.TB
	factory Factory
	wrap    func(engine.Backend) engine.Backend // breaks a rule; nil for none
	opened  []engine.Backend                    // without the wrapper
}

// failure is the panic that ends a check whose promise is broken.
type failure struct{ error }

// failf ends the running check: the promise is broken.
func failf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

// ok ends the running check with err, unless err is nil.
func ok(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// must returns v. It ends the running check with err, unless err is nil.
func must[T any](v T, err error) T {
	ok(err)
	return v
}

func (h *harness) close() {
	for _, b := range h.opened {
		if err := b.Close(); err != nil {
			h.t.Errorf("Close: %v", err)
		}
	}
}

// usual returns the options of most checks: pages of pageTokens tokens, 1024 tokens in all.
func usual(pageTokens int) Options {
	return Options{PageTokens: pageTokens, Pages: 1024 / pageTokens, MaxSlots: 8, MaxRows: 8, MaxTokens: 128, MaxInflight: 2}
}

// open returns a rig around a new backend. In the rows of most checks, and so in the controls that
// break them, Pages lists all pages of a sequence.
func (h *harness) open(o Options) *rig {
	b := h.factory(h.t, o)
	h.opened = append(h.opened, b)
	return h.rig(engine.Listed(b), b)
}

// openRaw is open for checks whose rows list only the pages that the slot's table lacks.
func (h *harness) openRaw(o Options) *rig {
	b := h.factory(h.t, o)
	h.opened = append(h.opened, b)
	return h.rig(b, b)
}

func (h *harness) rig(b, sound engine.Backend) *rig {
	mover, _ := sound.(engine.Mover)
	if h.wrap != nil {
		b = h.wrap(b)
		if x, ok := b.(*broken); ok && mover != nil {
			x.Mover, mover = mover, x
		}
	}
	r := &rig{b: b, mover: mover, info: b.Info(), rand: rand.New(rand.NewPCG(7, 11))}
	for p := range r.info.NumPages {
		r.free = append(r.free, kv.PageID(p))
	}
	return r
}

// rig drives one backend: it numbers batches and allocates pages.
type rig struct {
	b     engine.Backend
	mover engine.Mover // nil: the backend is no Mover
	info  engine.Info
	seq   uint64
	moves engine.MoveID
	ended map[engine.MoveID]error // errors of ended moves
	free  []kv.PageID
	rand  *rand.Rand
}

// pages allocates pages for tokens, the lowest ids first unless shuffled.
func (r *rig) pages(tokens int) []kv.PageID {
	n := kv.CeilPages(tokens, r.info.PageTokens)
	if n > len(r.free) {
		panic(fmt.Sprintf("enginetest: %d pages wanted, %d free", n, len(r.free)))
	}
	p := slices.Clone(r.free[:n])
	r.free = r.free[n:]
	return p
}

func (r *rig) shuffle() {
	r.rand.Shuffle(len(r.free), func(i, j int) { r.free[i], r.free[j] = r.free[j], r.free[i] })
}

// tokens returns n pseudo-random tokens; equal seeds give equal tokens.
func (r *rig) tokens(seed uint64, n int) []kv.Token {
	g := rand.New(rand.NewPCG(seed, 99))
	t := make([]kv.Token, n)
	for i := range t {
		t[i] = kv.Token(g.IntN(min(r.info.Vocab, 128)))
	}
	return t
}

func (r *rig) submit(b *engine.Batch) (engine.Ticket, error) {
	r.seq++
	b.Seq = r.seq
	return r.b.Submit(b)
}

// wait returns the result of a ticket; rows in it may have failed.
func wait(t engine.Ticket) (*engine.Result, error) {
	<-t.Done()
	return t.Result()
}

// run submits a batch and waits for it.
func (r *rig) run(b *engine.Batch) *engine.Result {
	res := must(wait(must(r.submit(b))))
	if res.Seq != b.Seq {
		failf("the result is of batch %d, want %d", res.Seq, b.Seq)
	}
	return res
}

// answer runs a batch of one row and returns the row's answer, which must be no error.
func (r *rig) answer(b *engine.Batch) *engine.RowOut {
	res := r.run(b)
	must(out(res, 0))
	return &res.Out[0]
}

// sample is a sampled token with the digest of its logits.
type sample struct {
	token  kv.Token
	digest uint64
}

// out returns the sample of a row.
func out(res *engine.Result, row int) (sample, error) {
	for i := range res.Out {
		if o := &res.Out[i]; o.Row == row {
			return sample{o.Token, o.Digest}, o.Err
		}
	}
	return sample{}, fmt.Errorf("row %d has no output", row)
}

// equal fails the check if two outputs differ.
func equal(what string, got, want []sample) {
	if len(got) != len(want) {
		failf("%s: %d samples, want %d", what, len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			failf("%s: sample %d is token %d of logits %016x, want token %d of %016x",
				what, i, got[i].token, got[i].digest, want[i].token, want[i].digest)
		}
	}
}

// sequence is a request that is run step by step.
type sequence struct {
	slot   engine.Slot
	params engine.SamplingParams
	prompt []kv.Token
	pages  []kv.PageID // enough for the prompt and all steps
	out    []sample
	ran    int // KV entries computed
}

// sequence makes a sequence with pages for the prompt and for as many samples as steps says.
func (r *rig) sequence(slot engine.Slot, p engine.SamplingParams, prompt []kv.Token, steps int) *sequence {
	return &sequence{slot: slot, params: p, prompt: prompt, pages: r.pages(len(prompt) + steps)}
}

func (s *sequence) bind() engine.SlotBind {
	return engine.SlotBind{Slot: s.slot, Sampling: s.params, Prompt: s.prompt, Output: tokensOf(s.out)}
}

// all returns the tokens known so far.
func (s *sequence) all() []kv.Token { return slices.Concat(s.prompt, tokensOf(s.out)) }

// row returns a row of at most n of the known tokens that have not run. It samples if no known
// token is left after it.
func (s *sequence) row(info *engine.Info, n int) engine.Row {
	all := s.all()
	hi := min(s.ran+n, len(all))
	r := engine.Row{Slot: s.slot, Start: int32(s.ran), Tokens: all[s.ran:hi], Pages: s.pages[:kv.CeilPages(hi, info.PageTokens)]}
	if hi == len(all) {
		r.Sample, r.Digest, r.SampleIndex = true, info.Capabilities.Digests, int32(len(s.out))
	}
	s.ran = hi
	return r
}

// take stores the row's sample, if the row sampled.
func (s *sequence) take(b *engine.Batch, res *engine.Result, row int) {
	if b.Rows[row].Sample {
		s.out = append(s.out, must(out(res, row)))
	}
}

// step runs one batch with a row for each sequence, in chunks of at most n tokens.
func (r *rig) step(n int, binds []engine.SlotBind, seqs ...*sequence) {
	b := &engine.Batch{Binds: binds}
	for _, s := range seqs {
		b.Rows = append(b.Rows, s.row(&r.info, n))
	}
	res := r.run(b)
	for i, s := range seqs {
		s.take(b, res, i)
	}
}

// finish binds s and runs it alone, in chunks of n tokens, until it has as many samples as steps
// says.
func (r *rig) finish(s *sequence, n, steps int) {
	binds := []engine.SlotBind{s.bind()}
	for len(s.out) < steps {
		r.step(n, binds, s)
		binds = nil
	}
}

// solo returns the reference output of a request, as many samples as steps says: a new backend
// with pages of 16 tokens runs the request alone, with the prompt in one chunk.
func (h *harness) solo(p engine.SamplingParams, prompt []kv.Token, steps int) []sample {
	r := h.open(usual(16))
	s := r.sequence(0, p, prompt, steps)
	r.finish(s, r.info.MaxTokens, steps)
	return s.out
}

// request is a request with its reference output, to be compared under several conditions.
type request struct {
	params engine.SamplingParams
	prompt []kv.Token
	want   []sample
}

// requests makes n requests of different lengths with their references, each of as many samples as
// steps says. Requests with an even index are greedy, the others have a high temperature and a
// seed, so that lost parameters are detected.
func (h *harness) requests(n, steps int) []request {
	r := h.open(usual(16))
	reqs := make([]request, n)
	for i := range reqs {
		q := &reqs[i]
		q.prompt = r.tokens(uint64(i+1), 21+13*i)
		if i%2 == 1 {
			q.params = engine.SamplingParams{Temperature: 4, Seed: uint64(100 + i)}
		}
		// One slot each: a backend that loses binds must not lose them in the reference, too.
		s := r.sequence(engine.Slot(i), q.params, q.prompt, steps)
		r.finish(s, r.info.MaxTokens, steps)
		q.want = s.out
	}
	return reqs
}
