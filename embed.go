package coppice

import (
	"cmp"
	"context"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// The poolings of an EmbedRequest.
const (
	LastToken  = scheduler.LastToken  // the state at the last token
	MeanTokens = scheduler.MeanTokens // the mean of the states at all tokens; computes the whole prompt
)

// EmbedRequest asks for the embedding of a text. The fields that are also in Request have the same
// meaning there.
type EmbedRequest struct {
	// Tokens and Prompt are the text, as in Request.
	Tokens []kv.Token
	Prompt string
	// Pooling makes one vector of the states at all tokens. Default: Config.Pooling.
	Pooling scheduler.Pooling
	// Dimensions keeps that many of the first values. Default: all, Info().HiddenSize.
	Dimensions int
	// Raw leaves the vector as it is. Default: its length is 1.
	Raw bool

	Namespace    kv.Namespace
	PublicTokens int
	Tenant       string
	Priority     int32
	Timeout      time.Duration
	QueueTimeout time.Duration
}

// Embedding is the embedding of a text.
type Embedding struct {
	Vector []float32
	// Ending has the bill of the request. Its Tokens are those of the text.
	Ending
}

// Embed returns the embedding of a text. Texts share the prefix cache with each other and with prompts:
// with the pooling LastToken only tokens that are not cached are computed. The vector has the same bits
// cached or not, alone or among other requests. Embed returns when the text is computed, ctx ends or the
// request fails; the errors are those of Text. A backend that gives no hidden states (Info().HiddenSize
// is 0) refuses with ErrInvalid.
func (n *Node) Embed(ctx context.Context, r EmbedRequest) (Embedding, error) {
	stream, err := n.Stream(Request{
		Tokens: r.Tokens, Prompt: r.Prompt, Namespace: r.Namespace, PublicTokens: r.PublicTokens, Tenant: r.Tenant, Priority: r.Priority,
		Timeout: r.Timeout, QueueTimeout: r.QueueTimeout,
		Embed: Embed{Pooling: cmp.Or(r.Pooling, n.Pooling()), Dimensions: r.Dimensions, Raw: r.Raw},
	})
	if err != nil {
		return Embedding{}, err
	}
	p, err := stream.Next(ctx)
	if p.Ending == nil { // ctx has ended; the rest of the step runs without a caller
		return Embedding{}, err
	}
	return Embedding{p.Embedding, *p.Ending}, err
}

// Pooling returns Config.Pooling, or its default.
func (n *Node) Pooling() scheduler.Pooling { return n.sys.Pooling() }
