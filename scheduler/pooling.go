package scheduler

import (
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/internal/enum"
)

// Pooling says how the hidden states of a prompt's tokens become one vector, its embedding.
type Pooling uint8

// The poolings.
const (
	// NoPooling: the request asks for output, and for no embedding.
	NoPooling Pooling = iota
	// LastToken takes the state at the last token. Only tokens that are not cached are computed.
	LastToken
	// MeanTokens takes the mean of the states at all tokens. The cache has no states, so the whole prompt
	// is computed; later requests find its KV as usual.
	MeanTokens
)

var poolingNames = enum.New[Pooling]("scheduler", "pooling", "none", "last", "mean")

func (p Pooling) String() string { return poolingNames.Name(p) }

// UnmarshalText sets p from its name: none, last or mean.
func (p *Pooling) UnmarshalText(text []byte) error { return poolingNames.Read(p, text) }

// checkPooling refuses a request for an embedding that asks for something of an output.
func checkPooling(info *engine.Info, req *Request) error {
	field := ""
	switch {
	case !poolingNames.Has(req.Pooling):
		return refuse("Pooling", ErrInvalid, "Pooling is %v, want %s", req.Pooling, poolingNames.Names())
	case req.Pooling == NoPooling:
		return nil
	case info.HiddenSize == 0:
		return refuse("Pooling", ErrInvalid, "the backend %s gives no hidden states, so there are no embeddings", info.Name)
	case req.MaxTokens != 0:
		field = "MaxTokens"
	case req.MinTokens != 0:
		field = "MinTokens"
	case req.Samples > 1:
		field = "Samples"
	case req.Format != nil:
		field = "Format"
	case req.Stops != nil:
		field = "Stops"
	case len(req.AllowedTokens) > 0:
		field = "AllowedTokens"
	case len(req.Prediction) > 0:
		field = "Prediction"
	case req.PromptLogprobs:
		field = "PromptLogprobs"
	case req.Digest:
		field = "Digest"
	default:
		return nil
	}
	return refuse(field, ErrInvalid, "%s is given, but a request for an embedding has no output", field)
}

// hidden returns the hidden state that a row of q asks for; last reports that the row is the one that
// reaches the end of the prompt.
func (q *sequence) hidden(last bool) engine.Hidden {
	switch {
	case q.req.Pooling == MeanTokens:
		return engine.HiddenSum
	case q.req.Pooling == LastToken && last:
		return engine.HiddenLast
	}
	return engine.HiddenNone
}

// computesAll reports whether q takes nothing from the cache, since it needs the logits or the states of
// all positions of its prompt.
func (q *sequence) computesAll() bool { return q.wantsPrompt() || q.req.Pooling == MeanTokens }

// checkHidden checks the hidden state in out, the answer for row i.
func checkHidden(info *engine.Info, i int, out *engine.RowOut) error {
	if len(out.Hidden) != info.HiddenSize {
		return breach(info, i, "it gives a hidden state of %d values, want %d", len(out.Hidden), info.HiddenSize)
	}
	for j, v := range out.Hidden {
		if v-v != 0 { // infinite or NaN
			return breach(info, i, "value %d of its hidden state is %v", j, v)
		}
	}
	return nil
}

// embeds reports whether a row of q that ends at position end has its embedding.
func (q *sequence) embeds(end int32) bool { return q.req.Pooling != NoPooling && int(end) == q.prompt }

// embedding returns the embedding of q's prompt. It changes state, the answer of q's last row.
func (q *sequence) embedding(state []float32) []float32 {
	if q.req.Pooling == MeanTokens {
		for i := range state {
			state[i] /= float32(q.prompt)
		}
	}
	return state
}
