package sampling

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/internal/f32"
	"github.com/coppice-llm/coppice/kv"
)

// Sampler draws tokens for the slots of one backend.
type Sampler struct {
	vocab int
	slots []slot

	work  []float32 // logits after biases, penalties, mask and temperature; -Inf means forbidden
	ids   []int32   // candidates, ascending
	wgt   []uint64  // weights of ids, in units of 2^-40
	near  []scored  // scratch of cut
	bytes []byte    // one row of logits as little-endian f32
}

// slot is the sampling state of one sequence.
type slot struct {
	params engine.SamplingParams
	last   kv.Token
	// sampled reports that last is valid: false after Bind and after a failed sample.
	sampled bool
	counts  counts
}

// New returns a sampler for slots [0, slots) and tokens [0, vocab). It allocates 36 bytes per token
// of the vocabulary, and 8 more per token for each slot that ever had a penalty.
func New(slots, vocab int) *Sampler {
	return &Sampler{
		vocab: vocab,
		slots: make([]slot, slots),
		work:  make([]float32, vocab),
		ids:   make([]int32, 0, vocab),
		wgt:   make([]uint64, 0, vocab),
		near:  make([]scored, 0, vocab),
		bytes: make([]byte, 4*vocab),
	}
}

// Bind assigns b.Slot to a sequence: it sets the parameters, clears the last token and, if a
// penalty is on, rebuilds the counts from b.Prompt and b.Output. It keeps no slice of b.
func (s *Sampler) Bind(b *engine.SlotBind) {
	sl := &s.slots[b.Slot]
	bias := append(sl.params.Bias[:0], b.Sampling.Bias...)
	sl.params, sl.last, sl.sampled = b.Sampling, 0, false
	sl.params.Bias = bias
	sl.counts.reset()
	if sl.params.Penalised() {
		sl.counts.rebuild(s.vocab, b.Prompt, b.Output)
	}
}

// Last returns the slot's last sampled token. ok is false if it has sampled none since Bind, or if
// its last sample failed.
func (s *Sampler) Last(id engine.Slot) (token kv.Token, ok bool) {
	return s.slots[id].last, s.slots[id].sampled
}

// Fail records that the slot's last sample failed: Last returns no token.
func (s *Sampler) Fail(id engine.Slot) { s.slots[id].sampled = false }

// Sample fills out for row r, which has the given index in its batch. mask may be nil; logits are
// the raw ones, with len = vocab, and are not changed. It sets Digest if r asks for it. If a logit
// is not finite, or no token is allowed, it sets Err. Otherwise, if r.Sample is set, it sets Token
// and the requested log-probabilities; the token becomes the slot's last one and is counted for
// penalties. The cost is O(vocab). It allocates only out.Top and, if the row asks for something
// besides tokens, out.Drafts.
//
// A row with drafts calls it once per position, from that of the row's last own token on, with the
// mask of r.MaskAt, while it returns true: the sample equals the next draft, which is then confirmed,
// and the logits after that draft come next.
func (s *Sampler) Sample(r *engine.Row, index int, mask []uint64, logits []float32, out *engine.RowOut) (more bool) {
	if len(logits) != s.vocab {
		panic(fmt.Sprintf("sampling: %d logits for a vocabulary of %d", len(logits), s.vocab))
	}
	sl := &s.slots[r.Slot]
	out.Row = index
	i := out.Confirmed
	if i > 0 {
		keepDraft(r, &sl.params, out)
	}
	if r.Digest {
		out.Digest = s.digest(logits)
	}
	best, finite := scan(logits)
	if !finite {
		at := slices.IndexFunc(logits, func(l float32) bool { return l-l != 0 })
		s.FailRow(r, fmt.Errorf("%w: row %d, token %d has %v", engine.ErrLogits, index, at, logits[at]), out)
		return false
	}
	if !r.Sample {
		return false
	}
	token, ok := s.draw(sl, r.SampleIndex+i, mask, logits, best)
	if !ok {
		s.FailRow(r, fmt.Errorf("%w: row %d", engine.ErrNoToken, index), out)
		return false
	}
	out.Token = token
	if p := &sl.params; p.Logprobs || p.TopLogprobs > 0 {
		n := Normalize(logits)
		out.Logprob = n.Logprob(logits[token])
		if p.TopLogprobs > 0 {
			out.Top = n.top(logits, int(p.TopLogprobs))
		}
	}
	sl.last, sl.sampled = token, true
	if sl.params.Penalised() {
		sl.counts.add(token)
	}
	if int(i) < len(r.Drafts) && token == r.Drafts[i] {
		out.Confirmed++
		return true
	}
	return false
}

// keepDraft moves what out has besides the token, that of the last confirmed draft, to the end of
// out.Drafts, if row r or the parameters p ask for any of it.
func keepDraft(r *engine.Row, p *engine.SamplingParams, out *engine.RowOut) {
	if !r.Digest && !p.Logprobs && p.TopLogprobs == 0 {
		return
	}
	if out.Drafts == nil {
		out.Drafts = make([]engine.DraftOut, 0, len(r.Drafts))
	}
	out.Drafts = append(out.Drafts, engine.DraftOut{Logprob: out.Logprob, Top: out.Top, Digest: out.Digest})
	out.Logprob, out.Top, out.Digest = 0, nil, 0
}

// FailRow ends row r with err: out has nothing else, and the slot no last sample, whatever the row's
// earlier samples were.
func (s *Sampler) FailRow(r *engine.Row, err error, out *engine.RowOut) {
	s.Fail(r.Slot)
	*out = engine.RowOut{Row: out.Row, Prompt: out.Prompt, PromptTop: out.PromptTop, Digest: out.Digest, Err: err}
}

// draw applies the slot's parameters in the order of engine.SamplingParams and returns the token with
// that index in the output; ok is false if none is allowed. best is the index of the largest logit.
func (s *Sampler) draw(sl *slot, index int32, mask []uint64, logits []float32, best int) (kv.Token, bool) {
	p := &sl.params
	if len(p.Bias) == 0 && !p.Penalised() && p.Temperature == 0 {
		return allowed(logits, mask, best)
	}
	copy(s.work, logits)
	for _, b := range p.Bias {
		s.work[b.Token] = clamp(s.work[b.Token] + b.Bias)
	}
	if p.Penalised() {
		sl.counts.apply(s.work, p)
	}
	applyMask(s.work, mask)
	if p.Temperature == 0 {
		best := argmax(s.work)
		return kv.Token(best), !math.IsInf(float64(s.work[best]), -1)
	}
	return s.random(p, index)
}

// allowed returns the token of the largest logit that the mask allows, the lowest on ties; best is that of
// all tokens. It reads the logits of allowed tokens only: under a format, those are often few.
func allowed(logits []float32, mask []uint64, best int) (kv.Token, bool) {
	if mask == nil || mask[best/64]>>(best%64)&1 != 0 {
		return kv.Token(best), true
	}
	at, top := -1, float32(math.Inf(-1))
	for w, left := range mask {
		for ; left != 0; left &= left - 1 {
			t := 64*w + bits.TrailingZeros64(left)
			if t < len(logits) && logits[t] > top {
				at, top = t, logits[t]
			}
		}
	}
	return kv.Token(max(at, 0)), at >= 0
}

// digest returns XXH3-64 of the logits as little-endian f32.
func (s *Sampler) digest(logits []float32) uint64 {
	for i, l := range logits {
		binary.LittleEndian.PutUint32(s.bytes[4*i:], math.Float32bits(l))
	}
	return xxh3.Hash(s.bytes)
}

// scan returns argmax and reports whether all values are finite, in one pass: x-x is 0 for finite
// values and NaN for others, and a sum with NaN stays NaN.
func scan(v []float32) (best int, finite bool) {
	top, sum := float32(math.Inf(-1)), float32(0)
	for i, x := range v {
		sum += x - x
		if x > top {
			best, top = i, x
		}
	}
	return best, sum == 0
}

// argmax returns the index of the largest value, the lowest on ties.
func argmax(v []float32) int {
	best := 0
	for i, x := range v {
		if x > v[best] {
			best = i
		}
	}
	return best
}

// clamp limits a changed logit to the largest f32, so that no overflow forces a token. -Inf from a
// bias stays: it forbids the token.
func clamp(x float32) float32 {
	if x > math.MaxFloat32 {
		return math.MaxFloat32
	}
	return x
}

// applyMask forbids the tokens whose bit is clear; nil allows all.
func applyMask(work []float32, mask []uint64) {
	if mask == nil {
		return
	}
	for t := range work {
		if mask[t/64]>>(t%64)&1 == 0 {
			work[t] = float32(math.Inf(-1))
		}
	}
}

// Norm converts logits to log-probabilities: it holds the largest logit and the logarithm of the
// sum of e^(l-max).
type Norm struct{ max, logSum float32 }

// Normalize returns the Norm of logits, which must be finite. The sum has a fixed order: the
// exponential of token t goes into partial sum t mod 16, and f32.Tree16 adds the 16 partial sums.
func Normalize(logits []float32) Norm {
	n := Norm{max: logits[argmax(logits)]}
	var lanes [f32.Lanes]float32
	for t, l := range logits {
		lanes[t%f32.Lanes] += f32.Exp32(l - n.max)
	}
	n.logSum = f32.Log32(f32.Tree16(&lanes))
	return n
}

// Logprob returns the natural logarithm of the probability of a token with that logit.
func (n Norm) Logprob(logit float32) float32 { return (logit - n.max) - n.logSum }

// top lists the k most probable tokens, best first, lower ids first on ties.
func (n Norm) top(logits []float32, k int) []engine.TokenLogprob {
	k = min(k, len(logits))
	top := make([]engine.TokenLogprob, 0, k)
	worst := float32(math.Inf(-1))
	for t, l := range logits {
		if len(top) == k && l <= worst {
			continue
		}
		if len(top) < k {
			top = append(top, engine.TokenLogprob{})
		}
		i := len(top) - 1
		for ; i > 0 && top[i-1].Logprob < l; i-- {
			top[i] = top[i-1]
		}
		top[i] = engine.TokenLogprob{Token: kv.Token(t), Logprob: l}
		worst = top[len(top)-1].Logprob
	}
	for i := range top {
		top[i].Logprob = n.Logprob(top[i].Logprob)
	}
	return top
}

// Prompt appends to out.Prompt the log-probability of token, a token of the prompt. logits are
// those of the position before it. If r.PromptTop is positive, Prompt also appends the r.PromptTop
// most probable tokens to out.PromptTop.
func Prompt(r *engine.Row, logits []float32, token kv.Token, out *engine.RowOut) {
	n := Normalize(logits)
	out.Prompt = append(out.Prompt, n.Logprob(logits[token]))
	if r.PromptTop > 0 {
		out.PromptTop = append(out.PromptTop, n.top(logits, int(r.PromptTop)))
	}
}

// PromptUnknown is Prompt for a token whose logits were not computed. It appends NaN to
// out.Prompt, and nil to out.PromptTop if r.PromptTop is positive.
func PromptUnknown(r *engine.Row, out *engine.RowOut) {
	out.Prompt = append(out.Prompt, float32(math.NaN()))
	if r.PromptTop > 0 {
		out.PromptTop = append(out.PromptTop, nil)
	}
}
