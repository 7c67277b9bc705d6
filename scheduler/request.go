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

// RequestID identifies a request. The caller chooses it, unique among the open requests.
type RequestID uint64

// Request is a prompt to continue once or, with Samples, several times.
type Request struct {
	ID        RequestID
	Namespace kv.Namespace
	// PublicTokens is the number of leading prompt tokens that requests with other salts
	// may share, such as a system prompt without secrets. The rest, and all output, belongs
	// to the Namespace alone. It is rounded down to whole pages, and has no effect without
	// a salt.
	PublicTokens int
	// Media lists the spans of Prompt that are placeholders for something else, such as
	// the patches of an image: ascending by At, without overlap. Spans with equal hashes
	// have equal KV; from the first span that differs, requests share nothing.
	Media []kv.Media
	// Tenant is the account of the request, for limits and fair shares. It may be empty.
	Tenant string
	// Class groups requests whose outputs have similar lengths. Ended outputs of a class
	// estimate how many pages the next ones will need. Default: Tenant.
	Class string
	// Session names the session that the request is a turn of, within its Namespace and Tenant: an agent's or
	// a user's row of requests of which each usually continues the one before. At most MaxSessionName bytes.
	// It changes no token. See ReleaseSession, PinSession and ExpectSession. Default: none.
	Session string
	// Priority: under the policy Priority, higher goes first; under every policy, lower is
	// preempted first.
	Priority int32
	// Prompt has at least one token. The scheduler copies it.
	Prompt []kv.Token
	// MaxTokens bounds the output. 0 takes Config.DefaultMaxTokens, or less if the model's
	// positions or the pool leave less room.
	MaxTokens int
	// Samples is the number of outputs to draw; 0 means 1. They share the prompt, which is
	// computed once; sample i draws with engine.BranchSeed(Seed, i).
	Samples int
	// StopTokens end an output. The stop token is the last token of the output.
	StopTokens []kv.Token
	// Stops end an output with the first of these strings in its text. They need
	// Config.Vocabulary.
	Stops *grammar.Stops
	// MinTokens is the number of tokens before which no StopToken is sampled and no string
	// of Stops is looked for. A complete Format ends the output nevertheless.
	MinTokens int
	// AllowedTokens, if not empty, are the only tokens that may be sampled, stop tokens
	// included.
	AllowedTokens []kv.Token
	// Format is a grammar, compiled for the model's vocabulary, that the text of an output
	// must match. Stop tokens are sampled only where the text may end, and the output ends
	// where it must. The scheduler owns it from now on; several requests may use the same
	// one.
	Format *grammar.Grammar
	// Prediction is an output that the caller expects, such as a file of which the request changes a
	// part (OpenAI: prediction). Where it is right the output comes sooner; it changes no token. The
	// scheduler copies it, and ignores tokens beyond the model's positions.
	Prediction []kv.Token
	// Speculate says how many guesses at its next tokens an output verifies in a step. Default: as
	// Config.Speculate says, which is also a bound: SpeculateOff there is off for all.
	Speculate Speculate
	Sampling  engine.SamplingParams
	// PromptLogprobs asks for Output.Prompt. The whole prompt is then computed, even if it
	// is cached, because its log-probabilities need the logits of every position. PromptTop
	// is the number of tokens that Output.PromptTop has for each position.
	PromptLogprobs bool
	PromptTop      int32
	// Digest asks the backend for a digest of each sampled token's logit bits.
	Digest bool
	// Pooling asks for an embedding of the prompt, Output.Embedding, in place of output. The request ends
	// with Reason Stop when its prompt is computed; fields about an output must be zero, StopTokens and
	// Sampling have no effect.
	Pooling Pooling

	// Deadline ends the request with ErrDeadline at that time, which is on the same clock
	// as the argument now of the methods; 0 for none.
	Deadline time.Duration
	// QueueTimeout ends the request with ErrQueueTimeout if it was not admitted within that
	// time after Add; 0 for none.
	QueueTimeout time.Duration
	// Timeline asks for Ending.Timeline.
	Timeline bool
}

// maxStopTokens bounds Request.StopTokens: the caller's and the model's together. Each
// sampled token is compared with all of them.
const maxStopTokens = 512

// Errors of Add, wrapped with the figures.
var (
	ErrQueueFull     = errors.New("scheduler: queue full")
	ErrTenantFull    = errors.New("scheduler: too many requests of one tenant wait")
	ErrEmptyPrompt   = errors.New("scheduler: empty prompt")
	ErrPromptTooLong = errors.New("scheduler: prompt too long")
	ErrTooLarge      = errors.New("scheduler: request larger than the KV pool")
	ErrInvalid       = errors.New("scheduler: invalid request")
)

// FieldError is a refusal because of one field of a Request. Its text is that of Err.
type FieldError struct {
	Field string // "MaxTokens"
	Err   error
}

func (e *FieldError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *FieldError) Unwrap() error { return e.Err }

// refuse makes a FieldError for the given field of a request. Its Err wraps kind and adds
// the formatted text.
func refuse(field string, kind error, format string, args ...any) error {
	return &FieldError{field, fmt.Errorf("%w: %s", kind, fmt.Sprintf(format, args...))}
}

// ErrDisplaced is the Ending.Err, with Reason Failed, of a waiting request that was
// removed from a full queue for one of higher priority.
var ErrDisplaced = errors.New("scheduler: displaced in a full queue by a request of higher priority")

// Errors of requests that end with Reason Abort: the caller gave up, or time ran out.
var (
	ErrAborted      = errors.New("scheduler: aborted")
	ErrDeadline     = errors.New("scheduler: deadline passed")
	ErrQueueTimeout = errors.New("scheduler: waited too long in the queue")
)

// Reason is why a request ended.
type Reason uint8

// The reasons. The zero value means that the request has not ended.
const (
	NotEnded Reason = iota
	Stop            // a stop token or string, a complete format, or an embedding
	Length          // the output reached MaxTokens
	Abort           // the caller gave up, or time ran out
	Failed          // an error, in Ending.Err
)

var reasonNames = enum.New[Reason]("scheduler", "reason", "not ended", "stop", "length", "abort", "error")

func (r Reason) String() string { return reasonNames.Name(r) }

// Ending is the one ending of a sample, with its bill: the tokens, their origin and the
// times.
type Ending struct {
	Reason       Reason
	Err          error  // Abort: ErrAborted, ErrDeadline, ErrQueueTimeout or the caller's; else the cause
	StopToken    bool   // Stop: the last token is a stop token, and not part of the text
	StopString   string // Stop: the string of Request.Stops that was found
	PromptTokens int
	CachedTokens int // prompt tokens taken from the cache at first admission
	// CachedByTier divides CachedTokens by the tier in which they were when the request
	// arrived. Without Config.Tiers all of them were on the device.
	CachedByTier [kv.Tiers]int
	// ComputedTokens are the other tokens of the prompt, or fewer if the sample ended
	// before all were computed. Tokens computed again after a preemption do not count.
	ComputedTokens int
	OutputTokens   int
	// Drafts counts the guesses at output tokens that were verified, and those that were right. The
	// right ones are part of OutputTokens; the others are on no bill.
	Drafts      DraftCounts
	Preemptions int
	// Queued, FirstToken and Total are the times from Add to first admission, to the first
	// token and to the end. The first two are zero if the sample did not get that far.
	Queued, FirstToken, Total time.Duration
	// Timeline, if asked for, lists what happened and when, oldest first.
	Timeline []Mark
}

// Output is the news of one sample from one step: a token, an ending or both.
type Output struct {
	Request RequestID
	Sample  int  // which sample, from 0
	Final   bool // set with the Ending of the request's last sample: no Output follows
	Sampled bool // Token is set, and Logprob, Top and Digest if asked for
	Token   kv.Token
	Logprob float32               // if Sampling asks for it
	Top     []engine.TokenLogprob // as Sampling.TopLogprobs asks: the most probable first
	Digest  uint64                // of the logit bits, if Request.Digest asks for it
	// Prompt comes with the first token of sample 0, if asked for: the log-probability of
	// each prompt token. That of the first is NaN, since no logits precede it.
	Prompt []float32
	// PromptTop, if asked for, has the most probable tokens at each position of Prompt;
	// nil for the first.
	PromptTop [][]engine.TokenLogprob
	// Embedding comes with the ending, if Request.Pooling asks for it: Info.HiddenSize finite values,
	// pooled and not normalised.
	Embedding []float32
	Ending    Ending // Reason NotEnded: the sample continues
}
