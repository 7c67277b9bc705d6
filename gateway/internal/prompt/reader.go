package prompt

import (
	"errors"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/anthropic"
	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/ollama"
	"github.com/coppice-llm/coppice/openai"
	"github.com/coppice-llm/coppice/openai/responses"
	"github.com/coppice-llm/coppice/tokenizer"
	"github.com/coppice-llm/coppice/tokenizer/chat"
	"github.com/coppice-llm/coppice/tokenizer/textcache"
)

// Config configures how prompts become tokens. The zero value compares prompts by their bytes.
type Config struct {
	// Tokenizer and Template must be those of the workers' model. Without them, the tokens of
	// texts and conversations are guessed.
	Tokenizer *tokenizer.Tokenizer
	Template  *chat.Template
	// CacheBytes bounds the memory for cached texts with their tokens. Default 64 MiB, about a
	// thousand conversations of 8,000 tokens; negative: no cache.
	CacheBytes int `default:"64<<20" max:"1<<40"`
	// MaxTokens bounds the tokens read of a prompt; see Prompt.Truncated. Default 4,194,304.
	MaxTokens int `default:"1<<22" min:"1" max:"1<<24"`
	// Namespace returns the workers' cache namespace of a tenant with a cache salt. Default: as
	// in package server.
	Namespace func(tenant, salt string) kv.Namespace
	// ForeignNamespace takes the place of Namespace while As.Foreign. Default: Namespace.
	ForeignNamespace func(tenant, salt string) kv.Namespace
	// Now is the clock for templates. Default time.Now.
	Now func() time.Time
}

// WithDefaults returns c with every zero field set to its default, if it has one.
func (c Config) WithDefaults() Config {
	c = bounds.Fill(c)
	if c.Namespace == nil {
		c.Namespace = conversation.Namespace
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Validate reports all faults at once. Call it on the result of WithDefaults.
func (c *Config) Validate() error { return bounds.Check("prompt", c) }

// Reader reads requests. It is safe for concurrent use.
type Reader struct {
	cfg      Config
	texts    *textcache.Cache // nil without a cache
	controls *chat.Controls
	encoders chan *tokenizer.Encoder // idle encoders
}

// Stats returns the counts of the cached texts.
func (r *Reader) Stats() textcache.Stats { return r.texts.Stats() }

// As says how the current workers read prompts.
type As struct {
	MaxTokens   int              // most tokens that any worker takes, if less than Config.MaxTokens; 0: unknown
	Controls    chat.ControlMode // how control tokens in messages written by callers are treated
	ToolsPrompt chat.ToolsPrompt // what happens to tools that the template does not print
	BlockTokens int              // length of the blocks whose hashes are wanted; 0: none
	Foreign     bool             // no worker is a Coppice worker
}

// New makes a Reader. The error is that of [Config.Validate].
func New(cfg Config) (*Reader, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	r := &Reader{cfg: cfg, encoders: make(chan *tokenizer.Encoder, runtime.GOMAXPROCS(0))}
	if cfg.Tokenizer != nil {
		r.controls = chat.NewControls(cfg.Tokenizer.ControlTokens())
		r.texts = textcache.New(cfg.Tokenizer, cfg.CacheBytes)
	}
	return r, nil
}

// Read resets p and reads the body of a tenant's request into it. The error is an *conversation.Error
// of status 400, for a body that is not a JSON object or ends early: no worker could read it.
// All other oddities are left to the worker to judge, and at most make p inexact.
//
// It keeps no part of body. For token ids it allocates nothing once p has enough memory.
func (r *Reader) Read(kind Kind, tenant string, body []byte, as As, p *Prompt) error {
	p.Reset()
	p.most = r.cfg.MaxTokens
	if as.MaxTokens > 0 {
		p.most = min(as.MaxTokens, p.most)
	}
	q := &p.peeked
	q.Most = p.most
	var of generating
	peek := openai.PeekCompletion
	switch kind {
	case Chat:
		peek = openai.PeekChat
	case Embeddings:
		peek = openai.PeekEmbeddings
	case Messages:
		peek = peekMessages
	case Responses:
		peek = func(body []byte, q *openai.Peeked) (err error) {
			p.Names, err = responses.Peek(body, q)
			return err
		}
	case OllamaChat:
		peek = of.peek(ollama.PeekChat)
	case OllamaGenerate:
		peek = of.peek(ollama.PeekGenerate)
	}
	if err := r.peek(kind, peek, body, p); err != nil {
		return err
	}
	r.readWhole(p)
	p.Model, p.User, p.CacheSalt, p.Stream, p.OutputTokens = q.Model, q.User, q.CacheSalt, q.Stream, q.OutputTokens
	p.Hints, p.PublicTokens, p.Session = q.Hints, q.PublicTokens, q.Session
	p.Namespace = r.namespace(as)(tenant, q.CacheSalt)
	if as.BlockTokens > 0 {
		p.Blocks.BlockTokens, p.Blocks.Namespace, p.Blocks.PublicTokens = as.BlockTokens, p.Namespace, p.PublicTokens
	}
	if q.Doubt != nil {
		p.guess(q.Doubt)
	}
	if p.Prompts = q.Prompts; kind == Completions || kind == Embeddings || of.raw {
		r.completion(p)
	} else {
		p.Prompts = 1
		r.chat(p, as, &of)
	}
	p.Choices = choices(p.Prompts, max(q.N, q.BestOf))
	if kind != Completions {
		q.Reset() // it refers to parts of the body
	}
	return nil
}

// namespace returns the function from tenants and salts to the workers' namespaces.
func (r *Reader) namespace(as As) func(tenant, salt string) kv.Namespace {
	if as.Foreign && r.cfg.ForeignNamespace != nil {
		return r.cfg.ForeignNamespace
	}
	return r.cfg.Namespace
}

// peek calls peek. A body that nests deeper than its reader goes is JSON, and the worker judges it: it is routed by load. A list of
// token ids is read again, as a whole, if the worker shortens it and not all of it was read.
func (r *Reader) peek(kind Kind, peek func([]byte, *openai.Peeked) error, body []byte, p *Prompt) error {
	q := &p.peeked
	err := peek(body, q)
	switch {
	case err != nil && kind != Completions:
		if openai.PeekCompletion(body, q) != nil {
			return err
		}
		p.guess(err)
		q.Prompts, q.Text, q.Tokens = 0, "", nil
		return nil
	case err == nil && shortened(q) && q.Truncated && q.Most < r.cfg.MaxTokens:
		q.Most = r.cfg.MaxTokens
		return peek(body, q)
	}
	return err
}

// peekMessages reads a request to Anthropic's API into q, whose fields are those of a chat.
func peekMessages(body []byte, q *openai.Peeked) error {
	m, err := anthropic.Peek(body, anthropic.Options{})
	if err != nil {
		return err
	}
	q.Model, q.User, q.CacheSalt, q.Stream, q.N, q.OutputTokens, q.PublicTokens = m.Model, m.User, m.CacheSalt, m.Stream, 1, m.MaxTokens, m.PublicTokens
	q.Session = m.Session
	q.Messages, q.Options, q.ContinueFinal, q.Doubt = m.Messages, m.Options, m.ContinueFinal, m.Doubt
	return nil
}

// generating holds what is special about a request to Ollama's API.
type generating struct {
	raw     bool // the prompt is a text
	context []kv.Token
	rest    func(rendered string) (text string, from int) // what of a rendered text comes after context; nil without one
}

// peek returns a function that reads a request, as peekMessages does for Anthropic's API.
func (of *generating) peek(peek func(body []byte) (*ollama.Peeked, error)) func(body []byte, q *openai.Peeked) error {
	return func(body []byte, q *openai.Peeked) error {
		m, err := peek(body)
		if err != nil {
			return err
		}
		q.Model, q.Stream, q.N, q.OutputTokens, q.Doubt = m.Model, m.Stream, 1, m.MaxTokens, m.Doubt
		q.Messages, q.Options = m.Messages, m.Options
		if of.raw = m.Raw; m.Raw {
			q.Prompts, q.Text = 1, m.Text
		}
		if of.context = m.Context; len(m.Context) > 0 {
			q.Messages, of.rest = m.NextTurn()
		}
		return nil
	}
}

// choices returns prompts * n, at most math.MaxInt32.
func choices(prompts, n int) int {
	if prompts > 0 && n > math.MaxInt32/prompts {
		return math.MaxInt32
	}
	return prompts * n
}

// completion reads the first prompt of a completion into p. For a text it adds the tokens that
// the tokenizer puts before and after a prompt, unless add_special_tokens is false.
func (r *Reader) completion(p *Prompt) {
	q := &p.peeked
	switch {
	case q.Tokens != nil:
		p.Tokens, p.Truncated = q.Tokens, q.Truncated
		r.shortenTokens(p)
	case q.Prompts > 0:
		r.text(p, chat.Rendered{Text: q.Text}, q.SpecialTokens == nil || *q.SpecialTokens)
		q.Text = ""
	}
}

// chat renders a conversation and reads it into p. as says how the workers do that. The template itself writes the tokens before and after a prompt, so the tokenizer
// adds them only if add_special_tokens is true.
func (r *Reader) chat(p *Prompt, as As, of *generating) {
	q := &p.peeked
	if len(q.Messages) == 0 {
		return
	}
	if r.cfg.Template == nil {
		r.conversation(p, ErrNoTemplate)
		return
	}
	q.Options.Now, q.Options.ToolsPrompt = r.cfg.Now(), as.ToolsPrompt
	rendered, err := r.cfg.Template.RenderAs(q.Messages, q.Options, r.controls, as.Controls)
	if errors.Is(err, chat.ErrToolsDropped) && as.ToolsPrompt == chat.TemplateTools { // other servers leave them out
		q.Options.Tools = nil
		rendered, err = r.cfg.Template.RenderAs(q.Messages, q.Options, r.controls, as.Controls)
	}
	if err != nil {
		r.conversation(p, err)
		return
	}
	if cut, err := q.CutFinal(rendered.Text); err != nil {
		p.guess(err)
	} else {
		rendered.Text = cut
	}
	if of.rest != nil {
		text, from := of.rest(rendered.Text)
		rendered.Text, rendered.Plain = text, ollama.Shifted(rendered.Plain, from)
	}
	r.text(p, rendered, q.SpecialTokens != nil && *q.SpecialTokens)
	if of.rest != nil && r.cfg.Tokenizer != nil {
		p.tokens = slices.Concat(of.context, p.Tokens)
		p.clip()
	}
}

// conversation sets p.Tokens to guesses from the bytes of a conversation that could not be
// rendered; why is the reason. The parts are in the order in which most templates write them, so
// that conversations with a common rendered prefix also have a common prefix here.
func (r *Reader) conversation(p *Prompt, why error) {
	p.guess(why)
	q := &p.peeked
	b := p.bytes[:0]
	for _, tool := range q.Options.Tools {
		b = append(append(b, tool...), 0)
	}
	for i := range q.Messages {
		m := &q.Messages[i]
		for _, text := range []string{m.Role, m.Name, m.Reasoning, m.Content, m.ToolCallID} {
			b = append(append(b, text...), 0)
		}
		for _, call := range m.ToolCalls {
			b = append(append(append(b, call.Name...), call.Arguments...), 0)
		}
	}
	p.bytes = b
	p.tokens = pack(p.tokens[:0], b, p.most+1)
	p.clip()
	r.shortenTokens(p)
}

// text converts text into p.Tokens. If whole is true, the tokens that the tokenizer adds before
// and after a prompt are included. Without a tokenizer the tokens are guesses from bytes.
func (r *Reader) text(p *Prompt, text chat.Rendered, whole bool) {
	switch {
	case r.cfg.Tokenizer == nil:
		p.guess(ErrNoTokenizer)
		p.tokens = pack(p.tokens[:0], text.Text, p.most+1)
	case shortened(&p.peeked):
		r.shortText(p, text, whole)
		return
	default:
		o := tokenizer.Options{Prompt: whole, MaxTokens: p.most, Plain: text.Plain}
		err := r.encode(p, text.Text, o)
		if p.Truncated = errors.Is(err, tokenizer.ErrTooLong); err != nil && !p.Truncated {
			p.guess(err)
		}
	}
	p.clip()
	r.shortenTokens(p)
}

// pack appends the bytes of text to dst as tokens of four bytes, the last one padded with zeros.
// It stops when dst has most tokens.
func pack[T string | []byte](dst []kv.Token, text T, most int) []kv.Token {
	for ; len(text) >= 4 && len(dst) < most; text = text[4:] {
		dst = append(dst, kv.Token(text[0])|kv.Token(text[1])<<8|kv.Token(text[2])<<16|kv.Token(text[3])<<24)
	}
	if len(text) > 0 && len(dst) < most {
		var last kv.Token
		for i := range len(text) {
			last |= kv.Token(text[i]) << (8 * i)
		}
		dst = append(dst, last)
	}
	return dst
}
