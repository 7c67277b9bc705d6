package enginetest

import (
	"fmt"
	"math"
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

func tokensOf(s []sample) []kv.Token {
	t := make([]kv.Token, len(s))
	for i := range s {
		t[i] = s[i].token
	}
	return t
}

// checkSeed checks that equal seeds give equal tokens, alone and in a batch with others, and that
// another seed or sample index gives other tokens.
func checkSeed(h *harness) {
	const steps = 6
	params := engine.SamplingParams{Temperature: 1.5, Seed: 42}
	r := h.open(usual(16))
	prompt := r.tokens(1, 30)
	want := h.solo(params, prompt, steps)
	a := r.sequence(0, params, prompt, steps)
	b := r.sequence(1, engine.SamplingParams{Temperature: 1.5, Seed: 43}, prompt, steps)
	c := r.sequence(2, params, prompt, steps)
	binds := []engine.SlotBind{c.bind(), a.bind(), b.bind()}
	for len(a.out) < steps {
		r.step(11, binds, b, c, a)
		binds = nil
	}
	equal("seeded request among others", a.out, want)
	equal("its twin in another slot", c.out, want)
	if slices.Equal(tokensOf(a.out), tokensOf(b.out)) {
		failf("seeds 42 and 43 give the same tokens %v", tokensOf(a.out))
	}
	// The same logits under many sample indices: equal draws would mean that the index is
	// unused.
	d := r.sequence(3, params, prompt, steps)
	batch := &engine.Batch{Binds: []engine.SlotBind{d.bind()}, Rows: []engine.Row{d.row(&r.info, 100)}}
	seen := map[kv.Token]bool{}
	for i := range 12 {
		batch.Rows[0].SampleIndex = int32(i)
		seen[must(out(r.run(batch), 0)).token] = true
	}
	if len(seen) < 2 {
		failf("12 sample indices give one token: %v", seen)
	}
}

// checkPenalties compares counts updated step by step with counts rebuilt by Bind at every
// step, and checks that prompt and output count at all.
func checkPenalties(h *harness) {
	const steps = 8
	r := h.open(usual(16))
	// The bias makes the token win until it counts; then a huge penalty suppresses it.
	const token = kv.Token(99)
	prompt := slices.DeleteFunc(r.tokens(1, 30), func(t kv.Token) bool { return t == token })
	once := engine.SamplingParams{RepetitionPenalty: 1e6, Bias: []engine.TokenBias{{Token: token, Bias: 1000}}}
	for _, p := range []engine.SamplingParams{
		once,
		{RepetitionPenalty: 1.7}, {FrequencyPenalty: 2}, {PresencePenalty: 2},
		{Temperature: 1, Seed: 5, RepetitionPenalty: 1.3, PresencePenalty: -1, FrequencyPenalty: 0.5},
	} {
		want := h.solo(p, prompt, steps)
		s := r.sequence(0, p, prompt, steps)
		for len(s.out) < steps {
			r.step(100, []engine.SlotBind{s.bind()}, s)
		}
		equal(fmt.Sprintf("penalties %+v, counts rebuilt", p), s.out, want)
		r.free = append(r.free, s.pages...)
	}
	got := h.solo(once, prompt, 2)
	if got[0].token != token || got[1].token == token {
		failf("tokens %v under bias and penalty, want %d once", tokensOf(got), token)
	}
	got = h.solo(once, append(prompt, token), 1)
	if got[0].token == token {
		failf("token %d of the prompt is not penalised", token)
	}
}

// checkMask allows a few tokens, or none.
func checkMask(h *harness) {
	r := h.open(usual(16))
	allowed := []kv.Token{3, 64, 127}
	prompt := r.tokens(1, 9)
	for i, p := range []engine.SamplingParams{{}, {Temperature: 2, Seed: 1}, {Temperature: 1, TopP: 0.5, TopK: 50}} {
		s := r.sequence(0, p, prompt, 1)
		free := r.sequence(1, p, prompt, 1)
		b := &engine.Batch{Binds: []engine.SlotBind{s.bind(), free.bind()}, Rows: []engine.Row{s.row(&r.info, 100), free.row(&r.info, 100)}}
		b.Masks, b.Rows[0].Mask = []engine.MaskSet{{ID: 1, Bits: r.maskOf(allowed...)}}, 1
		res := r.run(b)
		s.take(b, res, 0)
		free.take(b, res, 1)
		if !slices.Contains(allowed, s.out[0].token) {
			failf("params %d: token %d, the mask allows %v", i, s.out[0].token, allowed)
		}
		if s.out[0].digest != free.out[0].digest {
			failf("the digest of masked logits differs; the digest must be over the raw logits")
		}
		b.Masks[0].Bits = r.maskOf()
		res = r.run(b)
		if _, err := out(res, 0); err == nil {
			failf("a row with an empty mask did not fail")
		}
		if got, err := out(res, 1); err != nil || got != free.out[0] {
			failf("the row next to one with an empty mask: %v, %v, want %v", got, err, free.out[0])
		}
	}
}

// checkBias forces one token and forbids another.
func checkBias(h *harness) {
	r := h.open(usual(16))
	prompt := r.tokens(1, 9)
	plain := h.solo(engine.SamplingParams{}, prompt, 1)
	for _, temperature := range []float32{0, 1} {
		forced := h.solo(engine.SamplingParams{Temperature: temperature, Bias: []engine.TokenBias{{Token: 77, Bias: 10000}}}, prompt, 1)
		if forced[0].token != 77 || forced[0].digest != plain[0].digest {
			failf("bias of 10000 on token 77: token %d, digest equal %v", forced[0].token, forced[0].digest == plain[0].digest)
		}
	}
	ban := engine.TokenBias{Token: plain[0].token, Bias: float32(math.Inf(-1))}
	banned := h.solo(engine.SamplingParams{Bias: []engine.TokenBias{ban}}, prompt, 1)
	if banned[0].token == ban.Token {
		failf("token %d is forbidden by its bias and sampled", ban.Token)
	}
}

// checkLogprobs checks the log-probabilities of a greedy and of a drawn token.
func checkLogprobs(h *harness) {
	r := h.open(usual(16))
	for i, temperature := range []float32{0, 1} {
		p := engine.SamplingParams{Temperature: temperature, Seed: 9, Logprobs: true, TopLogprobs: engine.MaxTopLogprobs}
		s := r.sequence(engine.Slot(i), p, r.tokens(1, 12), 1)
		o := r.answer(&engine.Batch{Binds: []engine.SlotBind{s.bind()}, Rows: []engine.Row{s.row(&r.info, 100)}})
		if len(o.Top) != engine.MaxTopLogprobs {
			failf("%d top log-probabilities, want %d", len(o.Top), engine.MaxTopLogprobs)
		}
		sum := 0.0
		for j, t := range o.Top {
			sum += math.Exp(float64(t.Logprob))
			if j > 0 && (t.Logprob > o.Top[j-1].Logprob || t.Logprob == o.Top[j-1].Logprob && t.Token <= o.Top[j-1].Token) {
				failf("top entries %d and %d are out of order: %v", j-1, j, o.Top)
			}
			if t.Token == o.Token && t.Logprob != o.Logprob {
				failf("token %d has log-probability %v, in the list %v", o.Token, o.Logprob, t.Logprob)
			}
		}
		if sum > 1.0001 || !(o.Logprob <= 0) || math.IsInf(float64(o.Logprob), 0) {
			failf("probabilities sum to %v, the token's logarithm is %v", sum, o.Logprob)
		}
		if temperature == 0 && (o.Token != o.Top[0].Token || o.Logprob != o.Top[0].Logprob) {
			failf("greedy token %d is not the top one of %v", o.Token, o.Top)
		}
	}
}

// checkPlace compares the most probable tokens at position at with the prompt's token there.
func checkPlace(at int, top []engine.TokenLogprob, most int, token kv.Token, logprob float32) {
	if len(top) != most {
		failf("position %d: %d most probable tokens, want %d", at, len(top), most)
	}
	for i, e := range top {
		if e.Token == token && e.Logprob != logprob || e.Token != token && e.Logprob < logprob || i > 0 && e.Logprob > top[i-1].Logprob {
			failf("position %d: token %d has %v, and the most probable are %v", at, token, logprob, top)
		}
		if e.Token == token {
			break // all later entries may be less probable
		}
	}
}

// checkLists compares the most probable tokens at positions of a prompt with those of a sample
// after the prompt up to there.
func checkLists(r *rig, prompt []kv.Token, lists [][]engine.TokenLogprob) {
	for at := 1; at < len(prompt); at += 9 {
		want := lists[at-1]
		s := r.sequence(1, engine.SamplingParams{Logprobs: true, TopLogprobs: int32(len(want))}, prompt[:at], 1)
		b := &engine.Batch{Binds: []engine.SlotBind{s.bind()}, Rows: []engine.Row{s.row(&r.info, at)}}
		if got := r.answer(b).Top; !slices.Equal(got, want) {
			failf("position %d: the prompt lists %v, a sample there %v", at, want, got)
		}
	}
}

// checkPromptLogprobs compares a prompt computed in one piece with the same in chunks, each
// log-probability with the list at its position, and lists with those of samples there.
func checkPromptLogprobs(h *harness) {
	r := h.open(usual(16))
	prompt := r.tokens(1, 40)
	const most = 3
	var lists [][]engine.TokenLogprob
	gather := func(slot engine.Slot, chunk int) (got []float32) {
		lists = lists[:0]
		s := r.sequence(slot, engine.SamplingParams{}, prompt, 1)
		binds := []engine.SlotBind{s.bind()}
		for {
			b := &engine.Batch{Binds: binds, Rows: []engine.Row{s.row(&r.info, chunk)}}
			b.Rows[0].PromptLogprobs, b.Rows[0].PromptTop = true, most
			o := r.answer(b)
			if n := len(o.PromptTop); n != len(o.Prompt) || len(got)+n >= len(prompt) {
				failf("the most probable tokens of %d places, there are %d", n, len(o.Prompt))
			}
			for i, top := range o.PromptTop {
				at := len(got) + i + 1
				checkPlace(at, top, most, prompt[at], o.Prompt[i])
			}
			got = append(got, o.Prompt...)
			lists = append(lists, o.PromptTop...)
			if b.Rows[0].Sample {
				break
			}
			binds = nil
		}
		return got
	}
	want := gather(0, 100)
	if len(want) != len(prompt)-1 {
		failf("%d log-probabilities for a prompt of %d", len(want), len(prompt))
	}
	for i, v := range want {
		if !(v <= 0) {
			failf("log-probability %d is %v", i, v)
		}
	}
	if r.info.Capabilities.Logprobs {
		checkLists(r, prompt, lists)
	}
	for _, chunk := range []int{1, 7, 39} {
		got := gather(1, chunk)
		if !slices.Equal(got, want) {
			failf("chunks of %d: log-probabilities %v, want %v", chunk, got, want)
		}
	}
}
