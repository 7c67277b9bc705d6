package prompt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/coppice-llm/coppice/kv"
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
	CacheBytes int
	// MaxTokens bounds the tokens of a prompt that are looked at; see Prompt.Truncated.
	// Default 4,194,304.
	MaxTokens int
	// Namespace is where the workers look for the prefixes of a tenant with a cache
	// salt. Default: as package server has it.
	Namespace func(tenant, salt string) kv.Namespace
	// Now is the time that templates see. Default time.Now.
	Now func() time.Time
}

// Most that Config may say.
const (
	maxCacheBytes = 1 << 40
	maxMaxTokens  = 1 << 24
)

// WithDefaults is c with every zero field filled in that has a default.
func (c Config) WithDefaults() Config {
	if c.CacheBytes == 0 {
		c.CacheBytes = 64 << 20
	}
	if c.MaxTokens == 0 {
		c.MaxTokens = 1 << 22
	}
	if c.Namespace == nil {
		c.Namespace = namespace
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Validate reports all faults at once. It expects defaults to be filled in.
func (c *Config) Validate() error {
	var errs []error
	if c.CacheBytes > maxCacheBytes {
		errs = append(errs, fmt.Errorf("prompt: CacheBytes is %d, want at most %d, or below 0 for none", c.CacheBytes, maxCacheBytes))
	}
	if c.MaxTokens < 1 || c.MaxTokens > maxMaxTokens {
		errs = append(errs, fmt.Errorf("prompt: MaxTokens is %d, want 1 to %d", c.MaxTokens, maxMaxTokens))
	}
	return errors.Join(errs...)
}

// namespace is server.Namespace, which a test compares it with: who routes does not
// need a server.
func namespace(tenant, salt string) kv.Namespace {
	switch {
	case strings.HasPrefix(salt, "shared:"):
		return kv.Namespace{Salt: salt}
	case tenant == "" && salt == "":
		return kv.Namespace{}
	}
	b := append(make([]byte, 0, 12+len(tenant)+len(salt)), 't')
	b = binary.AppendUvarint(b, uint64(len(tenant)))
	b = append(append(b, tenant...), salt...)
	return kv.Namespace{Salt: string(b)}
}
