package actors

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// Request asks for the continuation of a prompt: Tokens, followed by the tokens of Prompt.
// The zero value of each other field is its default.
type Request struct {
	// Tokens are the beginning of the prompt, for example Ending.Tokens of the last turn of
	// a conversation.
	Tokens []kv.Token
	// Prompt is text; special tokens in it are encoded as such. If Tokens is empty, the
	// tokenizer's beginning-of-text token goes before it.
	Prompt string
	// Rendered marks Prompt as the output of a chat template: no beginning-of-text token is put
	// before it.
	Rendered bool
	// Plain lists ascending byte offsets in Prompt at which special tokens are not recognised:
	// text there that looks like one is encoded as text.
	Plain []int
	// Namespace separates requests that must not share cache. Default: all share.
	Namespace kv.Namespace
	// PublicTokens is the number of tokens at the beginning of the prompt that requests with
	// other salts may share, such as a system prompt without secrets; the rest belongs to the
	// Namespace. It is rounded down to whole pages, and has no effect without a salt. Default:
	// 0.
	PublicTokens int
	// Media lists the spans of Tokens that stand for other content, such as the patches of an
	// image, by ascending At and without overlap. Spans with equal hashes have equal KV; from
	// the first difference on, nothing is shared.
	Media []kv.Media
	// MaxTokens bounds the output. Default: Scheduler.DefaultMaxTokens, or as many as fit.
	MaxTokens int
	// StopTokens end the output, in addition to the model's end-of-text tokens.
	StopTokens []kv.Token
	// IgnoreEOS continues past the model's end-of-text tokens.
	IgnoreEOS bool
	// Sampling selects how each token is chosen. Default: the most probable one.
	Sampling engine.SamplingParams
	// Digest requests Ending.LogitDigest, to compare runs bit by bit.
	Digest bool

	// StopStrings end the output before the first of them in its text. With KeepStop the
	// text includes that string.
	StopStrings []string
	KeepStop    bool
	// SpecialText lists special tokens whose text the pieces have, such as the marks around a tool
	// call. StopStrings are not looked for in it. Default: special tokens have no text.
	SpecialText []kv.Token
	// Prediction is text that the output is expected to repeat in large parts, such as a file of which
	// the prompt asks for a changed copy. Where it is right the output comes sooner; it changes no token.
	// Special tokens in it are text. It needs a tokenizer. A text with more tokens than a prompt can have
	// is not used. Default: none.
	Prediction string
	// Speculate says how many guesses at its next tokens an output verifies in a step. Default: as
	// Scheduler.Speculate says.
	Speculate scheduler.Speculate
	// Format constrains the text. It is compiled once, in parallel to the steps, and cached. The
	// output ends where no continuation matches; where it may end or continue, the model
	// decides. Default: any text.
	Format grammar.Format
	// MinTokens is the length below which no stop token or string ends the output; a complete
	// Format does. Default: 0.
	MinTokens int
	// AllowedTokens, if given, are the only tokens that may be sampled; include the stop tokens.
	// Default: all tokens.
	AllowedTokens []kv.Token
	// PromptLogprobs requests Piece.PromptLogprobs. The whole prompt is then computed, even if
	// it is cached.
	PromptLogprobs bool
	// PromptTop is the number of tokens per position in Piece.PromptTop, up to 20; it needs
	// PromptLogprobs. Default: 0.
	PromptTop int32
	// Embed requests an embedding of the prompt, Piece.Embedding, in place of output. Fields about the
	// output must then be zero. Default: output.
	Embed Embed

	// Samples is the number of outputs, at most Scheduler.MaxSamples. They share the prompt,
	// which is computed once. Sample 0 equals the output of a request with one sample; the
	// others use seeds derived from Sampling.Seed. Default: 1.
	Samples int
	// Tenant is the account of the request, for limits and fair shares.
	Tenant string
	// Class groups requests with outputs of similar length: from the ended requests of a class,
	// the scheduler predicts the memory that the next ones need. Default: Tenant.
	Class string
	// Session names the session that the request is a turn of, within its Namespace and Tenant: an agent's or
	// a user's row of requests of which each usually continues the one before. At most 256 bytes. It changes
	// no token, only what stays cached. Default: none.
	Session string
	// Priority: higher runs first under the policy scheduler.Priority and is preempted last
	// under all; with Scheduler.Eviction radixcache.Priority its prefix stays cached longer.
	// Default: 0.
	Priority int32
	// Timeline requests Ending.Timeline, the events of the request with their times.
	Timeline bool
	// Begun requests an extra piece with Piece.Begun, when the first sample enters a step.
	Begun bool

	// Timeout ends the request with ErrDeadline. Default: never.
	Timeout time.Duration
	// QueueTimeout ends the request with ErrQueueTimeout if it waits that long for its first
	// step. Default: never.
	QueueTimeout time.Duration
}

// openRequests admits requests while there are credits, and holds every open stream: whatever
// happens to the actors, it can end them all.
type openRequests struct {
	sys *System

	mu     sync.Mutex
	open   map[scheduler.RequestID]*Stream
	taken  int // credits in use
	lastID scheduler.RequestID
	closed error
}

func newOpenRequests(s *System) *openRequests {
	return &openRequests{sys: s, open: make(map[scheduler.RequestID]*Stream)}
}

// Open accepts a request or refuses it: with scheduler.ErrQueueFull if MaxRequests are open,
// with ErrClosed or the failure after the system's end, or with scheduler.ErrInvalid or
// scheduler.ErrEmptyPrompt if the request itself is wrong. Errors that only the scheduler can
// find, such as a prompt that is too long, end each sample of the stream instead.
func (s *System) Open(req Request) (*Stream, error) {
	if err := s.check(&req); err != nil {
		return nil, err
	}
	req.Samples = max(req.Samples, 1)
	var deadline time.Duration
	if req.Timeout > 0 {
		deadline = s.now() + min(req.Timeout, lastTime)
	}
	// The request is used on other goroutines from here on; clone the slices, which remain the
	// caller's.
	req.Tokens, req.StopTokens = slices.Clone(req.Tokens), slices.Clone(req.StopTokens)
	req.Plain, req.Media = slices.Clone(req.Plain), slices.Clone(req.Media)
	req.AllowedTokens = slices.Clone(req.AllowedTokens)
	req.Sampling.Bias = slices.Clone(req.Sampling.Bias)
	var stops *grammar.Stops
	if len(req.StopStrings) > 0 {
		var err error
		if stops, err = grammar.NewStops(req.StopStrings); err != nil {
			return nil, fmt.Errorf("%w: StopStrings: %w", scheduler.ErrInvalid, err)
		}
	}
	stream, err := s.requests.enter(req.Samples)
	if err != nil {
		return nil, err
	}
	stream.deadline, stream.stops, stream.keepStop, stream.special = deadline, stops, req.KeepStop, slices.Clone(req.SpecialText)
	stream.wants = wants{req.Sampling.Logprobs || req.Sampling.TopLogprobs > 0, req.Begun, req.Embed}
	if req.Prompt != "" || req.Prediction != "" {
		s.turns.tell(&encode{tenant: req.Tenant, stream: stream, req: req})
	} else {
		s.submit(stream, req, req.Tokens, nil)
	}
	return stream, nil
}

// lastTime is 73 years, later than any process lives, and still small enough that adding a time
// since Start does not overflow a time.Duration.
const lastTime = time.Duration(1) << 61

// check returns an error if a field of req is invalid, as far as that is known before the
// prompt's tokens are.
func (s *System) check(req *Request) error {
	switch most := s.cfg.Scheduler.MaxSamples; {
	case req.Prompt != "" && s.cfg.Tokenizer == nil:
		return fmt.Errorf("%w: a text prompt needs a tokenizer, give tokens", scheduler.ErrInvalid)
	case req.Prediction != "" && s.cfg.Tokenizer == nil:
		return fmt.Errorf("%w: Prediction needs a tokenizer", scheduler.ErrInvalid)
	case req.Prompt == "" && len(req.Tokens) == 0:
		return fmt.Errorf("%w: give text or tokens", scheduler.ErrEmptyPrompt)
	case req.Samples < 0 || req.Samples > min(most, s.cfg.MaxRequests):
		err := fmt.Errorf("%w: Samples is %d, want 0 (one) to %d", scheduler.ErrInvalid, req.Samples, min(most, s.cfg.MaxRequests))
		return &scheduler.FieldError{Field: "Samples", Err: err}
	case s.cfg.Tokenizer == nil && (len(req.StopStrings) > 0 || req.Format != grammar.Format{}):
		return fmt.Errorf("%w: StopStrings and Format need a tokenizer", scheduler.ErrInvalid)
	case req.Timeout < 0 || req.QueueTimeout < 0:
		return fmt.Errorf("%w: Timeout is %v and QueueTimeout %v, want 0 (none) or more", scheduler.ErrInvalid, req.Timeout, req.QueueTimeout)
	}
	info := s.Info()
	if err := req.Embed.check(&info); err != nil {
		return err
	}
	return checkFormat(req.Format)
}

// submit passes on the request req, whose prompt is tokens and whose expected output is prediction. If a tier is shared and may
// hold part of the prompt, the engine looks the prompt up first. Then the request goes to
// the formats actor if it has a Format, and otherwise to the scheduler.
func (s *System) submit(stream *Stream, req Request, tokens, prediction []kv.Token) {
	stop := req.StopTokens
	if !req.IgnoreEOS {
		stop = append(stop[:len(stop):len(stop)], s.cfg.EOS...) // the cap: append must not write into the caller's array
	}
	stream.setPrompt(tokens)
	m := &submit{stream, scheduler.Request{
		ID: stream.id, Namespace: req.Namespace, PublicTokens: req.PublicTokens, Media: req.Media, Prompt: tokens, MaxTokens: req.MaxTokens,
		StopTokens: stop, Sampling: req.Sampling, Digest: req.Digest,
		Samples: req.Samples, Tenant: req.Tenant, Class: req.Class, Session: req.Session, Priority: req.Priority, Timeline: req.Timeline,
		Deadline: stream.deadline, QueueTimeout: min(req.QueueTimeout, lastTime),
		Prediction: prediction, Speculate: req.Speculate,
		Stops: stream.stops, MinTokens: req.MinTokens, AllowedTokens: req.AllowedTokens, PromptLogprobs: req.PromptLogprobs, PromptTop: req.PromptTop,
		Pooling: req.Embed.Pooling,
	}}
	stream.formatted.Store(req.Format != grammar.Format{})
	if xs := s.tiers.shared(&m.req); len(xs) > 0 {
		s.engine.tell(&seek{m, req.Format, xs})
		return
	}
	s.pass(m, req.Format)
}

// pass sends m to the formats actor if format is set, and otherwise to the scheduler.
func (s *System) pass(m *submit, format grammar.Format) {
	if format == (grammar.Format{}) {
		s.scheduler.tell(m)
		return
	}
	s.formats.tell(&needFormat{m, format})
}

// enter takes as many credits as samples says, and registers a new stream with that many
// samples. It fails with scheduler.ErrQueueFull if there are not enough credits, and with
// the cause of the end after close.
func (o *openRequests) enter(samples int) (*Stream, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed != nil {
		return nil, o.closed
	}
	if o.taken+samples > o.sys.cfg.MaxRequests {
		return nil, fmt.Errorf("%w: %d requests are open, at most %d may be", scheduler.ErrQueueFull, o.taken, o.sys.cfg.MaxRequests)
	}
	o.taken += samples
	o.lastID++
	stream := newStream(o.lastID, o.sys, samples)
	o.open[stream.id] = stream
	return stream, nil
}

// dismiss gives the ending e to all samples of a request that the scheduler has never
// received.
func (o *openRequests) dismiss(stream *Stream, e scheduler.Ending) {
	o.leave(stream) // before the caller sees the ending
	stream.end(e)
}

// leave returns the credits of a request. It is called when no message about the request is
// left in flight. After close it does nothing.
func (o *openRequests) leave(stream *Stream) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, ok := o.open[stream.id]; ok { // else all are ended
		delete(o.open, stream.id)
		o.taken -= len(stream.samples)
	}
}

// close refuses later requests with the error cause. The open requests fail
// with the same error.
func (o *openRequests) close(cause error) {
	o.mu.Lock()
	o.closed = cause
	streams := slices.Collect(maps.Values(o.open))
	clear(o.open)
	o.mu.Unlock()
	for _, stream := range streams {
		stream.end(scheduler.Ending{Reason: scheduler.Failed, Err: cause})
	}
}
