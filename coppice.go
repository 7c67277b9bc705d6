package coppice

import (
	"context"

	"github.com/coppice-llm/coppice/actors"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/internal/budget"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
	"github.com/coppice-llm/coppice/tokenizer"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Memory is a number of bytes that open requests share. Used returns those in use, and Most all.
type Memory = actors.Memory

// NewMemory returns a Memory of the given number of bytes.
func NewMemory(bytes int64) *Memory { return budget.New(bytes) }

// Pool is a pool of pages that several Nodes share. SharePages returns the number of pages guaranteed to each Node; no
// request may need more.
type Pool = actors.Pool

// NewPool makes a pool of that many pages, for at most as many Nodes at a time as nodes
// says.
func NewPool(pages, nodes int) (*Pool, error) {
	p, err := actors.NewPool(pages, nodes)
	return p, public(err)
}

// Node is a running scheduler around one backend. Its methods may be called from any goroutine.
type Node struct {
	sys      *actors.System
	template *chat.Template
	controls *chat.Controls
	names    names // of parked sessions
}

// Open starts a Node. It reports all faults of cfg at once. If it fails, the caller still owns
// Backend.
func Open(cfg Config) (*Node, error) {
	sys, err := actors.Start(cfg)
	if err != nil {
		return nil, public(err)
	}
	n := &Node{sys: sys, template: cfg.Template}
	if cfg.Tokenizer != nil {
		n.controls = chat.NewControls(cfg.Tokenizer.ControlTokens())
	}
	return n, nil
}

// Tokenize encodes a text as a prompt is encoded, when its tenant has its turn. It does not
// count against MaxRequests; see Enter. Without a tokenizer it fails with ErrInvalid.
func (n *Node) Tokenize(ctx context.Context, t Text) ([]kv.Token, error) {
	tokens, err := n.sys.Tokenize(ctx, t)
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
