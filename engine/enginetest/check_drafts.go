package enginetest

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

func takesDrafts(info *engine.Info) bool { return info.MaxDrafts > 0 }

// checkDrafts runs the same requests without and with guesses at their tokens, and compares tokens,
// digests and log-probabilities bit by bit. In each batch some rows have right guesses, some wrong
// ones, some none.
func checkDrafts(h *harness) {
	utterances := h.utterances()
	for _, pageTokens := range []int{16, 4, 1} {
		r := h.open(usual(pageTokens))
		r.shuffle()
		h.speak(fmt.Sprintf("pages of %d tokens", pageTokens), r, utterances, func(i int) guesser {
			if pageTokens == 16 {
				return everyPlace(i)
			}
			return mixed(uint64(100*pageTokens + i))
		})
	}
}

// utterance is a request, and what a run without drafts gives for it.
type utterance struct {
	params engine.SamplingParams
	prompt []kv.Token
	masks  []engine.MaskID // of the samples, in turn; nil: none
	shares bool            // its prompt is that of the utterance before, and so are the prompt's full pages
	want   []engine.RowOut // by sample: Token, Logprob, Top and Digest
}

// draftSteps is the number of samples of an utterance.
const draftSteps = 14

// draftMasks are the masks of utterances, each with more than half of the tokens.
func (r *rig) draftMasks() []engine.MaskSet {
	var sets []engine.MaskSet
	for id := range engine.MaskID(min(3, r.info.MaxMasks)) {
		bits := r.maskOf()
		for t := range r.info.Vocab {
			if t%(int(id)+3) != 0 {
				bits[t/64] |= 1 << (t % 64)
			}
		}
		sets = append(sets, engine.MaskSet{ID: id + 1, Bits: bits})
	}
	return sets
}

// utterances returns requests with all kinds of parameters that the backend supports, and runs them
// without drafts.
func (h *harness) utterances() []*utterance {
	r := h.open(usual(16))
	can := r.info.Capabilities
	penal := func(p engine.SamplingParams) engine.SamplingParams {
		if can.Penalties {
			p.RepetitionPenalty, p.PresencePenalty, p.FrequencyPenalty = 1.5, 1, 2
		}
		return p
	}
	logprob := func(p engine.SamplingParams, top int32) engine.SamplingParams {
		if can.Logprobs {
			p.Logprobs, p.TopLogprobs = true, top
		}
		return p
	}
	inf := float32(math.Inf(-1))
	bias := []engine.TokenBias{{Token: 5, Bias: 2}, {Token: 77, Bias: inf}}
	all := []*utterance{
		{params: logprob(engine.SamplingParams{}, 0)},
		{params: engine.SamplingParams{Temperature: 0.7, TopP: 0.9, Seed: 3}},
		{params: logprob(engine.SamplingParams{Temperature: 1, Seed: 4, Bias: bias}, 3)},
		{params: engine.SamplingParams{Temperature: 4, Seed: 5}},
		{params: engine.SamplingParams{Temperature: 4, Seed: engine.BranchSeed(5, 1)}, shares: true},
		{params: penal(engine.SamplingParams{})},
		{params: engine.SamplingParams{}, masks: []engine.MaskID{1, 2, 0, 3}},
		{params: penal(logprob(engine.SamplingParams{Temperature: 1, Seed: 6, Bias: bias}, 2)), masks: []engine.MaskID{3, 0, 1, 2, 2}},
	}
	for i, u := range all {
		u.prompt = r.tokens(uint64(20+i), 17+2*i)
		if u.shares {
			u.prompt = all[i-1].prompt
		}
		if r.info.MaxMasks == 0 {
			u.masks = nil
		}
	}
	h.speak("no drafts", r, all, func(int) guesser { return func([]kv.Token) []kv.Token { return nil } })
	return all
}

// guesser returns guesses at the tokens that follow, given the right ones.
type guesser func(next []kv.Token) []kv.Token

// wrongAt guesses d tokens, the one at index k wrong; all are right if k is negative.
func wrongAt(k, d int) guesser {
	return func(next []kv.Token) []kv.Token {
		g := slices.Clone(next[:min(d, len(next))])
		if k >= 0 && k < len(g) {
			g[k] = wrong(next[k:])
		}
		return g
	}
}

// everyPlace guesses 6 tokens, in turn all right and with the first wrong one at each place.
func everyPlace(from int) guesser {
	n := from
	return func(next []kv.Token) []kv.Token {
		n++
		return wrongAt(n%7-1, 6)(next)
	}
}

// wrong returns a token other than next[0]: a later one of the output if there is one, so that a
// backend that counts it for penalties, or keeps its KV, does so where it matters.
func wrong(next []kv.Token) kv.Token {
	for _, t := range next {
		if t != next[0] {
			return t
		}
	}
	return next[0] ^ 1
}

// mixed guesses up to 7 tokens, of which the first wrong one has any place; now and then none.
func mixed(seed uint64) guesser {
	g := rand.New(rand.NewPCG(seed, 5))
	return func(next []kv.Token) []kv.Token { return wrongAt(g.IntN(9)-1, g.IntN(8))(next) }
}

// speak runs the utterances, each in its slot, and compares what they give with what they should.
// An utterance that has no reference yet takes this one. guess returns the guesser of utterance i.
func (h *harness) speak(what string, r *rig, all []*utterance, guess func(i int) guesser) {
	speakers := make([]*speaker, len(all))
	b := &engine.Batch{Masks: r.draftMasks()}
	for i, u := range all {
		s := &speaker{utterance: u, slot: engine.Slot(i), guess: guess(i), info: &r.info}
		s.pages = r.pages(len(u.prompt) + draftSteps + 1)
		if u.shares {
			s.after = speakers[i-1]
			s.ran = kv.FloorPages(len(u.prompt)-1, r.info.PageTokens) * r.info.PageTokens
			copy(s.pages, s.after.pages[:s.ran/r.info.PageTokens])
		}
		speakers[i] = s
		b.Binds = append(b.Binds, engine.SlotBind{Slot: s.slot, Sampling: u.params, Prompt: u.prompt})
	}
	for steps := 0; ; steps++ {
		var rows []*speaker
		b.Rows = nil
		for _, s := range speakers {
			if row, due := s.row(steps); due {
				b.Rows, rows = append(b.Rows, row), append(rows, s)
			}
		}
		if len(rows) == 0 {
			break
		}
		res := r.run(b)
		var want engine.StepStats
		for i, s := range rows {
			ok(s.take(&b.Rows[i], i, res, &want))
		}
		if got := res.Stats; got.GivenTokens != want.GivenTokens || got.DeferredTokens != want.DeferredTokens ||
			got.Drafted != want.Drafted || got.Confirmed != want.Confirmed || got.Samples != want.Samples || got.KVTokensRead != want.KVTokensRead {
			failf("%s, step %d: the backend counts %+v, want %+v", what, steps, got, want)
		}
		b = &engine.Batch{}
	}
	for i, s := range speakers {
		if s.utterance.want == nil {
			s.utterance.want = s.got
		}
		if at := slices.IndexFunc(s.got, func(o engine.RowOut) bool { return !sameOut(&o, &s.utterance.want[o.Row]) }); at >= 0 {
			failf("%s: request %d, sample %d is %+v, want %+v as without drafts", what, i, at, s.got[at], s.utterance.want[at])
		}
	}
}

// sameOut reports whether two samples are the same bits.
func sameOut(a, b *engine.RowOut) bool {
	same := func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }
	return a.Token == b.Token && a.Digest == b.Digest && same(a.Logprob, b.Logprob) &&
		slices.EqualFunc(a.Top, b.Top, func(x, y engine.TokenLogprob) bool { return x.Token == y.Token && same(x.Logprob, y.Logprob) })
}

// speaker runs an utterance step by step.
type speaker struct {
	*utterance
	slot  engine.Slot
	info  *engine.Info
	pages []kv.PageID
	after *speaker // whose prompt must have run before; nil: none
	guess guesser
	ran   int
	got   []engine.RowOut // by sample; Row is its index
}

// row returns the next row, or false if none is due. Prompts run in chunks of 11 tokens. In every
// second step a decode row names its token.
func (s *speaker) row(step int) (r engine.Row, due bool) {
	if len(s.got) == draftSteps || s.after != nil && s.after.ran < len(s.prompt) {
		return r, false
	}
	r = engine.Row{Slot: s.slot, Start: int32(s.ran)}
	switch {
	case s.ran < len(s.prompt):
		r.Tokens = s.prompt[s.ran:min(s.ran+11, len(s.prompt))]
	case step%2 == 0:
		r.Tokens = []kv.Token{s.got[len(s.got)-1].Token}
	default:
		r.Deferred = true
	}
	if s.ran+r.Len() >= len(s.prompt) {
		r.Sample, r.Digest, r.SampleIndex = true, s.info.Capabilities.Digests, int32(len(s.got))
		r.Mask = s.mask(len(s.got))
		r.Drafts = s.guess(s.next())
		for i := range r.Drafts {
			r.DraftMasks = append(r.DraftMasks, s.mask(len(s.got)+i+1))
		}
		if !slices.ContainsFunc(r.DraftMasks, func(id engine.MaskID) bool { return id != 0 }) {
			r.DraftMasks = nil
		}
	}
	r.Pages = s.pages[:kv.CeilPages(s.ran+r.Len(), s.info.PageTokens)]
	return r, true
}

// next returns the tokens that follow, all but the last one, after which nothing is known.
func (s *speaker) next() []kv.Token {
	if s.want == nil {
		return nil
	}
	var next []kv.Token
	for _, o := range s.want[len(s.got) : draftSteps-1] {
		next = append(next, o.Token)
	}
	return next
}

func (s *speaker) mask(sample int) engine.MaskID {
	if s.masks == nil {
		return 0
	}
	return s.masks[sample%len(s.masks)]
}

// take appends what row r, which has the given index, has sampled, and adds to want what the backend
// should have counted for it.
func (s *speaker) take(r *engine.Row, index int, res *engine.Result, want *engine.StepStats) error {
	if n := r.Own(); r.Deferred {
		want.DeferredTokens += n
	} else {
		want.GivenTokens += n
	}
	n, d := r.Len(), len(r.Drafts)
	want.GivenTokens += d
	want.Drafted += d
	want.KVTokensRead += int64(n*int(r.Start) + n*(n+1)/2)
	s.ran += r.Own()
	if !r.Sample {
		return nil
	}
	if _, err := out(res, index); err != nil {
		return err
	}
	o := res.Out[slices.IndexFunc(res.Out, func(o engine.RowOut) bool { return o.Row == index })]
	right := 0
	for right < d && r.Drafts[right] == s.want[len(s.got)+right].Token {
		right++
	}
	asked := 0
	if r.Digest || s.params.Logprobs {
		asked = right
	}
	if int(o.Confirmed) != right || len(o.Drafts) != asked {
		return fmt.Errorf("row %d confirms %d of the drafts %v of samples from %d on, with %d outputs; want %d and %d, the tokens are %v",
			index, o.Confirmed, r.Drafts, len(s.got), len(o.Drafts), right, asked, s.next())
	}
	for i := range right {
		x := engine.RowOut{Row: len(s.got), Token: r.Drafts[i]}
		if asked > 0 {
			x.Logprob, x.Top, x.Digest = o.Drafts[i].Logprob, o.Drafts[i].Top, o.Drafts[i].Digest
		}
		s.got = append(s.got, x)
	}
	s.got = append(s.got, engine.RowOut{Row: len(s.got), Token: o.Token, Logprob: o.Logprob, Top: o.Top, Digest: o.Digest})
	s.ran += right
	want.Confirmed += right
	want.Samples += right + 1
	return nil
}

// checkDraftErrors has masks that allow no token: after a confirmed guess the row fails, after a
// refused one it does not.
func checkDraftErrors(h *harness) {
	r := h.open(usual(4))
	p := r.tokens(1, 9)
	pages := r.pages(16)
	b := &engine.Batch{
		Binds: []engine.SlotBind{{Slot: 0}},
		Masks: []engine.MaskSet{{ID: 1, Bits: r.maskOf()}, {ID: 2, Bits: r.maskOf(40)}},
		Rows:  []engine.Row{{Tokens: p, Pages: pages, Sample: true, Mask: 2}},
	}
	r.run(b)
	again := func(drafts []kv.Token, masks ...engine.MaskID) *engine.Batch {
		return &engine.Batch{Rows: []engine.Row{{Start: 8, Tokens: p[8:], Pages: pages, Sample: true, Mask: 2, Drafts: drafts, DraftMasks: masks}}}
	}
	if o := r.answer(again([]kv.Token{41, 40}, 1, 1)); o.Token != 40 || o.Confirmed != 0 {
		failf("a refused draft before masks of no token: token %d after %d drafts, want 40 after none", o.Token, o.Confirmed)
	}
	res := r.run(again([]kv.Token{40, 40, 40}, 2, 1, 2))
	if _, err := out(res, 0); !errors.Is(err, engine.ErrNoToken) {
		failf("a mask of no token after two confirmed drafts: %v, want ErrNoToken", err)
	}
	if o := &res.Out[0]; o.Confirmed != 0 || o.Drafts != nil {
		failf("a row that failed confirms %d drafts with %d outputs, want none", o.Confirmed, len(o.Drafts))
	}
	res = r.run(&engine.Batch{Rows: []engine.Row{{Start: 9, Deferred: true, Pages: pages, Sample: true, Drafts: []kv.Token{1}}}})
	if _, err := out(res, 0); err == nil {
		failf("a deferred row with a draft runs after a row that failed")
	}
}
