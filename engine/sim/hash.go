package sim

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/internal/sampling"
	"github.com/coppice-llm/coppice/internal/splitmix"
	"github.com/coppice-llm/coppice/kv"
)

// The salts keep values of different use, drawn from one hash, independent.
const (
	saltToken  = 0x746f6b656e000000
	saltDigest = 0x6469676573740000
)

// rootHash returns the hash of the empty prefix.
func rootHash(seed uint64) uint64 { return splitmix.Mix(seed + splitmix.Golden) }

// forceBias is the least bias that forces its token in the mode without logits; real logits
// lie in [-4, 4).
const forceBias = 100

// Expect returns the output that a request for n tokens with these parameters must get, whatever
// else runs. It computes the output from the tokens alone, without pages, slots or batches. If
// mask is not nil, it returns the mask of the next token, given the output so far. The output ends
// early where the mask allows no token. Any goroutine may call Expect.
func (b *Backend) Expect(prompt []kv.Token, p engine.SamplingParams, n int, mask func(output []kv.Token) []uint64) []kv.Token {
	hash := b.pool.root
	for _, t := range prompt {
		hash = extend(hash, t)
	}
	s := newSampler(1, b.info.Vocab, b.cfg.Logits)
	s.bind(&engine.SlotBind{Sampling: p, Prompt: prompt})
	out := make([]kv.Token, 0, n)
	for i := range n {
		row, in := engine.RowOut{}, engine.Row{Sample: true, SampleIndex: int32(i)}
		var allowed []uint64
		if mask != nil {
			allowed = mask(out)
		}
		if s.sample(&in, 0, allowed, hash, &row); row.Err != nil {
			break
		}
		out = append(out, row.Token)
		hash = extend(hash, row.Token)
	}
	return out
}

// extend chains one more token to the hash of a prefix.
func extend(hash uint64, t kv.Token) uint64 {
	return splitmix.Mix(hash*splitmix.Golden + uint64(t) + 1)
}

// sampler draws tokens from hashes, with or without logits.
type sampler struct {
	vocab  int
	params []engine.SamplingParams // by slot
	draw   *sampling.Sampler       // nil without logits
	logits []float32
}

func newSampler(slots, vocab int, logits bool) *sampler {
	s := &sampler{vocab: vocab}
	if logits {
		s.draw, s.logits = sampling.New(slots, vocab), make([]float32, vocab)
	} else {
		s.params = make([]engine.SamplingParams, slots)
	}
	return s
}

// bind sets the parameters of b.Slot. It keeps no slice of b.
func (s *sampler) bind(b *engine.SlotBind) {
	if s.draw != nil {
		s.draw.Bind(b)
		return
	}
	p := &s.params[b.Slot]
	bias := append(p.Bias[:0], b.Sampling.Bias...)
	*p = b.Sampling
	p.Bias = bias
}

// sample fills out for row r, which has index row in its batch. hash is that of the prefix up to
// the end of r and of the drafts that are confirmed; mask is that of the sample, or nil. more reports
// that the next draft is confirmed, see sampling.Sampler.Sample.
func (s *sampler) sample(r *engine.Row, row int, mask []uint64, hash uint64, out *engine.RowOut) (more bool) {
	if s.draw != nil {
		logitsOf(hash, s.logits)
		return s.draw.Sample(r, row, mask, s.logits, out)
	}
	i := out.Confirmed
	if r.Digest {
		if i > 0 {
			out.Drafts = append(out.Drafts, engine.DraftOut{Digest: out.Digest})
		}
		out.Digest = digestOf(hash)
	}
	if !r.Sample {
		return false
	}
	token, err := draw(hash, s.vocab, &s.params[r.Slot], r.SampleIndex+i, mask)
	if err != nil {
		*out = engine.RowOut{Row: row, Digest: out.Digest, Err: err}
		return false
	}
	out.Token = token
	if more = int(i) < len(r.Drafts) && token == r.Drafts[i]; more {
		out.Confirmed++
	}
	return more
}

// draw returns the token after a prefix in the mode without logits. It draws a token uniformly
// from the vocabulary, then takes the next higher token, cyclically, that mask and biases allow.
// If p.Bias forces allowed tokens, draw returns that with the largest bias. hash is the prefix's,
// p are the slot's parameters, index is the token's in the output, mask is nil if there is none. The error wraps ErrNoToken if no
// token is allowed.
func draw(hash uint64, vocab int, p *engine.SamplingParams, index int32, mask []uint64) (kv.Token, error) {
	h := splitmix.Mix(hash ^ saltToken)
	if p.Temperature > 0 {
		h = splitmix.Mix(splitmix.Mix(h^p.Seed) + uint64(uint32(index)+1)*splitmix.Golden)
	}
	hi, _ := bits.Mul64(h, uint64(vocab))
	first := kv.Token(hi)
	if len(p.Bias) == 0 && mask == nil {
		return first, nil
	}
	allowed := func(t kv.Token) bool { return mask == nil || mask[t/64]>>(t%64)&1 == 1 }
	force, best := float32(forceBias), -1
	for i, b := range p.Bias {
		if b.Bias >= force && (best < 0 || b.Bias > force) && allowed(b.Token) {
			force, best = b.Bias, i
		}
	}
	if best >= 0 {
		return p.Bias[best].Token, nil
	}
	for i := range vocab {
		t := kv.Token((int(first) + i) % vocab)
		if allowed(t) && !forbidden(p, t) {
			return t, nil
		}
	}
	return 0, fmt.Errorf("%w: of %d", engine.ErrNoToken, vocab)
}

func forbidden(p *engine.SamplingParams, t kv.Token) bool {
	for _, b := range p.Bias {
		if b.Token == t {
			return math.IsInf(float64(b.Bias), -1)
		}
	}
	return false
}

// digestOf returns the digest of a row in the mode without logits; hash is that of the prefix up
// to the row's end.
func digestOf(hash uint64) uint64 { return splitmix.Mix(hash ^ saltDigest) }

// prompt fills in out.Prompt for row r, which has run, with the given tokens: it reads the hashes
// from the row's pages in p. ran is the state of r's slot before the row. Only a backend with
// logits is asked for it.
func (s *sampler) prompt(r *engine.Row, tokens []kv.Token, p *pool, ran *progress, out *engine.RowOut) {
	out.Prompt = make([]float32, 0, len(tokens))
	token := func(hash uint64, t kv.Token) {
		logitsOf(hash, s.logits)
		sampling.Prompt(r, s.logits, t, out)
	}
	switch {
	case r.Start > 0 && ran.end == r.Start:
		token(ran.hash, tokens[0])
	case r.Start > 0:
		sampling.PromptUnknown(r, out)
	}
	for i, t := range tokens[1:] {
		token(p.at(r.Pages, int(r.Start)+i).hash, t)
	}
}

// logitsOf fills logits with those after the prefix that has this hash: uniform over [-4, 4), with
// 24 bits each, which float32 holds exactly.
func logitsOf(hash uint64, logits []float32) {
	for t := range logits {
		h := splitmix.Mix(hash ^ uint64(t+1)*splitmix.Golden)
		logits[t] = float32(int32(h>>32)>>8) * 0x1p-21
	}
}
