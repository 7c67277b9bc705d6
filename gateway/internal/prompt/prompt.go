package prompt

import (
	"errors"

	"github.com/coppice-llm/coppice/internal/enum"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/openai"
	"github.com/coppice-llm/coppice/tokenizer/textcache"
)

// Kind is the endpoint of a request.
type Kind uint8

// Kinds of requests.
const (
	Completions    Kind = iota // /v1/completions
	Chat                       // /v1/chat/completions
	Embeddings                 // /v1/embeddings
	Messages                   // /v1/messages
	Responses                  // /v1/responses
	OllamaChat                 // /api/chat
	OllamaGenerate             // /api/generate
)

var kinds = enum.New[Kind]("prompt", "kind", "completions", "chat", "embeddings", "messages", "responses", "ollama-chat", "ollama-generate")

// String returns the kind's name.
func (k Kind) String() string { return kinds.Name(k) }

// ErrNoTokenizer and ErrNoTemplate are the values of Prompt.Inexact if the Reader has none.
var (
	ErrNoTokenizer = errors.New("prompt: no tokenizer, so texts are compared by their bytes")
	ErrNoTemplate  = errors.New("prompt: no chat template, so conversations are compared by their bytes")
)

// Prompt holds the facts about a request that a router needs. The zero value is ready to use.
type Prompt struct {
	Model, User, CacheSalt string
	Session                string // as the request's body names it
	Stream                 bool
	Hints                  openai.Hints

	// Tokens are those of the first prompt, in memory that the Prompt owns, valid until the next
	// Read or Reset. If they are guesses from bytes, each stands for four bytes, little-endian,
	// which gives roughly as many as real tokens.
	Tokens    []kv.Token
	Namespace kv.Namespace
	// Blocks has the hashes of the full blocks of Tokens if these were encoded from a text, else none. There may be
	// hashes of some blocks beyond Tokens.
	Blocks textcache.Blocks
	// PublicTokens is the number of leading Tokens that belong to the namespace without a salt.
	PublicTokens int
	// Truncated says that Tokens are only the beginning of the prompt: as many as are read, or
	// slightly fewer.
	Truncated bool

	Prompts, Choices int // number of prompts in the body, 0 if it has none; number of outputs of all of them together
	OutputTokens     int // most output tokens requested per choice; 0: unknown

	// Names is the stored response, or the item of one, that the request continues or refers to; "" if there is none. Only
	// the worker that has it knows the prompt.
	Names string

	Inexact error // why Tokens may differ from those that a worker computes; nil: see Exact

	most   int // most tokens to read
	peeked openai.Peeked
	tokens []kv.Token // memory for Tokens of texts
	bytes  []byte     // memory for a conversation without a template
}

// Limits of the memory kept between uses.
const (
	keptTokens = 1 << 18
	keptBytes  = 1 << 18
)

// Reset clears the request and keeps the memory.
func (p *Prompt) Reset() {
	p.peeked.Reset()
	if cap(p.tokens) > keptTokens {
		p.tokens = nil
	}
	if cap(p.bytes) > keptBytes {
		p.bytes = nil
	}
	if cap(p.Blocks.Hashes) > keptTokens {
		p.Blocks = textcache.Blocks{}
	}
	p.Blocks.Reset()
	*p = Prompt{peeked: p.peeked, tokens: p.tokens, bytes: p.bytes, Blocks: p.Blocks}
}

// Exact reports whether Tokens are those computed by a worker with this tokenizer and template, if it accepts the request.
func (p *Prompt) Exact() bool { return p.Inexact == nil }

// guess records why Tokens may be wrong. Only the first reason is kept.
func (p *Prompt) guess(why error) {
	if p.Inexact == nil {
		p.Inexact = why
	}
}

// clip sets Tokens to p.tokens, without those beyond p.most.
func (p *Prompt) clip() {
	if p.Tokens = p.tokens; len(p.Tokens) > p.most {
		p.Tokens, p.Truncated = p.Tokens[:p.most], true
	}
}
