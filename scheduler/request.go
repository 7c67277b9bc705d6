package scheduler

import (
	"errors"
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// RequestID names a request; the caller chooses it, unique among the open ones.
type RequestID uint64

// Request is one sequence to continue.
type Request struct {
	ID        RequestID
	Namespace kv.Namespace
	// Prompt is at least one token. The scheduler copies it.
	Prompt []kv.Token
	// MaxTokens bounds the output; 0 takes as many as Config.DefaultMaxTokens,
	// the model and the pool leave room for.
	MaxTokens int
	// StopTokens end the output; the one sampled is its last token.
	StopTokens []kv.Token
	Sampling   engine.SamplingParams
	// Digest asks the backend for a digest of each sampled token's logit bits.
	Digest bool
}

// Refusals of Add. Each comes wrapped with the figures.
var (
	ErrQueueFull     = errors.New("scheduler: queue full")
	ErrEmptyPrompt   = errors.New("scheduler: empty prompt")
	ErrPromptTooLong = errors.New("scheduler: prompt too long")
	ErrTooLarge      = errors.New("scheduler: request larger than the KV pool")
	ErrInvalid       = errors.New("scheduler: invalid request")
)

// ErrAborted is the error of a request that its caller gave up.
var ErrAborted = errors.New("scheduler: aborted")

// Reason tells why a request ended.
type Reason uint8

// The reasons. The zero value means that the request goes on.
const (
	NotEnded Reason = iota
	Stop            // a stop token
	Length          // MaxTokens
	Abort           // the caller's wish
	Failed          // an error, in Ending.Err
)

var reasonNames = [...]string{"not ended", "stop", "length", "abort", "error"}

func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// Ending is the one ending of a request, with its bill.
type Ending struct {
	Reason       Reason
	Err          error // Abort: ErrAborted or what the caller gave; Failed: the cause
	PromptTokens int
	CachedTokens int // of the prompt, taken from the cache at first admission
	OutputTokens int
	Preemptions  int
	// Since Add: until first admission, the first token and the end. Zero where
	// the request did not get so far.
	Queued, FirstToken, Total time.Duration
}

// Output is one step's news of one request: a token, an ending or both.
type Output struct {
	Request RequestID
	Sampled bool // Token, Logprob and Digest are set
	Token   kv.Token
	Logprob float32
	Digest  uint64
	Ending  Ending // Reason NotEnded: more is to come
}

// validate checks everything about a request that does not change with time,
// and returns its output limit.
func (s *Scheduler) validate(req *Request) (maxTokens int, err error) {
	n := len(req.Prompt)
	if n == 0 {
		return 0, fmt.Errorf("%w: give at least one token", ErrEmptyPrompt)
	}
	if n > s.info.MaxPositions {
		return 0, fmt.Errorf("%w: %d tokens, the model has %d positions", ErrPromptTooLong, n, s.info.MaxPositions)
	}
	poolTokens := s.info.NumPages * s.info.PageTokens
	if n > poolTokens {
		return 0, fmt.Errorf("%w: %d prompt tokens, the pool holds %d", ErrTooLarge, n, poolTokens)
	}
	for i, t := range req.Prompt {
		if uint64(t) >= uint64(s.info.Vocab) { // int would be negative on 32 bits
			return 0, fmt.Errorf("%w: prompt token %d is %d, the vocabulary has %d", ErrInvalid, i, t, s.info.Vocab)
		}
	}
	if err := req.Sampling.Validate(s.info.Vocab); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	// The last output token is sampled and never run, so it needs no position.
	modelRoom, poolRoom := s.info.MaxPositions-n+1, poolTokens-n+1
	switch {
	case req.MaxTokens < 0:
		return 0, fmt.Errorf("%w: MaxTokens is %d, want 0 (default) or more", ErrInvalid, req.MaxTokens)
	case req.MaxTokens > modelRoom:
		return 0, fmt.Errorf("%w: %d prompt and %d output tokens, the model has %d positions",
			ErrPromptTooLong, n, req.MaxTokens, s.info.MaxPositions)
	case req.MaxTokens > poolRoom:
		return 0, fmt.Errorf("%w: %d prompt and %d output tokens, the pool holds %d",
			ErrTooLarge, n, req.MaxTokens, poolTokens)
	case req.MaxTokens == 0:
		return min(s.cfg.DefaultMaxTokens, modelRoom, poolRoom), nil
	}
	return req.MaxTokens, nil
}
