package server

import (
	"cmp"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/grammar/toolcall/parse"
	"github.com/coppice-llm/coppice/internal/web"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/openai"
	"github.com/coppice-llm/coppice/scheduler"
	"github.com/coppice-llm/coppice/server/internal/answer"
)

// completions answers POST /v1/completions.
func (c *call) completions() error {
	c.s.measure(c.r)
	ask, err := read(c, func(b []byte) (*openai.Completion, error) { return openai.DecodeCompletion(b, c.s.policies.reading) })
	if err != nil {
		return err
	}
	if err := c.accept(&ask.Params, len(ask.Prompts)); err != nil {
		return err
	}
	reqs := make([]coppice.Request, len(ask.Prompts))
	for i := range reqs {
		if reqs[i], err = c.s.completionRequest(ask, i); err != nil {
			return err
		}
	}
	texts := make([]string, len(reqs))
	if ask.Echo {
		if err := c.s.echoes(texts, ask.Prompts, ask.N, c.charge); err != nil {
			return err
		}
	}
	out := answer.Completion(ask, c.s.head(answer.CompletionID(rand.Uint64())), c.s.cfg.Node.Tokenizer())
	return c.generate(&ask.Params, inOpenAI{out}, reqs, texts, ask.WantsPromptTokens())
}

// chatCompletions answers POST /v1/chat/completions.
func (c *call) chatCompletions() error {
	ask, err := read(c, func(b []byte) (*openai.Chat, error) { return openai.DecodeChat(b, c.s.policies.reading) })
	if err != nil {
		return err
	}
	if err := c.accept(&ask.Params, 1); err != nil {
		return err
	}
	req, err := c.turnRequest(&ask.Turn)
	if err != nil {
		return err
	}
	out := answer.Chat(ask, c.s.head(answer.ChatID(rand.Uint64())), c.s.cfg.Node.Tokenizer())
	out.SetForm(c.s.policies.calling.Form, c.s.policies.calling.Marks)
	if c.s.policies.calling.Thinks {
		out.SetReasoning(parse.OpensThinking(req.Prompt))
	}
	return c.generate(&ask.Params, inOpenAI{out}, []coppice.Request{req}, []string{req.Prompt}, ask.WantsPromptTokens())
}

// completionRequest returns the request of prompt i of a completion, or an error if the prompt is
// too long.
func (s *Server) completionRequest(ask *openai.Completion, i int) (coppice.Request, error) {
	if err := s.within("prompt", ask.Prompts[i].Tokens); err != nil {
		return coppice.Request{}, err
	}
	if err := s.fits("prompt", len(ask.Prompts[i].Text)); err != nil {
		return coppice.Request{}, err
	}
	return completionRequest(ask, i), nil
}

// turnRequest returns the request of a turn, with the rendered conversation as its prompt.
func (c *call) turnRequest(ask *conversation.Turn) (coppice.Request, error) {
	text, plain, err := c.render(ask.Messages, ask.Options)
	if err != nil {
		return coppice.Request{}, err
	}
	if text, err = ask.CutFinal(text); err != nil {
		return coppice.Request{}, err
	}
	if c.s.policies.calling.Thinks && parse.OpensThinking(text) {
		ask.Format.Open()
	}
	c.watch(ask)
	req := request(&ask.Params)
	req.Prompt, req.Rendered, req.Plain, req.Prediction = text, true, plain, ask.Prediction
	if calling := &c.s.policies.calling; ask.Calls != conversation.NoCalls || parse.Frames(calling.Form) {
		req.SpecialText = calling.Tokens
	}
	return req, nil
}

// sessionHeader names the session of a request whose API has no field for it. A gateway keeps such requests on one worker.
const sessionHeader = "X-Session-Id"

// accept returns an error if this server can't serve a request with parameters p and this number
// of prompts: unknown model, token outside of the vocabulary, too many outputs. Headers of the answer name the ignored
// parameters, and the values of those that the request leaves out.
func (c *call) accept(p *conversation.Params, prompts int) error {
	if len(p.Ignored) > 0 {
		c.w.Header().Set("X-Coppice-Ignored", strings.Join(p.Ignored, ", "))
	}
	c.w.Header().Set("X-Coppice-Sampling-Defaults", c.s.fixed.sampling)
	if err := c.s.knows(p.Model); err != nil {
		return err
	}
	if err := p.Fits(c.s.cfg.Node.Info().Vocab); err != nil {
		return err
	}
	return c.s.choices(prompts, p.N)
}

// generate runs reqs, one request per prompt, with the parameters p, and answers with their
// outputs, which out encodes. texts[i] is the text of prompt i, for an answer that repeats it. If
// tokens is true, the answer needs the tokens of the prompts.
func (c *call) generate(p *conversation.Params, out answered, reqs []coppice.Request, texts []string, tokens bool) error {
	for i := range reqs {
		c.prepare(&reqs[i], p)
	}
	if err := c.checkPrefix(reqs); err != nil {
		return err
	}
	if tokens {
		if err := c.encode(reqs); err != nil {
			return err
		}
	}
	for i := range reqs {
		if p.From.Reduced {
			reqs[i].MaxTokens = min(reqs[i].MaxTokens, max(c.s.room(len(reqs[i].Tokens)), 1))
		}
		out.SetPrompt(i, texts[i], reqs[i].Tokens)
	}
	if p.Stream {
		return blame(p, c.stream(reqs, out.stream(), p.N))
	}
	return blame(p, c.respond(reqs, out.whole(), p.N))
}

// room returns the most output tokens of a request with a prompt of this number of tokens.
func (s *Server) room(prompt int) int {
	info, limits := s.cfg.Node.Info(), s.cfg.Node.Limits()
	pool := cmp.Or(limits.SharePages, info.NumPages)*info.PageTokens - limits.PinnedTokens
	return min(info.MaxPositions, pool) - prompt + 1 // the last token is never run
}

// knows returns an error if a request asks for a model that is not served here.
func (s *Server) knows(model string) error {
	if model == "" || model == s.cfg.Model || slices.Contains(s.cfg.Aliases, model) || slices.Contains(s.cfg.Aliases, AnyName) {
		return nil
	}
	return conversation.ModelNotFound(model)
}

// maxChoices returns the largest n of a request: Config.MaxChoices, or less if the node takes less.
func (s *Server) maxChoices() int { return min(s.cfg.MaxChoices, s.cfg.Node.Limits().MaxSamples) }

// choices refuses a request for too many outputs: n for each of its prompts.
func (s *Server) choices(prompts, n int) error {
	if most := s.maxChoices(); n > most {
		return conversation.NewError(http.StatusBadRequest, "too_many_choices", "n is %d, want at most %d", n, most).At("n")
	}
	if n *= prompts; n <= s.cfg.MaxChoices {
		return nil
	}
	return conversation.NewError(http.StatusBadRequest, "too_many_choices", "prompts times n is %d, want at most %d outputs in one request", n, s.cfg.MaxChoices).At("n")
}

// within returns an error, which names the field param, if there are more tokens than the model
// has positions. It is called before tokens are decoded: their text may be hundreds of times as
// long as the body.
func (s *Server) within(param string, tokens []kv.Token) error {
	most := s.cfg.Node.Info().MaxPositions
	if len(tokens) <= most {
		return nil
	}
	return conversation.NewError(http.StatusBadRequest, "context_length_exceeded", "%s has %d tokens, the model has %d positions", param, len(tokens), most).At(param)
}

// fits returns an error, which names the field param, if a prompt's text of that many bytes has more
// tokens than can be served, whatever the text is.
func (s *Server) fits(param string, bytes int) error {
	if s.policies.longest == 0 || bytes <= s.policies.longest {
		return nil
	}
	e := *s.policies.tooLong
	e.Param = param
	return &e
}

// measure makes the body of a completion end with an error as soon as a text of its prompt is too long.
func (s *Server) measure(r *http.Request) {
	if s.policies.longest > 0 {
		r.Body = &measured{ReadCloser: r.Body, s: s}
	}
}

// measured is the body of a completion.
type measured struct {
	io.ReadCloser
	s       *Server
	meter   openai.Meter
	refused bool // the text is too long
}

func (m *measured) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	if long := m.s.fits("prompt", m.meter.Longest(p[:n])); long != nil {
		m.refused = true
		return n, &web.Stop{Err: long}
	}
	return n, err
}

// head returns the fields that all answers begin with.
func (s *Server) head(id string) answer.Head {
	return answer.Head{ID: id, Created: time.Now().Unix(), Model: s.cfg.Model, Fingerprint: s.cfg.Fingerprint}
}

// prepare sets the fields of req that its sender may not choose freely: tenant, namespace,
// priority (above 0 for admins only), class (separate per tenant), timeout (at most MaxTimeout),
// and, if p has none, the seed and the session.
func (c *call) prepare(req *coppice.Request, p *conversation.Params) {
	req.Namespace = conversation.Namespace(c.caller.tenant, p.CacheSalt)
	req.Tenant = c.caller.tenant
	if name := c.r.Header.Get(sessionHeader); req.Session == "" && len(name) <= scheduler.MaxSessionName {
		req.Session = name
	}
	if !c.caller.admin { // a tenant may lower its priority, not raise it above others
		req.Priority = min(req.Priority, 0)
	}
	if req.Class != "" {
		req.Class = c.caller.tenant + "\x00" + req.Class // length statistics of a class are per tenant
	}
	if !p.Seeded {
		req.Sampling.Seed = rand.Uint64()
	}
	if most := c.s.cfg.MaxTimeout; req.Timeout == 0 || req.Timeout > most {
		req.Timeout = most
	}
	req.Timeline = c.span != nil
	req.Begun = p.Stream || c.wantsProgress()
}

// encode replaces the text of requests by its tokens, for answers that show them.
func (c *call) encode(reqs []coppice.Request) error {
	ctx, cancel := c.s.open.Bound(c.r.Context())
	defer cancel()
	node := c.s.cfg.Node
	for i := range reqs {
		req := &reqs[i]
		if req.Prompt == "" {
			continue
		}
		if node.Tokenizer() == nil {
			return errNoTokenizer
		}
		if err := c.charge(tokenBytes * min(len(req.Prompt), node.Info().MaxPositions)); err != nil {
			return err
		}
		tokens, err := node.Tokenize(ctx, coppice.Text{Tenant: c.caller.tenant, Namespace: req.Namespace, Text: req.Prompt, Rendered: req.Rendered, Plain: req.Plain, Bounded: true})
		if err != nil {
			return err
		}
		req.Tokens, req.Prompt = tokens, ""
	}
	return nil
}

// tokenBytes is the size of a token in memory. A token stands for a byte of text or more, or else for a
// byte that normalization adds: these are few.
const tokenBytes = 4

// echoes sets texts to the prompts that an answer of n choices each repeats; prompts given as
// tokens are decoded. The texts of all choices together may have at most MaxBodyBytes: decoded
// tokens may be hundreds of times as long as the body. They are charged before they are decoded.
func (s *Server) echoes(texts []string, prompts []openai.Prompt, n int, charge func(bytes int) error) error {
	tok, left := s.cfg.Node.Tokenizer(), s.cfg.MaxBodyBytes/n
	for i := range texts {
		p := &prompts[i]
		bytes := len(p.Text)
		if tok != nil && p.Text == "" {
			for _, token := range p.Tokens {
				bytes += len(tok.Text(token))
			}
		}
		if left -= bytes; left < 0 {
			return conversation.NewError(http.StatusBadRequest, "invalid_value", "the echoed prompts of all choices have over %d bytes together: leave echo out, or ask for fewer choices", s.cfg.MaxBodyBytes).At("echo")
		}
		if err := charge(bytes * (1 + n)); err != nil { // once itself, and in the JSON of each choice
			return err
		}
		if texts[i] = p.Text; p.Text == "" && bytes > 0 {
			texts[i] = string(tok.Decode(nil, p.Tokens, true))
		}
	}
	return nil
}
