package server

import (
	"bufio"
	"net/http"
	"slices"
	"time"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/grammar/toolcall/parse"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/ollama"
	"github.com/coppice-llm/coppice/openai"
)

// About describes the files of the model, for clients of Ollama's API, which show it.
type About struct {
	Format       string // gguf or safetensors
	Architecture string // general.architecture of a GGUF file, or the class in config.json
	Weights      string // the type of most weights: Q4_K
	Parameters   int64
	Bytes        int64
}

// refusal returns an endpoint that refuses every request with err.
func refusal(err error) func(*call) error {
	return func(*call) error { return err }
}

// mountOllama registers the routes of Ollama's API with on.
func (s *Server) mountOllama(on func(path string, methods map[string]endpoint)) {
	of := func(serve func(*call) error) endpoint {
		return endpoint{access: anyKey, untyped: true, fault: ollama.AppendError, serve: serve}
	}
	for path, serve := range map[string]func(*call) error{
		"/api/chat": (*call).ollamaChat, "/api/generate": (*call).ollamaGenerate, "/api/show": (*call).ollamaShow, "/api/pull": (*call).ollamaPull,
		"/api/embed": (*call).ollamaEmbed, "/api/embeddings": (*call).ollamaEmbedding,
		"/api/push": refusal(ollama.ErrManages), "/api/create": refusal(ollama.ErrManages), "/api/copy": refusal(ollama.ErrManages),
	} {
		on(path, map[string]endpoint{http.MethodPost: of(serve)})
	}
	on("/api/delete", map[string]endpoint{http.MethodDelete: of(refusal(ollama.ErrManages))})
	on("/api/blobs/{digest}", map[string]endpoint{http.MethodPost: of(refusal(ollama.ErrManages))})
	on("/api/tags", map[string]endpoint{http.MethodGet: of(func(c *call) error { return c.json(http.StatusOK, ollama.Tags(c.s.facts())) })})
	on("/api/ps", map[string]endpoint{http.MethodGet: of(func(c *call) error { return c.json(http.StatusOK, ollama.Running(c.s.facts())) })})
	version := of(whole(ollama.VersionAnswer(s.cfg.Version)))
	version.access, version.drained = everybody, true
	on("/api/version", map[string]endpoint{http.MethodGet: version})
}

// ollamaOptions returns the options of requests of Ollama's API.
func (s *Server) ollamaOptions() ollama.Options {
	r := &s.policies.reading
	return ollama.Options{IgnoreUnknown: r.UnknownFields == openai.IgnoreUnknown, Sampling: r.Sampling, CallForm: r.CallForm}
}

// facts describes the model for Ollama's API.
func (s *Server) facts() ollama.Facts {
	info, about := s.cfg.Node.Info(), &s.cfg.About
	f := ollama.Facts{
		Names: slices.Concat([]string{s.cfg.Model}, s.cfg.Aliases), Identity: info.ModelID, Format: about.Format, Architecture: about.Architecture, Weights: about.Weights,
		Parameters: about.Parameters, Bytes: about.Bytes, ContextTokens: info.MaxPositions, EmbeddingSize: info.HiddenSize, Modified: s.cfg.Created.UTC(), Capabilities: []string{"completion"},
	}
	if s.cfg.Template != nil {
		f.Capabilities = append(f.Capabilities, "tools")
	}
	if info.HiddenSize > 0 {
		f.Capabilities = append(f.Capabilities, "embedding")
	}
	if s.policies.calling.Thinks {
		f.Capabilities = append(f.Capabilities, "thinking")
	}
	return f
}

// untag removes the tag from the name of a model that is served without it.
func (s *Server) untag(name *string) {
	if s.knows(*name) != nil {
		*name = ollama.Untagged(*name)
	}
}

// ollamaChat answers POST /api/chat.
func (c *call) ollamaChat() error {
	ask, err := read(c, func(b []byte) (*ollama.Chat, error) { return ollama.DecodeChat(b, c.s.ollamaOptions()) })
	if err != nil {
		return err
	}
	c.s.untag(&ask.Model)
	wire := ollama.NewWire(ollama.ChatAnswer, c.start, time.Now)
	if len(ask.Messages) == 0 {
		return c.ollamaLoaded(&ask.Turn, wire, ask.Unload)
	}
	return c.converse(&ask.Turn, wire)
}

// ollamaGenerate answers POST /api/generate.
func (c *call) ollamaGenerate() error {
	c.s.measure(c.r)
	ask, err := read(c, func(b []byte) (*ollama.Generate, error) { return ollama.DecodeGenerate(b, c.s.ollamaOptions()) })
	if err != nil {
		return err
	}
	c.s.untag(&ask.Model)
	form := ollama.GenerateAnswer
	if ask.Raw {
		form = ollama.RawAnswer
	}
	wire := ollama.NewWire(form, c.start, time.Now)
	if ask.Empty() {
		return c.ollamaLoaded(&ask.Turn, wire, ask.Unload)
	}
	if err := c.accept(&ask.Params, 1); err != nil {
		return err
	}
	req, err := c.ollamaRequest(ask)
	if err != nil {
		return err
	}
	return c.talk(&ask.Turn, wire, req)
}

// ollamaLoaded answers a request that asks only to load the model, which is always loaded.
func (c *call) ollamaLoaded(turn *conversation.Turn, wire *ollama.Wire, unload bool) error {
	if err := c.accept(&turn.Params, 1); err != nil {
		return err
	}
	kind, body := "application/json", wire.AppendLoaded(nil, c.s.cfg.Model, unload)
	if turn.Stream {
		kind, body = ollama.ContentType, append(body, '\n')
	}
	c.begin(http.StatusOK, kind)
	c.write(body)
	return nil
}

// ollamaRequest returns the request of /api/generate: a text as it is, a message in the chat template, or a
// message after the tokens of an earlier answer.
func (c *call) ollamaRequest(ask *ollama.Generate) (req coppice.Request, err error) {
	if ask.Raw || c.s.cfg.Template == nil && len(ask.Messages) == 1 && len(ask.Context) == 0 { // a model without a template gets the prompt alone
		req = request(&ask.Params)
		req.Prompt = ask.Text
		return req, c.s.fits("prompt", len(ask.Text))
	}
	if len(ask.Context) == 0 {
		return c.turnRequest(&ask.Turn)
	}
	if err := c.s.within("context", ask.Context); err != nil {
		return req, err
	}
	if err := conversation.Fit("context", ask.Context, c.s.cfg.Node.Info().Vocab); err != nil {
		return req, err
	}
	messages, rest := ask.NextTurn()
	text, plain, err := c.render(messages, ask.Options)
	if err != nil {
		return req, err
	}
	text, from := rest(text)
	if c.s.policies.calling.Thinks && parse.OpensThinking(text) {
		ask.Format.Open()
	}
	all := []coppice.Request{{Prompt: text, Rendered: true, Plain: ollama.Shifted(plain, from)}}
	if err := c.encode(all); err != nil {
		return req, err
	}
	if err := c.charge(tokenBytes * (len(ask.Context) + len(all[0].Tokens))); err != nil {
		return req, err
	}
	req = request(&ask.Params)
	req.Tokens = append(append(make([]kv.Token, 0, len(ask.Context)+len(all[0].Tokens)), ask.Context...), all[0].Tokens...)
	if calling := &c.s.policies.calling; parse.Frames(calling.Form) {
		req.SpecialText = calling.Tokens
	}
	return req, nil
}

// ollamaShow answers POST /api/show.
func (c *call) ollamaShow() error {
	ask, err := read(c, ollama.DecodeNamed)
	if err != nil {
		return err
	}
	c.s.untag(&ask.Model)
	if err := c.s.knows(ask.Model); err != nil {
		return err
	}
	f := c.s.facts()
	return c.json(http.StatusOK, f.Show())
}

// ollamaPull answers POST /api/pull: clients pull the model that they use when they start.
func (c *call) ollamaPull() error {
	ask, err := read(c, ollama.DecodeNamed)
	if err != nil {
		return err
	}
	names := slices.Concat([]string{c.s.cfg.Model}, c.s.cfg.Aliases)
	if !ollama.Serves(ask.Model, names) {
		return ollama.CantPull(ask.Model, names)
	}
	kind := "application/json"
	if ask.Stream {
		kind = ollama.ContentType
	}
	c.begin(http.StatusOK, kind)
	c.write([]byte(ollama.Pulled + "\n"))
	return nil
}

// ollamaEmbed answers POST /api/embed.
func (c *call) ollamaEmbed() error {
	return c.ollamaEmbeds(ollama.DecodeEmbed, (*ollama.Wire).WriteEmbeddings)
}

// ollamaEmbedding answers POST /api/embeddings, the older form for one text.
func (c *call) ollamaEmbedding() error {
	return c.ollamaEmbeds(ollama.DecodeEmbedding, (*ollama.Wire).WriteEmbedding)
}

// ollamaEmbeds answers a request for embeddings, which decode reads, with what write writes.
func (c *call) ollamaEmbeds(decode func([]byte, ollama.Options) (*ollama.Embed, error), write func(*ollama.Wire, *bufio.Writer, string, [][]float32, conversation.Usage) error) error {
	ask, err := read(c, func(b []byte) (*ollama.Embed, error) { return decode(b, c.s.ollamaOptions()) })
	if err != nil {
		return err
	}
	c.s.untag(&ask.Model)
	all := openai.Embeddings{Params: ask.Params, Dimensions: ask.Dimensions, Raw: ask.Raw}
	for _, text := range ask.Inputs {
		all.Inputs = append(all.Inputs, openai.Prompt{Text: text})
	}
	vectors, usage, err := c.embedAll(&all)
	if err != nil {
		return err
	}
	wire := ollama.NewWire(ollama.RawAnswer, c.start, time.Now)
	return c.long(func(w *bufio.Writer) error { return write(wire, w, c.s.cfg.Model, vectors, usage) })
}
