package actors

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/internal/budget"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
	"github.com/coppice-llm/coppice/tokenizer"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Config configures a Node. Backend is required.
type Config struct {
	// Backend computes; engine/cpu has one. Once Open has succeeded, the Node owns and closes
	// it.
	Backend engine.Backend
	// Tokenizer encodes prompts and decodes outputs. Default: none; requests are given as
	// tokens then, and pieces have no text.
	Tokenizer *tokenizer.Tokenizer
	// Template renders the conversations of Chat. Default: none; Chat fails then.
	Template *chat.Template
	// EOS lists the tokens that end an output, such as Config().EOS of a model. Default: the
	// tokenizer's.
	EOS []kv.Token
	// Pooling makes the embeddings of requests that name none, such as those of a server. A model is
	// trained for one. Default: scheduler.LastToken.
	Pooling scheduler.Pooling
	// Scheduler sets the policy, the token budget of a step, priorities, tenants, the cache and
	// its events. Its MaxQueued has a default of its own here: MaxRequests, or with Displace
	// (MaxRequests - MaxRunning) * 3/4.
	Scheduler scheduler.Config
	// MaxRequests bounds the open requests, waiting ones included; a request with n samples
	// counts n times. Default: 1024.
	MaxRequests int `default:"1024" min:"1"`
	// Tokenizers is the number of workers that encode. Default: half of GOMAXPROCS, 1 to 4.
	Tokenizers int `min:"1"`
	// FormatTimeout bounds the compilation of one Request.Format. Default: 5 s.
	FormatTimeout time.Duration `default:"5s" min:"0s"`
	// FormatBytes bounds the memory of the cache of compiled formats. Default: 256 MiB.
	FormatBytes int `default:"256<<20" min:"1"`
	// TextBytes bounds the memory for the tokens of texts encoded before, so that the next turn of a
	// conversation costs only the encoding of its new text. They are found by the same tenant in the
	// same namespace alone. Default: 64 MiB, for about 50 conversations of 140,000 tokens; negative: none.
	TextBytes int `default:"64<<20" max:"1<<40"`
	// Memory bounds the bytes that open requests keep on the Go heap: package server charges bodies,
	// texts, rendered conversations and outputs to it, and the Node buffers of its tokenizers.
	// Several Nodes of a process may share one. Default: NewMemory(1 << 30).
	Memory *Memory
	// EventRing is the number of cache events kept for late readers. Default: 65536.
	EventRing int `default:"1<<16" min:"1" max:"1<<30"`
	// Tiers hold KV evicted from the device. Default: none; evicted KV is dropped.
	Tiers Tiers
	// Pool is a page pool shared with other Nodes of this process whose backends keep their KV
	// in the same memory; it must have as many pages as the backend. Each Node is guaranteed its
	// share, and may use pages that the others do not need. Default: a pool of the Node's own.
	Pool *Pool
	// Log receives failures and, at debug level, steps. Default: nothing is logged.
	Log *slog.Logger
}

// Memory is a number of bytes that open requests share. Used returns those in use, and Most all.
type Memory = budget.Budget

func (c Config) withDefaults() Config {
	c = bounds.Fill(c)
	c.Tokenizers = cmp.Or(c.Tokenizers, min(max(runtime.GOMAXPROCS(0)/2, 1), 4))
	if c.EOS = slices.Clone(c.EOS); c.EOS == nil && c.Tokenizer != nil {
		c.EOS = c.Tokenizer.EOS()
	}
	c.Pooling = cmp.Or(c.Pooling, scheduler.LastToken)
	if c.Memory == nil {
		c.Memory = budget.New(1 << 30)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Tiers.Flush == 0 {
		c.Tiers.Flush = DefaultFlush
	}
	// MaxRequests is usually the limit that binds; the scheduler's MaxQueued counts samples,
	// too.
	if c.Scheduler.MaxQueued == 0 {
		c.Scheduler.MaxQueued = c.MaxRequests
		if c.Scheduler.Displace && c.Backend != nil {
			running := c.Scheduler.WithDefaults(c.Backend.Info()).MaxRunning
			c.Scheduler.MaxQueued = max(1, (c.MaxRequests-running)*3/4)
		}
	}
	return c
}

func (c Config) validate() error {
	errs := []error{bounds.Check("actors", c), c.Tiers.validate()}
	if c.Backend == nil {
		errs = append(errs, errors.New("actors: Backend is nil, give one (engine/cpu has one)"))
	}
	if q := c.Scheduler.MaxQueued; q > c.MaxRequests {
		errs = append(errs, fmt.Errorf("actors: Scheduler.MaxQueued is %d, want at most MaxRequests, %d", q, c.MaxRequests))
	}
	if c.Backend != nil && c.Tokenizer != nil && c.Tokenizer.VocabSize() > c.Backend.Info().Vocab {
		errs = append(errs, fmt.Errorf("actors: the tokenizer has %d tokens, the model %d: the tokenizer belongs to another model",
			c.Tokenizer.VocabSize(), c.Backend.Info().Vocab))
	}
	return errors.Join(errs...)
}
