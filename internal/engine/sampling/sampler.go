package sampling

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// Sampler draws tokens for the slots of one backend.
type Sampler struct {
	vocab int
	slots []slot

	work  []float32 // logits as changed by biases, penalties, mask and temperature; -Inf is forbidden
	ids   []int32   // candidates, ascending
	wgt   []uint64  // their weights in 2^-40, as ids
	near  []scored  // scratch of cut
	bytes []byte    // one row of logits as little-endian f32
}

// slot is the sampling state of one sequence.
type slot struct {
	params engine.SamplingParams
	last   kv.Token
	// sampled tells that last is the sequence's: false after Bind and after a
	// sample that failed.
	sampled bool
	counts  counts
}

// New makes a sampler for slots [0, slots) and tokens [0, vocab). Memory:
// 33 bytes per token of the vocabulary, and 4 for each slot that ever had a
// penalty on.
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

// Bind gives b.Slot to a sequence: parameters as in b, no last token, and
// counts rebuilt from b.Prompt and b.Output if a penalty is on. It keeps no slice
// of b.
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

// Last is the slot's last sampled token; ok is false if it has none since Bind,
// or if its last sample failed.
func (s *Sampler) Last(id engine.Slot) (token kv.Token, ok bool) {
	return s.slots[id].last, s.slots[id].sampled
}

// Fail notes that the slot's last sample failed: a Deferred row has no token.
func (s *Sampler) Fail(id engine.Slot) { s.slots[id].sampled = false }

// Sample fills out for row r, number index of its batch, from its mask, nil for none, and
// its raw logits (len = vocab, left as they are): Digest if asked, Err if a logit is not finite
// or nothing is allowed, else Token and the log-probabilities asked for. A
// sampled token becomes the slot's last one and is counted by its penalties.
// With r.Sample unset only the digest is taken. Cost O(vocab), no allocation
// but out.Top.
func (s *Sampler) Sample(r *engine.Row, index int, mask []uint64, logits []float32, out *engine.RowOut) {
	if len(logits) != s.vocab {
		panic(fmt.Sprintf("sampling: %d logits for a vocabulary of %d", len(logits), s.vocab))
	}
	sl := &s.slots[r.Slot]
	out.Row = index
	if r.Digest {
		out.Digest = s.digest(logits)
	}
	best, finite := scan(logits)
	if !finite {
		at := notFinite(logits)
		sl.sampled = false
		out.Err = fmt.Errorf("%w: row %d, token %d has %v", engine.ErrLogits, index, at, logits[at])
		return
	}
	if !r.Sample {
		return
	}
	token, ok := s.draw(sl, r, mask, logits, best)
	if !ok {
		sl.sampled = false
		out.Err = fmt.Errorf("%w: row %d", engine.ErrNoToken, index)
		return
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
}

// draw applies the slot's parameters in the order of engine.SamplingParams. best is
// the index of the largest logit.
func (s *Sampler) draw(sl *slot, r *engine.Row, mask []uint64, logits []float32, best int) (kv.Token, bool) {
	p := &sl.params
	if len(p.Bias) == 0 && !p.Penalised() && mask == nil && p.Temperature == 0 {
		return kv.Token(best), true
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
	return s.random(p, r.SampleIndex)
}

// digest is XXH3-64 over the logits as f32 little-endian.
func (s *Sampler) digest(logits []float32) uint64 {
	for i, l := range logits {
		binary.LittleEndian.PutUint32(s.bytes[4*i:], math.Float32bits(l))
	}
	return xxh3.Hash(s.bytes)
}

// scan is argmax, and whether all are finite, in one pass: x-x is 0 for those that
// are and NaN for the others, which a sum keeps.
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

// notFinite is the first token whose logit is NaN or infinite, or -1.
func notFinite(logits []float32) int {
	for i, l := range logits {
		if l-l != 0 {
			return i
		}
	}
	return -1
}

// argmax is the index of the largest value, the lowest on ties.
func argmax(v []float32) int {
	best := 0
	for i, x := range v {
		if x > v[best] {
			best = i
		}
	}
	return best
}

// clamp keeps a changed logit finite, so that no overflow forbids or forces a
// token; -Inf from a bias stays, it forbids.
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
