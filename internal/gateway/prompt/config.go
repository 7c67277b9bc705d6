package prompt

import (
	"time"

	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/openai"
	"github.com/coppice-llm/coppice/tokenizer"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Config says how prompts become tokens. The zero value compares prompts by their
// bytes.
type Config struct {
	// Tokenizer and Template are those of the workers' model. Without them the tokens
	// of texts and of conversations are guesses.
	Tokenizer *tokenizer.Tokenizer
	Template  *chat.Template
	// CacheBytes bounds the texts whose tokens are remembered, the tokens included.
	// Default 64 MiB, some thousand conversations of 8,000 tokens; below 0 none are.
	CacheBytes int `default:"64<<20" max:"1<<40"`
	// MaxTokens bounds the tokens of a prompt that are looked at; see Prompt.Truncated.
	// Default 4,194,304.
	MaxTokens int `default:"1<<22" min:"1" max:"1<<24"`
	// Namespace is where the workers look for the prefixes of a tenant with a cache
	// salt. Default: as package server has it.
	Namespace func(tenant, salt string) kv.Namespace
	// Now is the time that templates see. Default time.Now.
	Now func() time.Time
}

// WithDefaults is c with every zero field filled in that has a default.
func (c Config) WithDefaults() Config {
	c = bounds.Fill(c)
	if c.Namespace == nil {
		c.Namespace = openai.Namespace
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Validate reports all faults at once. It expects defaults to be filled in.
func (c *Config) Validate() error { return bounds.Check("prompt", c) }
