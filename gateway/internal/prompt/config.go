package prompt

import (
	"time"

	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/openai"
	"github.com/coppice-llm/coppice/tokenizer"
	"github.com/coppice-llm/coppice/tokenizer/chat"
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
	// Now is the clock for templates. Default time.Now.
	Now func() time.Time
}

// WithDefaults returns c with every zero field set to its default, if it has one.
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

// Validate reports all faults at once. Call it on the result of WithDefaults.
func (c *Config) Validate() error { return bounds.Check("prompt", c) }
