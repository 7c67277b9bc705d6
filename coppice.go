package coppice

import (
	"context"
	"iter"
	"time"

	"github.com/coppice-llm/coppice/actors"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/scheduler"
	"github.com/coppice-llm/coppice/tokenizer"
	"go.uber.org/zap"
)

// Config says what a Node runs. Backend is required, the rest has defaults that
// serve.
type Config struct {
	// Backend computes; engine/cpu has one. A Node that opened owns and closes it.
	Backend engine.Backend
	// Tokenizer turns text into tokens and back. Without one, requests are given
	// as tokens and pieces carry no text.
	Tokenizer *tokenizer.Tokenizer
	// EOS are the tokens that end an output, a model's Config().EOS. Default the
	// tokenizer's.
	EOS []kv.Token
	// Scheduler sets the policy, the token budget of a step, priorities (with Displace
	// MaxQueued defaults to three quarters of what MaxRequests leaves beside
	// MaxRunning), the cache and its events.
	Scheduler scheduler.Config
	// MaxRequests bounds the open requests, waiting ones included; each sample of
	// one counts. Default 1024.
	MaxRequests int
	// Tokenizers is the number of tokenizer workers. Default 1 to 4.
	Tokenizers int
	// FormatTimeout bounds how long the compiling of one Request.Format may take.
	// Default 5 s.
	FormatTimeout time.Duration
	// FormatBytes is how much memory compiled ones may take to be kept. Default 256 MiB.
	FormatBytes int
	// EventRing is how many cache events are kept for late readers. Default 65536.
	EventRing int
	// Tiers say where KV goes that the device has no room for: host memory, a directory
	// that a restart finds again, one that several processes share. Default: nowhere.
	Tiers Tiers
	// Pool is leased from beside other Nodes of this process, whose backends keep their KV
	// in the same memory; it has as many pages as the backend. Each Node is sure of its share
	// and has more while no other needs it. Default: a pool of its own.
	Pool *Pool
	// Log takes failures and, at debug level, steps. Default none.
	Log *zap.Logger
}

// Request asks for the continuation of a prompt: Tokens, then the tokens of Prompt.
type Request struct {
	// Tokens come first, as they are: a conversation so far, say, from the
	// Ending of its last request.
	Tokens []kv.Token
	// Prompt is text; special tokens in it count as such. If Tokens is empty, the
	// tokenizer's beginning-of-text token goes before it.
	Prompt string
	// Rendered says that Prompt is a chat template's output: no beginning-of-text token
	// goes before it.
	Rendered bool
	// Plain are ascending byte offsets in Prompt at which no special token begins: what
	// reads like one there is encoded as text.
	Plain []int
	// Namespace separates requests that must not share cache.
	Namespace kv.Namespace
	// PublicTokens is how many of the first tokens of the prompt requests of other salts
	// may share, such as a system prompt that holds no secret; the rest is the
	// Namespace's own. Rounded down to whole pages. Without a salt it means nothing.
	PublicTokens int
	// Media are the spans of Tokens that only stand for something else, such as the
	// patches of an image: by ascending At, without overlap. Spans of equal hashes have
	// equal KV; where they differ, nothing is shared from there on.
	Media []kv.Media
	// MaxTokens bounds the output; 0 takes Scheduler.DefaultMaxTokens, or what
	// room is left.
	MaxTokens int
	// StopTokens end the output, beside the model's end-of-text tokens.
	StopTokens []kv.Token
	// IgnoreEOS goes on past the model's end-of-text tokens.
	IgnoreEOS bool
	// Sampling is greedy by default.
	Sampling engine.SamplingParams
	// Digest asks for Ending.LogitDigest, to compare runs bit for bit.
	Digest bool

	// StopStrings end the output before the first of them in its text. With KeepStop
	// that string is the end of the text.
	StopStrings []string
	KeepStop    bool
	// Format is what the text has to match: JSON, a JSON schema or a regular
	// expression. It is compiled once, beside the steps, and kept for the next ones.
	// The output ends where nothing can follow; where it may end, the model says.
	Format Format
	// MinTokens: the output is not ended by a stop within its first so many tokens.
	// A complete Format ends it even so.
	MinTokens int
	// AllowedTokens, if any, are the only ones that are sampled; name those that
	// stop too.
	AllowedTokens []kv.Token
	// PromptLogprobs asks for Piece.PromptLogprobs. The whole prompt is computed then,
	// cached or not.
	PromptLogprobs bool
	// PromptTop, up to 20, asks for so many tokens of Piece.PromptTop in each place, beside
	// PromptLogprobs.
	PromptTop int32

	// Samples is how many outputs to draw, 1 if 0, at most Scheduler.MaxSamples.
	// They share the prompt, which is computed once. Sample 0 is what the request
	// gives with one; the others draw with seeds made of Sampling.Seed.
	Samples int
	// Tenant is on whose account the request runs, for limits and fair shares.
	Tenant string
	// Class groups requests whose outputs are of like length: what one of them took
	// tells what memory to keep free for the next. Default: Tenant.
	Class string
	// Priority: higher first under the policy scheduler.Priority, and preempted
	// last under all; with Scheduler.Eviction radixcache.Priority its prefix stays cached
	// longer.
	Priority int32
	// Timeline asks for Ending.Timeline, what happened to the request when.
	Timeline bool
	// Begun asks for a piece with nothing but Piece.Begun, when one of the samples is in a
	// step for the first time.
	Begun bool

	// Timeout ends the request with ErrDeadline so long after Generate began; 0 for
	// none.
	Timeout time.Duration
	// QueueTimeout ends it with ErrQueueTimeout if it waits so long for its first
	// turn; 0 for none.
	QueueTimeout time.Duration
}

// Piece is what came of one Sample since its last one: Text, which is complete
// UTF-8 and maybe empty, the Tokens behind it, and in the last piece its Ending.
// Final marks the last piece of the request.
type Piece = actors.Piece

// Format is what the text of an output has to match: JSON, JSONSchema or Regexp. The
// zero value lets everything pass.
type Format = actors.Format

// Ending is how a sample ended, all its Tokens for a next turn to go on from,
// and its bill: PromptTokens, CachedTokens, ComputedTokens, OutputTokens, Preemptions and times.
type Ending = actors.Ending

// Bill is what a request took, all its samples together: Add the Ending of each.
type Bill = actors.Bill

// Stream is a request that was opened: Next waits for its next piece, Abort gives it up.
type Stream = actors.Stream

// Stats are a Node's figures: the scheduler's, its tenants', the backend's own
// counts, and leaked pages.
type Stats = actors.Stats

// Pool is pages that several Nodes lease from; NewPool makes one of so many pages.
type Pool = actors.Pool

// NewPool makes a pool of pages for so many Nodes at a time.
func NewPool(pages, nodes int) (*Pool, error) { return actors.NewPool(pages, nodes) }

// Tiers say where KV goes below the device, and TierStats what a tier holds and has done.
type (
	Tiers     = actors.Tiers
	TierStats = actors.TierStats
)

// TreeQuery bounds what Node.Tree shows; Tree is what the cache holds, TreeNode a run
// of tokens in it.
type (
	TreeQuery = actors.TreeQuery
	Tree      = actors.Tree
	TreeNode  = actors.TreeNode
)

// Run is a sample that has a slot.
type Run = scheduler.Run

// Wait says of one sample why it waits; its String is a sentence.
type Wait = scheduler.Wait

// Reason tells why a request ended.
type Reason = scheduler.Reason

// The reasons of an Ending.
const (
	Stop   = scheduler.Stop   // a stop or end-of-text token, a stop string, a complete Format
	Length = scheduler.Length // MaxTokens
	Abort  = scheduler.Abort  // the caller left, or its time was up
	Failed = scheduler.Failed // see Ending.Err
)

// Errors that Generate and the methods around the cache give, wrapped with the figures.
var (
	ErrQueueFull     = scheduler.ErrQueueFull
	ErrTenantFull    = scheduler.ErrTenantFull
	ErrDisplaced     = scheduler.ErrDisplaced
	ErrEmptyPrompt   = scheduler.ErrEmptyPrompt
	ErrPromptTooLong = scheduler.ErrPromptTooLong
	ErrTooLarge      = scheduler.ErrTooLarge
	ErrInvalid       = scheduler.ErrInvalid
	ErrAborted       = scheduler.ErrAborted
	ErrDeadline      = scheduler.ErrDeadline
	ErrQueueTimeout  = scheduler.ErrQueueTimeout
	ErrFormatTimeout = actors.ErrFormatTimeout
	ErrClosed        = actors.ErrClosed
	ErrLagged        = actors.ErrLagged
	ErrNoCache       = scheduler.ErrNoCache
	ErrContract      = scheduler.ErrContract
	ErrLogits        = engine.ErrLogits
	ErrNotCached     = radixcache.ErrNotCached
	ErrPinBudget     = radixcache.ErrPinBudget
)

// FieldError is a refusal that one field of a Request is the reason of.
type FieldError = scheduler.FieldError

// Node is a running scheduler around one backend.
type Node struct{ sys *actors.System }

// Open starts a Node. It reports all faults of cfg at once; if it fails, Backend
// is still the caller's.
func Open(cfg Config) (*Node, error) {
	sys, err := actors.Start(actors.Config(cfg))
	if err != nil {
		return nil, err
	}
	return &Node{sys}, nil
}

// Generate runs a request when ranged over and yields its pieces as they come,
// those of several samples in turns. The last one of each sample has an Ending. A
// refusal, a failure, the end of a time limit or of ctx is yielded as the error.
// The loop ends with the final piece, or with an error that comes without an
// Ending. Leaving the loop early aborts the request.
func (n *Node) Generate(ctx context.Context, req Request) iter.Seq2[Piece, error] {
	return func(yield func(Piece, error) bool) {
		stream, err := n.sys.Open(actors.Request(req))
		if err != nil {
			yield(Piece{}, err)
			return
		}
		defer stream.Abort(nil) // of no effect once it has ended
		for {
			piece, err := stream.Next(ctx)
			if !yield(piece, err) || piece.Final || err != nil && piece.Ending == nil {
				return
			}
		}
	}
}

// Stream is Generate for a caller who takes the pieces himself, and who may want the
// Ending of what he gives up: Next has it behind an Abort or the end of its context, when
// the step that runs is done. He takes all pieces, or aborts it.
func (n *Node) Stream(req Request) (*Stream, error) { return n.sys.Open(actors.Request(req)) }

// Text is what Node.Tokenize encodes.
type Text = actors.Text

// Tokenize encodes a text beside the prompts of requests, tenants in turns. It is no open
// request, so MaxRequests does not bound it: see Enter.
func (n *Node) Tokenize(ctx context.Context, t Text) ([]kv.Token, error) {
	return n.sys.Tokenize(ctx, t)
}

// Enter counts work that is no Request, such as a Tokenize for a client, against
// MaxRequests until leave is called, once. It fails with ErrQueueFull, or as after Close.
func (n *Node) Enter() (leave func(), err error) { return n.sys.Enter() }

// Events yields the cache events from sequence number from on, in order and
// without gaps, until ctx or the Node ends; ErrLagged if some are not kept any
// more. They flow only with Scheduler.Events on.
func (n *Node) Events(ctx context.Context, from uint64) iter.Seq2[kv.Event, error] {
	return func(yield func(kv.Event, error) bool) {
		sub, err := n.sys.Subscribe(ctx, from)
		if err != nil {
			yield(kv.Event{}, err)
			return
		}
		defer sub.Close()
		for {
			event, err := sub.Next(ctx)
			if !yield(event, err) || err != nil {
				return
			}
		}
	}
}

// Tokenizer is that of the Config, nil if it has none.
func (n *Node) Tokenizer() *tokenizer.Tokenizer { return n.sys.Tokenizer() }

// Info describes the backend: model, pool and limits.
func (n *Node) Info() engine.Info { return n.sys.Info() }

// Stats reads the figures of now; after Close, those of the end.
func (n *Node) Stats(ctx context.Context) (Stats, error) { return n.sys.Stats(ctx) }

// Waiting says of each sample that waits why. Requests are numbered from 1 in the
// order in which they came.
func (n *Node) Waiting(ctx context.Context) ([]Wait, error) { return n.sys.Waiting(ctx) }

// Running is who has a slot, by admission, oldest first.
func (n *Node) Running(ctx context.Context) ([]Run, error) { return n.sys.Running(ctx) }

// Tree lists what the cache holds, as of now. The steps wait for it: some 0.2 µs for each node
// that is shown.
func (n *Node) Tree(ctx context.Context, q TreeQuery) (Tree, error) { return n.sys.Tree(ctx, q) }

// FlushCache forgets all prefixes; running requests keep what they have.
func (n *Node) FlushCache(ctx context.Context) error { return n.sys.FlushCache(ctx) }

// PinPrefix keeps the whole pages of a cached prefix for d, or with 0 until
// UnpinPrefix. It fails with ErrNotCached if they are not held, with ErrPinBudget
// beyond Scheduler.PinnedTokens, with ErrNoCache if the cache is off.
func (n *Node) PinPrefix(ctx context.Context, ns kv.Namespace, tokens []kv.Token, d time.Duration) error {
	return n.sys.PinPrefix(ctx, ns, tokens, d)
}

// UnpinPrefix lets a pinned prefix go; ErrNotCached if it is not pinned.
func (n *Node) UnpinPrefix(ctx context.Context, ns kv.Namespace, tokens []kv.Token) error {
	return n.sys.UnpinPrefix(ctx, ns, tokens)
}

// HitRates is, for each capacity in tokens, the share of prompt tokens that a cache
// of that size would have found so far; nothing unless Scheduler.CurveSamples is set.
func (n *Node) HitRates(ctx context.Context, capacityTokens []int) ([]float64, error) {
	return n.sys.HitRates(ctx, capacityTokens)
}

// Done is closed when the Node begins to end: by Close, or because its device or what drives
// it failed. It takes no requests any more then.
func (n *Node) Done() <-chan struct{} { return n.sys.Done() }

// Err is nil while the Node runs, then why it ends: ErrClosed after Close.
func (n *Node) Err() error { return n.sys.Err() }

// Close ends open requests with ErrClosed and closes the backend. It returns
// when nothing runs any more: nil, or why the Node had failed before.
func (n *Node) Close() error { return n.sys.Close() }
