package scheduler

import (
	"errors"
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/internal/enum"
	"github.com/coppice-llm/coppice/kv"
)

// RequestID names a request; the caller chooses it, unique among the open ones.
type RequestID uint64

// Request is a prompt to continue, once or, with Samples, several times.
type Request struct {
	ID        RequestID
	Namespace kv.Namespace
	// PublicTokens is how many of the first tokens of the prompt requests of other salts
	// may share, such as a system prompt that holds no secret; the rest is the
	// Namespace's own. Rounded down to whole pages. Without a salt it means nothing.
	PublicTokens int
	// Media are the spans of Prompt that only stand for something else, such as the
	// patches of an image: by ascending At, without overlap. Spans of equal hashes have
	// equal KV; where they differ, nothing is shared from there on.
	Media []kv.Media
	// Tenant is on whose account the request runs: limits and fair shares go by
	// it. It may be empty.
	Tenant string
	// Class groups requests whose outputs are of like length: what one of them
	// took tells what to keep free for the next. Default: Tenant.
	Class string
	// Priority: higher first under the policy Priority, and preempted last under
	// all.
	Priority int32
	// Prompt is at least one token. The scheduler copies it.
	Prompt []kv.Token
	// MaxTokens bounds the output; 0 takes as many as Config.DefaultMaxTokens,
	// the model and the pool leave room for.
	MaxTokens int
	// Samples is how many outputs to draw, 1 if 0. They share the prompt, which
	// is computed once; sample i draws with engine.BranchSeed(Seed, i).
	Samples int
	// StopTokens end an output; the one sampled is its last token.
	StopTokens []kv.Token
	// Stops end an output with the first of these strings in its text; needs
	// Config.Vocabulary.
	Stops *grammar.Stops
	// MinTokens: no StopToken is sampled, nor a string of Stops found, within the
	// first so many tokens. A complete Format ends the output even so.
	MinTokens int
	// AllowedTokens, if any, are the only ones to be sampled, stop tokens included.
	AllowedTokens []kv.Token
	// Format, compiled for the model's vocabulary, is what the text of an output
	// has to match: stop tokens are sampled only where it may end, and where it must,
	// it ends. It is the scheduler's from now on; requests may share it.
	Format   *grammar.Grammar
	Sampling engine.SamplingParams
	// PromptLogprobs asks for Output.Prompt. The whole prompt is computed for that,
	// cached or not. PromptTop is how many tokens Output.PromptTop has in each place.
	PromptLogprobs bool
	PromptTop      int32
	// Digest asks the backend for a digest of each sampled token's logit bits.
	Digest bool

	// Deadline, on the clock of now, ends the request with ErrDeadline; 0 for none.
	Deadline time.Duration
	// QueueTimeout ends it with ErrQueueTimeout if it has not been admitted so long
	// after Add; 0 for none.
	QueueTimeout time.Duration
	// Timeline asks for Ending.Timeline.
	Timeline bool
}

// maxStopTokens bounds Request.StopTokens, which every token is compared with.
// Those of the caller and the model's come together.
const maxStopTokens = 512

// Refusals of Add. Each comes wrapped with the figures.
var (
	ErrQueueFull     = errors.New("scheduler: queue full")
	ErrTenantFull    = errors.New("scheduler: too many requests of one tenant wait")
	ErrEmptyPrompt   = errors.New("scheduler: empty prompt")
	ErrPromptTooLong = errors.New("scheduler: prompt too long")
	ErrTooLarge      = errors.New("scheduler: request larger than the KV pool")
	ErrInvalid       = errors.New("scheduler: invalid request")
)

// FieldError is a refusal that one field of a Request is the reason of. Its text is
// that of Err.
type FieldError struct {
	Field string // "MaxTokens"
	Err   error
}

func (e *FieldError) Error() string { return e.Err.Error() }

// Unwrap gives Err.
func (e *FieldError) Unwrap() error { return e.Err }

// refuse blames a field.
func refuse(field string, kind error, format string, args ...any) error {
	return &FieldError{field, fmt.Errorf("%w: %s", kind, fmt.Sprintf(format, args...))}
}

// ErrDisplaced is why a request ends, with Reason Failed, whose place in a full queue
// one of higher priority took.
var ErrDisplaced = errors.New("scheduler: displaced in a full queue by a request of higher priority")

// Errors of requests that end with Reason Abort: the caller gave it up, or it ran
// out of time.
var (
	ErrAborted      = errors.New("scheduler: aborted")
	ErrDeadline     = errors.New("scheduler: deadline passed")
	ErrQueueTimeout = errors.New("scheduler: waited too long in the queue")
)

// Reason tells why a request ended.
type Reason uint8

// The reasons. The zero value means that the request goes on.
const (
	NotEnded Reason = iota
	Stop            // a stop token or string, or a complete format
	Length          // MaxTokens
	Abort           // the caller's wish
	Failed          // an error, in Ending.Err
)

var reasonNames = enum.New[Reason]("scheduler", "reason", "not ended", "stop", "length", "abort", "error")

func (r Reason) String() string { return reasonNames.Name(r) }

// Ending is the one ending of a request, or of one of its samples, with its bill.
type Ending struct {
	Reason       Reason
	Err          error  // Abort: ErrAborted, ErrDeadline, ErrQueueTimeout or what the caller gave; Failed: the cause
	StopToken    bool   // Stop: the last token is a stop token, and no part of the text
	StopString   string // Stop: the one of Request.Stops that was the end
	PromptTokens int
	CachedTokens int // of the prompt, taken from the cache at first admission
	// CachedByTier says of CachedTokens in which tier each was when the request came. The
	// device has all of them without Config.Tiers.
	CachedByTier [kv.Tiers]int
	// ComputedTokens are the others of the prompt, but fewer if the sample ended
	// before they were computed. What preemption had computed again does not count.
	ComputedTokens int
	OutputTokens   int
	Preemptions    int
	// Since Add: until first admission, the first token and the end. Zero where
	// the request did not get so far.
	Queued, FirstToken, Total time.Duration
	// Timeline, if asked for, is what happened when, oldest first.
	Timeline []Mark
}

// Output is one step's news of one sample: a token, an ending or both.
type Output struct {
	Request RequestID
	Sample  int  // which one, from 0
	Final   bool // nothing more comes of the request: set with the Ending of its last sample
	Sampled bool // Token, Logprob and Digest are set
	Token   kv.Token
	Logprob float32               // if Sampling asks for it
	Top     []engine.TokenLogprob // as Sampling.TopLogprobs asks, best first
	Digest  uint64
	// Prompt, with the first token of sample 0, is the log-probability of each token
	// of the prompt, if asked for; NaN for the first, which follows on nothing.
	Prompt []float32
	// PromptTop, if asked for, is the most probable tokens in the places of Prompt, nil for
	// the first.
	PromptTop [][]engine.TokenLogprob
	Ending    Ending // Reason NotEnded: more is to come
}
