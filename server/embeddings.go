package server

import (
	"bufio"
	"net/http"
	"strings"
	"time"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/openai"
)

// inputsAtOnce is the number of inputs of one request that the node has at a time: enough to fill steps,
// and few enough to leave places for others.
const inputsAtOnce = 32

// vectorBytes is the memory of one value of a vector.
const vectorBytes = 4

// embeddings answers POST /v1/embeddings.
func (c *call) embeddings() error {
	ask, err := read(c, func(b []byte) (*openai.Embeddings, error) { return openai.DecodeEmbeddings(b, c.s.policies.reading) })
	if err != nil {
		return err
	}
	vectors, usage, err := c.embedAll(ask)
	if err != nil {
		return err
	}
	return c.long(func(w *bufio.Writer) error {
		return openai.WriteEmbeddings(w, c.s.cfg.Model, vectors, ask.Base64, usage)
	})
}

// embedAll returns the embeddings of all inputs of ask, and their tokens.
func (c *call) embedAll(ask *openai.Embeddings) (vectors [][]float32, usage conversation.Usage, err error) {
	info := c.s.cfg.Node.Info()
	if info.HiddenSize == 0 {
		return nil, usage, conversation.NewError(http.StatusBadRequest, "unsupported", "embeddings are not supported: the backend %s gives no hidden states", info.Name)
	}
	if err := c.acceptEmbeddings(ask, info.HiddenSize); err != nil {
		return nil, usage, err
	}
	reqs := make([]coppice.Request, len(ask.Inputs))
	for i, in := range ask.Inputs {
		reqs[i] = coppice.Request{
			Tokens: in.Tokens, Prompt: in.Text, PublicTokens: ask.PublicTokens, Priority: ask.Priority, Timeout: ask.Timeout, QueueTimeout: ask.QueueTimeout,
			Embed: coppice.Embed{Pooling: c.s.cfg.Node.Pooling(), Dimensions: ask.Dimensions, Raw: ask.Raw},
		}
		c.prepare(&reqs[i], &ask.Params)
	}
	vectors = make([][]float32, len(reqs))
	most := min(inputsAtOnce, c.s.cfg.MaxChoices)
	for lo := 0; lo < len(reqs); lo += most {
		hi := min(lo+most, len(reqs))
		if err := c.shorten(reqs[lo:hi]); err != nil {
			return nil, usage, err
		}
		if err := c.embed(reqs[lo:hi], vectors[lo:hi], &usage); err != nil {
			return nil, usage, blame(&ask.Params, err)
		}
	}
	return vectors, usage, nil
}

// acceptEmbeddings returns an error if this server can't serve ask, with vectors of size values.
func (c *call) acceptEmbeddings(ask *openai.Embeddings, size int) error {
	if len(ask.Ignored) > 0 {
		c.w.Header().Set("X-Coppice-Ignored", strings.Join(ask.Ignored, ", "))
	}
	if err := c.s.knows(ask.Model); err != nil {
		return err
	}
	switch n, most := len(ask.Inputs), c.s.cfg.MaxInputs; {
	case n > most:
		return conversation.Invalid("input", "too_many_inputs", "input has %d texts, want at most %d in one request", n, most)
	case ask.Dimensions > size:
		return conversation.Invalid("dimensions", "invalid_value", "dimensions is %d, the model's vectors have %d", ask.Dimensions, size)
	}
	for i := range ask.Inputs {
		in := &ask.Inputs[i]
		if err := conversation.Fit("input", in.Tokens, c.s.cfg.Node.Info().Vocab); err != nil {
			return err
		}
		if err := c.s.within("input", in.Tokens); err != nil {
			return err
		}
		if err := c.s.fits("input", len(in.Text)); err != nil {
			return err
		}
		if in.Text != "" && c.s.cfg.Node.Tokenizer() == nil {
			return errNoTokenizer
		}
	}
	return nil
}

// shorten takes the time since the request's arrival from the timeouts of reqs: the inputs of a request
// have one deadline. It returns an error if that has passed.
func (c *call) shorten(reqs []coppice.Request) error {
	gone := time.Since(c.start)
	for i := range reqs {
		if reqs[i].Timeout -= gone; reqs[i].Timeout <= 0 {
			return coppice.ErrDeadline
		}
	}
	return nil
}

// embed runs reqs, sets vectors to their embeddings and adds their tokens to usage. All of them have ended
// when it returns nil.
func (c *call) embed(reqs []coppice.Request, vectors [][]float32, usage *conversation.Usage) error {
	c.client.Rest()
	f, err := c.open(reqs, 1)
	if err == nil {
		bytes := func(p *piece) int { return vectorBytes * len(p.Embedding) }
		err = f.collect(c, bytes, func(p *piece) { vectors[p.prompt] = p.Embedding })
	}
	if err != nil {
		return err
	}
	for i := range f.bills {
		b := &f.bills[i]
		usage.PromptTokens += b.PromptTokens
		usage.CachedTokens += b.CachedTokens
		for tier, n := range b.CachedByTier {
			usage.CachedByTier[tier] += n
		}
	}
	c.settle(f)
	c.after = func() {}
	return nil
}
