package coppice

import (
	"context"
	"log/slog"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/actors"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/internal/budget"
	"github.com/coppice-llm/coppice/internal/slogcore"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/tiering"
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
	// Scheduler sets the policy, the token budget of a step, priorities, tenants, the cache and
	// its events. Its MaxQueued has a default of its own here: MaxRequests, or with Displace
	// (MaxRequests - MaxRunning) * 3/4.
	Scheduler scheduler.Config
	// MaxRequests bounds the open requests, waiting ones included; a request with n samples
	// counts n times. Default: 1024.
	MaxRequests int
	// Tokenizers is the number of workers that encode. Default: half of GOMAXPROCS, 1 to 4.
	Tokenizers int
	// FormatTimeout bounds the compilation of one Request.Format. Default: 5 s.
	FormatTimeout time.Duration
	// FormatBytes bounds the memory of the cache of compiled formats. Default: 256 MiB.
	FormatBytes int
	// Memory bounds the bytes that open requests keep on the Go heap: package server charges bodies,
	// texts, rendered conversations and outputs to it, and the Node buffers of its tokenizers.
	// Several Nodes of a process may share one. Default: NewMemory(1 << 30).
	Memory *Memory
	// EventRing is the number of cache events kept for late readers. Default: 65536.
	EventRing int
	// Tiers hold KV evicted from the device. Default: none; evicted KV is dropped.
	Tiers Tiers
	// Pool is a page pool shared with other Nodes of this process whose backends keep their KV
	// in the same memory; it must have as many pages as the backend. Each Node is guaranteed its
	// share, and may use pages that the others do not need. Default: a pool of the Node's own.
	Pool *Pool
	// Log receives failures and, at debug level, steps. Default: LogHandler.
	Log *zap.Logger
	// LogHandler receives the same where Log is nil. Default: nothing is logged.
	LogHandler slog.Handler
}

// Tiers configures the storage below device memory, to which evicted KV is offloaded.
type Tiers struct {
	// HostBytes is the host memory for KV. Default: 0, none.
	HostBytes int64
	// Disk is a directory for at most DiskBytes of KV, used by one process at a time. Its
	// contents survive a restart. Default: none.
	Disk      string
	DiskBytes int64
	// Share is a directory for at most ShareBytes of KV that several processes use at once.
	// Default: none.
	Share      string
	ShareBytes int64
	// Shrink permits that KV is dropped because DiskBytes or ShareBytes is smaller than the size
	// recorded in the directory. Without it, a disk keeps room for what it holds, and a shared
	// directory keeps its size; the log says so.
	Shrink bool
	// Sealer, unless nil, encrypts and authenticates the KV in Disk and Share. Host memory is not
	// sealed. mempool.NewSealer makes one from secrets.
	Sealer *mempool.Sealer
	// Required makes Open fail if a tier can't be opened. Without it the node starts without
	// that tier and logs a warning. An invalid configuration always fails.
	Required bool
	// Stores are further stores, at most one per tier. Once Open has succeeded, the Node owns
	// and closes them.
	Stores []mempool.Store
	// ExtentPages is the number of pages that move together. Default: the smallest power of two
	// whose pages hold at least 1 MiB.
	ExtentPages int
	// Write selects when KV is copied from the device to the tier below. Default:
	// tiering.WriteBack.
	Write tiering.Mode
	// Flush bounds the time for which Close writes KV from the device and host memory to Disk
	// and Share. Default: 10 s; negative: nothing is written.
	Flush time.Duration
	// TokenSeconds is the time to compute one prompt token, used until steps have been measured.
	// KV whose fetch would take longer than computing it is not fetched. Default: 0, at first
	// everything is fetched.
	TokenSeconds float64
}

// Memory is a number of bytes that open requests share. Used returns those in use, and Most all.
type Memory = budget.Budget

// NewMemory returns a Memory of the given number of bytes.
func NewMemory(bytes int64) *Memory { return budget.New(bytes) }

// Pool is a pool of pages that several Nodes share.
type Pool struct{ inner *actors.Pool }

// NewPool makes a pool of that many pages, for at most as many Nodes at a time as nodes
// says.
func NewPool(pages, nodes int) (*Pool, error) {
	p, err := actors.NewPool(pages, nodes)
	if err != nil {
		return nil, public(err)
	}
	return &Pool{p}, nil
}

// SharePages returns the number of pages guaranteed to each Node; no request may need more.
func (p *Pool) SharePages() int { return p.inner.SharePages() }

// Node is a running scheduler around one backend. Its methods may be called from any goroutine.
type Node struct {
	sys         *actors.System
	template    *chat.Template
	controls    *chat.Controls
	maxRequests int
}

// Open starts a Node. It reports all faults of cfg at once. If it fails, the caller still owns
// Backend.
func Open(cfg Config) (*Node, error) {
	inner := actors.Config{
		Backend: cfg.Backend, Tokenizer: cfg.Tokenizer, EOS: cfg.EOS, Scheduler: cfg.Scheduler, MaxRequests: cfg.MaxRequests, Tokenizers: cfg.Tokenizers,
		FormatTimeout: cfg.FormatTimeout, FormatBytes: cfg.FormatBytes, EventRing: cfg.EventRing, Tiers: actors.Tiers(cfg.Tiers), Memory: cfg.Memory,
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

// Text is a text for Node.Tokenize.
type Text struct {
	Tenant   string // the tenant whose turn it takes
	Text     string
	Rendered bool  // as in Request
	Plain    []int // as in Request
	// Bounded refuses a text that is too long for any prompt, as Generate does. Otherwise the
	// whole text is encoded.
	Bounded bool
}

// Tokenize encodes a text as a prompt is encoded, when its tenant has its turn. It does not
// count against MaxRequests; see Enter. Without a tokenizer it fails with ErrInvalid.
func (n *Node) Tokenize(ctx context.Context, t Text) ([]kv.Token, error) {
	tokens, err := n.sys.Tokenize(ctx, actors.Text(t))
	return tokens, public(err)
}

// Enter counts work that is not a Request, such as a Tokenize for a client, against
// MaxRequests. The caller must call leave once, when the work is done. Enter fails with
// ErrQueueFull, or with ErrClosed after Close.
func (n *Node) Enter() (leave func(), err error) {
	leave, err = n.sys.Enter()
	return leave, public(err)
}

// Tokenizer returns Config.Tokenizer, nil if none was given.
func (n *Node) Tokenizer() *tokenizer.Tokenizer { return n.sys.Tokenizer() }

// PromptBytes returns the most bytes that the text of a prompt can have, because longer texts have too
// many tokens, and the error for a longer one. It returns 0 if the tokenizer sets no such bound.
func (n *Node) PromptBytes() (most int, tooLong error) {
	most, tooLong = n.sys.PromptBytes()
	return most, public(tooLong)
}

// Memory returns Config.Memory, or its default.
func (n *Node) Memory() *Memory { return n.sys.Memory() }

// Template returns Config.Template, nil if none was given.
func (n *Node) Template() *chat.Template { return n.template }

// Info describes the backend: model, pool and limits.
func (n *Node) Info() engine.Info { return n.sys.Info() }

// Limits returns the scheduler's configuration, defaults applied.
func (n *Node) Limits() scheduler.Config { return n.sys.Limits() }

// Done returns a channel that is closed when the Node begins to end, by Close or because its
// device failed. From then on it refuses requests.
func (n *Node) Done() <-chan struct{} { return n.sys.Done() }

// Err returns nil while the Node runs, then the cause of its end: ErrClosed after Close.
func (n *Node) Err() error { return public(n.sys.Err()) }

// Close ends open requests with ErrClosed and closes the backend. It returns once everything
// has stopped: nil, or the failure that had ended the Node before.
func (n *Node) Close() error { return public(n.sys.Close()) }
