package sampling

import (
	"math"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/internal/f32"
	"github.com/coppice-llm/coppice/kv"
)

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
