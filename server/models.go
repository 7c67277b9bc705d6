package server

import (
	"bufio"
	"net/http"
	"slices"
	"strconv"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/anthropic"
	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/openai"
	"github.com/coppice-llm/coppice/server/internal/answer"
)

// model describes the model by one of its names.
func (s *Server) model(name string) openai.Model {
	return openai.Model{ID: name, Created: s.cfg.Created.Unix(), OwnedBy: s.cfg.Owner, MaxModelLen: s.cfg.Node.Info().MaxPositions}
}

// models answers GET /v1/models: the model by its name and its aliases.
func (c *call) models() error {
	if anthropic.Speaks(c.r) {
		return c.json(http.StatusOK, anthropic.AppendModels(nil, c.s.messagesModels()))
	}
	all := []openai.Model{c.s.model(c.s.cfg.Model)}
	for _, name := range c.s.cfg.Aliases {
		all = append(all, c.s.model(name))
	}
	return c.json(http.StatusOK, openai.AppendModels(nil, all))
}

// model answers GET /v1/models/{id}.
func (c *call) model() error {
	id := c.r.PathValue("id")
	if id == "" {
		return c.notFound()
	}
	if err := c.s.knows(id); err != nil {
		return err
	}
	if anthropic.Speaks(c.r) {
		return c.json(http.StatusOK, anthropic.AppendModel(nil, c.s.messagesModel(id)))
	}
	return c.json(http.StatusOK, openai.AppendModel(nil, c.s.model(id)))
}

func version(c *call) error {
	return c.marshal(map[string]string{"version": c.s.cfg.Version})
}

var errNoTokenizerInfo = conversation.NewError(http.StatusNotFound, "unknown_url", "this server has no settings of its tokenizer to show")

func tokenizerInfo(c *call) error {
	if c.s.cfg.TokenizerInfo == nil {
		return errNoTokenizerInfo
	}
	return c.json(http.StatusOK, c.s.cfg.TokenizerInfo)
}

var errNoTokenizer = conversation.NewError(http.StatusBadRequest, "unsupported", "this server has no tokenizer: send prompts as token ids")

// readText reads the body of a request to /tokenize or /detokenize and decodes it with decode.
// model returns the name of the model in the decoded request. readText fails if the node has no
// tokenizer or the server does not serve that model.
func readText[T any](c *call, decode func([]byte) (T, error), model func(T) string) (ask T, err error) {
	if c.s.cfg.Node.Tokenizer() == nil {
		return ask, errNoTokenizer
	}
	c.most = c.s.cfg.MaxTokenizeBytes
	if ask, err = read(c, decode); err != nil {
		return ask, err
	}
	return ask, c.s.knows(model(ask))
}

// tokenize answers POST /tokenize. It enters the node like a request, so that MaxRequests bounds
// it too, and writes its answer piece by piece, because that may be long.
func (c *call) tokenize() error {
	tok := c.s.cfg.Node.Tokenizer()
	ask, err := readText(c, openai.DecodeTokenize, func(t *openai.Tokenize) string { return t.Model })
	if err != nil {
		return err
	}
	text := coppice.Text{Tenant: c.caller.tenant, Namespace: conversation.Namespace(c.caller.tenant, ""), Text: ask.Prompt, Rendered: !ask.AddSpecialTokens}
	if ask.Messages != nil {
		if text.Text, text.Plain, err = c.render(ask.Messages, ask.Options); err != nil {
			return err
		}
	}
	leave, err := c.s.cfg.Node.Enter()
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := c.s.open.Bound(c.r.Context())
	defer cancel()
	if err := c.charge(tokenBytes * len(text.Text)); err != nil {
		return err
	}
	tokens, err := c.s.cfg.Node.Tokenize(ctx, text)
	if err != nil {
		return err
	}
	names := tok
	if !ask.ReturnTokenStrings {
		names = nil
	}
	return c.long(func(w *bufio.Writer) error {
		return answer.WriteTokens(w, tokens, c.s.cfg.Node.Info().MaxPositions, names)
	})
}

// detokenize answers POST /detokenize, likewise piece by piece.
func (c *call) detokenize() error {
	ask, err := readText(c, openai.DecodeDetokenize, func(d *openai.Detokenize) string { return d.Model })
	if err != nil {
		return err
	}
	if err := ask.Fits(c.s.cfg.Node.Info().Vocab); err != nil {
		return err
	}
	if err := c.s.within("tokens", ask.Tokens); err != nil {
		return err
	}
	leave, err := c.s.cfg.Node.Enter()
	if err != nil {
		return err
	}
	defer leave()
	return c.long(func(w *bufio.Writer) error { return answer.WriteText(w, c.s.cfg.Node.Tokenizer(), ask.Tokens) })
}

var errNoCard = conversation.NewError(http.StatusNotFound, "unknown_url", "this server has no card, since it is not a worker of a fleet")

// worker answers /v1/worker with the server's card.
func (c *call) worker() error {
	if c.s.fixed.card == nil {
		return errNoCard
	}
	return c.json(http.StatusOK, c.s.fixed.card)
}

var errNoTokenizerBundle = conversation.NewError(http.StatusNotFound, "unknown_url", "this server does not publish its tokenizer; coppice serve does with --publish")

// tokenizer answers with a tar of the model's tokenizer files, for routers.
func (c *call) tokenizer() error {
	b := c.s.cfg.Bundle
	if b == nil {
		return errNoTokenizerBundle
	}
	c.w.Header().Set("Content-Length", strconv.Itoa(len(b.Data)))
	c.begin(http.StatusOK, "application/x-tar")
	const part = 1 << 20 // bytes between two renewals of the write deadline
	for data := range slices.Chunk(b.Data, part) {
		c.client.Extend()
		if !c.write(data) {
			break
		}
	}
	return nil
}
