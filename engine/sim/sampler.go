package sim

import (
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/internal/sampling"
	"github.com/coppice-llm/coppice/kv"
)

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
// the end of r; mask is the row's, or nil.
func (s *sampler) sample(r *engine.Row, row int, mask []uint64, hash uint64, out *engine.RowOut) {
	if s.draw != nil {
		logitsOf(hash, s.logits)
		s.draw.Sample(r, row, mask, s.logits, out)
		return
	}
	if r.Digest {
		out.Digest = digestOf(hash)
	}
	if r.Sample {
		out.Token, out.Err = draw(hash, s.vocab, &s.params[r.Slot], r, mask)
	}
}

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
