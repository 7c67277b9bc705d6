package prompt

import (
	"errors"

	"github.com/coppice-llm/coppice/internal/enum"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/openai"
)

// Kind is which interface a request is for.
type Kind uint8

// The kinds.
const (
	Completions Kind = iota // /v1/completions
	Chat                    // /v1/chat/completions
)

var kinds = enum.New[Kind]("prompt", "kind", "completions", "chat")

// String names the kind.
func (k Kind) String() string { return kinds.Name(k) }

// ErrNoTokenizer and ErrNoTemplate are what Prompt.Inexact wraps where the Reader was
// given none.
var (
	ErrNoTokenizer = errors.New("prompt: there is no tokenizer, so texts are compared by their bytes")
	ErrNoTemplate  = errors.New("prompt: there is no chat template, so conversations are compared by their bytes")
)

// Prompt is what a request says to who passes it on. The zero value is ready.
type Prompt struct {
	Model, User, CacheSalt string
	Stream                 bool
	Hints                  openai.Hints

	// Tokens are those of the first prompt, in p's own memory, until the next Read or
	// Reset. Where they are guessed by bytes, each has four of them, the first lowest,
	// which is about as many tokens as there would be.
	Tokens    []kv.Token
	Namespace kv.Namespace
	// PublicTokens is how many of the first Tokens are not the Namespace's own, but of the one
	// without a salt.
	PublicTokens int
	// Truncated: Tokens are the first of more, as many as may be, or a few less.
	Truncated bool

	Prompts, Choices int // prompts in the body, 0 if it has none; answers to all of them
	OutputTokens     int // that are asked for at most, of each; 0 is unknown

	// Exact: Tokens are what a worker with this tokenizer and template computes, if it
	// takes the request. Inexact says why not, if not.
	Exact   bool
	Inexact error

	most   int // tokens that are looked at
	peeked openai.Peeked
	tokens []kv.Token // where those of texts are
	bytes  []byte     // a conversation without a template
}

// Memory that is kept between uses is bounded.
const (
	keptTokens = 1 << 18
	keptBytes  = 1 << 18
)

// Reset forgets the request and keeps the memory.
func (p *Prompt) Reset() {
	p.peeked.Reset()
	if cap(p.tokens) > keptTokens {
		p.tokens = nil
	}
	if cap(p.bytes) > keptBytes {
		p.bytes = nil
	}
	*p = Prompt{peeked: p.peeked, tokens: p.tokens, bytes: p.bytes}
}

// guess notes why Tokens are perhaps others; the first reason stays.
func (p *Prompt) guess(why error) {
	if p.Inexact == nil {
		p.Inexact = why
	}
}

// clip keeps p.tokens to p.most.
func (p *Prompt) clip() {
	if p.Tokens = p.tokens; len(p.Tokens) > p.most {
		p.Tokens, p.Truncated = p.Tokens[:p.most], true
	}
}
