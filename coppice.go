package coppice

import (
	"context"
	"log/slog"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/actors"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/internal/slogcore"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/tiering"
	"github.com/coppice-llm/coppice/scheduler"
	"github.com/coppice-llm/coppice/tokenizer"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Config says what a Node runs. Backend is required.
type Config struct {
	// Backend computes; engine/cpu has one. A Node that opened owns it and closes it.
	Backend engine.Backend
	// Tokenizer encodes prompts and decodes outputs. Default: none; requests are given as
	// tokens then, and pieces have no text.
	Tokenizer *tokenizer.Tokenizer
	// Template renders the conversations of Chat. Default: none; Chat fails then.
	Template *chat.Template
	// EOS are the tokens that end an output, the Config().EOS of a model. Default: the
	// tokenizer's.
	EOS []kv.Token
	// Scheduler sets the policy, the token budget of a step, priorities, tenants, the cache
	// and its events. MaxQueued there has its own default: MaxRequests, or with Displace three
	// quarters of MaxRequests less MaxRunning.
	Scheduler scheduler.Config
	// MaxRequests bounds the open requests, including those that wait; each sample counts as
	// one. Default: 1024.
	MaxRequests int
	// Tokenizers is the number of workers that encode. Default: half the processors, 1 to 4.
	Tokenizers int
	// FormatTimeout bounds the compilation of one Request.Format. Default: 5 s.
	FormatTimeout time.Duration
	// FormatBytes bounds the memory of compiled formats that are kept. Default: 256 MiB.
	FormatBytes int
	// EventRing is the number of cache events that are kept for late readers. Default: 65536.
	EventRing int
	// Tiers hold KV that the device has no room for. Default: none; it is dropped then.
	Tiers Tiers
	// Pool is shared with other Nodes of this process whose backends keep their KV in the same
	// memory; it has as many pages as the backend. Each Node has its share for certain, and
	// more while the others do not need theirs. Default: a pool of the Node's own.
	Pool *Pool
	// Log receives failures and, at debug level, steps. Default: LogHandler.
	Log *zap.Logger
	// LogHandler receives the same where Log is nil. Default: nothing is logged.
	LogHandler slog.Handler
}

// Tiers say where KV goes that the device has no room for.
type Tiers struct {
	// HostBytes is the host memory for KV. Default: 0, none.
	HostBytes int64
	// Disk is a directory of at most DiskBytes, for one process at a time. A restart finds its
	// content again. Default: none.
	Disk      string
	DiskBytes int64
	// Share is a directory of at most ShareBytes that several processes use at once. Default:
	// none.
	Share      string
	ShareBytes int64
	// Stores are others, at most one for each tier. A Node that opened owns and closes them.
	Stores []mempool.Store
	// ExtentPages is the number of pages that move together. Default: as many as hold 1 MiB.
	ExtentPages int
	// Write says when KV goes from the device to the tier below. Default: tiering.WriteBack.
	Write tiering.Mode
	// Flush bounds how long Close writes KV from the device and from host memory to disk.
	// Default: 10 s; negative: nothing is written.
	Flush time.Duration
	// TokenSeconds is the time to compute one token, until steps were measured. Fetches that
	// would take longer than computing are not made. Default: 0, every fetch pays at first.
	TokenSeconds float64
}

// Pool has the pages that several Nodes share.
type Pool struct{ inner *actors.Pool }

// NewPool makes a pool for so many Nodes at a time.
func NewPool(pages, nodes int) (*Pool, error) {
	p, err := actors.NewPool(pages, nodes)
	if err != nil {
		return nil, public(err)
	}
	return &Pool{p}, nil
}

// SharePages is the number of pages that each Node has for certain; no request may need more.
func (p *Pool) SharePages() int { return p.inner.SharePages() }

// Node is a running scheduler around one backend. Its methods may be called by any goroutine.
type Node struct {
	sys         *actors.System
	template    *chat.Template
	controls    *chat.Controls
	maxRequests int
}

// Open starts a Node. It reports all faults of cfg at once; if it fails, Backend is still the
// caller's.
func Open(cfg Config) (*Node, error) {
	inner := actors.Config{
		Backend: cfg.Backend, Tokenizer: cfg.Tokenizer, EOS: cfg.EOS, Scheduler: cfg.Scheduler, MaxRequests: cfg.MaxRequests, Tokenizers: cfg.Tokenizers,
		FormatTimeout: cfg.FormatTimeout, FormatBytes: cfg.FormatBytes, EventRing: cfg.EventRing, Tiers: actors.Tiers(cfg.Tiers),
		Log: slogcore.Choose(cfg.Log, cfg.LogHandler),
	}
	if cfg.Pool != nil {
		inner.Pool = cfg.Pool.inner
	}
	sys, err := actors.Start(inner)
	if err != nil {
		return nil, public(err)
	}
	n := &Node{sys: sys, template: cfg.Template, maxRequests: sys.MaxRequests()}
	if cfg.Tokenizer != nil {
		n.controls = chat.NewControls(cfg.Tokenizer.ControlTokens())
	}
	return n, nil
}

// Text is what Node.Tokenize encodes.
type Text struct {
	Tenant   string // whose turn it takes
	Text     string
	Rendered bool  // as in Request
	Plain    []int // as in Request
	// Bounded refuses a text that is too long for any prompt, as Generate does. Otherwise the
	// whole text is encoded.
	Bounded bool
}

// Tokenize encodes a text like a prompt, in the turns of its tenant. It is no request, so
// MaxRequests does not bound it: see Enter.
func (n *Node) Tokenize(ctx context.Context, t Text) ([]kv.Token, error) {
	tokens, err := n.sys.Tokenize(ctx, actors.Text(t))
	return tokens, public(err)
}

// Enter counts work that is no Request, such as a Tokenize for a client, against MaxRequests
// until leave is called, once. It fails with ErrQueueFull, or with ErrClosed after Close.
func (n *Node) Enter() (leave func(), err error) {
	leave, err = n.sys.Enter()
	return leave, public(err)
}

// Tokenizer is that of the Config, nil if it has none.
func (n *Node) Tokenizer() *tokenizer.Tokenizer { return n.sys.Tokenizer() }

// Template is the chat template of the Config, nil if it has none.
func (n *Node) Template() *chat.Template { return n.template }

// Info describes the backend: model, pool and limits.
func (n *Node) Info() engine.Info { return n.sys.Info() }

// Limits is the scheduler's configuration, with its defaults.
func (n *Node) Limits() scheduler.Config { return n.sys.Limits() }

// Done is closed when the Node begins to end: by Close, or because its device failed. From
// then on it refuses requests.
func (n *Node) Done() <-chan struct{} { return n.sys.Done() }

// Err is nil while the Node runs, then the cause of its end: ErrClosed after Close.
func (n *Node) Err() error { return public(n.sys.Err()) }

// Close ends open requests with ErrClosed and closes the backend. It returns when nothing runs
// any more: nil, or why the Node had failed before.
func (n *Node) Close() error { return public(n.sys.Close()) }
