package sim

import (
	"math"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/sampling"
	"github.com/coppice-llm/coppice/kv"
)

// sampler draws tokens from hashes, by logits or without.
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

// bind keeps no slice of b.
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

// sample fills out from the hash after row r, number row of its batch.
func (s *sampler) sample(r *engine.Row, row int, hash uint64, out *engine.RowOut) {
	if s.draw != nil {
		logitsOf(hash, s.logits)
		s.draw.Sample(r, row, s.logits, out)
		return
	}
	if r.Digest {
		out.Digest = digestOf(hash)
	}
	if r.Sample {
		out.Token, out.Err = draw(hash, s.vocab, &s.params[r.Slot], r)
	}
}

// logprob is the log-probability of token t after a prefix.
func (s *sampler) logprob(hash uint64, t kv.Token) float32 {
	logitsOf(hash, s.logits)
	return sampling.Normalize(s.logits).Logprob(s.logits[t])
}

// prompt is RowOut.Prompt of row r, which has run: hashes are read from its pages.
// ran is what its slot ran before. Without logits no row asks for it.
func (s *sampler) prompt(r *engine.Row, tokens []kv.Token, p *pool, ran *progress) []float32 {
	out := make([]float32, 0, len(tokens))
	if r.Start > 0 {
		first := float32(math.NaN())
		if ran.end == r.Start {
			first = s.logprob(ran.hash, tokens[0])
		}
		out = append(out, first)
	}
	for i, t := range tokens[1:] {
		out = append(out, s.logprob(p.at(r.Pages, int(r.Start)+i).hash, t))
	}
	return out
}
