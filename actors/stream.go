package actors

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
	"github.com/coppice-llm/coppice/tokenizer"
)

// Piece is what came since the last one: usually one step's token, more if the
// caller was slow.
type Piece struct {
	Text   string     // complete UTF-8; empty while a character is incomplete
	Tokens []kv.Token // as sampled, stop token included; not to be written to
	Ending *Ending    // in the last piece
}

// Ending is how a request ended, and its bill.
type Ending struct {
	Reason       scheduler.Reason
	Err          error
	Tokens       []kv.Token // prompt and output, for a next turn to go on from; not to be written to
	PromptTokens int
	CachedTokens int
	OutputTokens int
	Preemptions  int
	LogitDigest  uint64        // over the logit bits of all output tokens, if asked for
	Queued       time.Duration // since the scheduler got it, as FirstToken and Total
	FirstToken   time.Duration
	Total        time.Duration
}

// Stream is a caller's end of a request. Next belongs to one goroutine, Abort to
// any. Every stream ends exactly once.
type Stream struct {
	id  scheduler.RequestID
	sys *System

	detok *tokenizer.Detokenizer // the deliverer's
	buf   []byte                 // the deliverer's
	gone  atomic.Pointer[error]  // the caller gave up, and why

	mu     sync.Mutex
	tokens []kv.Token // prompt and output, only ever appended to
	prompt int        // tokens of the prompt
	taken  int        // tokens that Next has given, the prompt counted in
	text   []byte     // not taken yet
	digest uint64
	ending *Ending // not taken yet
	over   bool    // has its ending, taken or not
	wake   chan struct{}
}

// fnvPrime folds the digests of a request's tokens into one.
const fnvPrime = 1099511628211

func newStream(id scheduler.RequestID, s *System) *Stream {
	stream := &Stream{id: id, sys: s, wake: make(chan struct{}, 1)}
	if s.cfg.Tokenizer != nil {
		stream.detok = s.cfg.Tokenizer.NewDetokenizer()
	}
	return stream
}

// Next waits for the next piece. The last one carries the Ending, with its error
// if it is Abort or Failed; after it comes io.EOF. When ctx ends first, the
// request is aborted and ctx's error returned.
func (s *Stream) Next(ctx context.Context) (Piece, error) {
	for {
		if piece, ok, err := s.take(); ok {
			return piece, err
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			err := context.Cause(ctx)
			s.Abort(err)
			return Piece{}, err
		}
	}
}

func (s *Stream) take() (_ Piece, ok bool, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken == len(s.tokens) && s.ending == nil {
		if s.over {
			return Piece{}, true, io.EOF
		}
		return Piece{}, false, nil
	}
	n := len(s.tokens)
	piece := Piece{Text: string(s.text), Tokens: s.tokens[s.taken:n:n], Ending: s.ending}
	s.text, s.taken, s.ending = s.text[:0], n, nil
	if piece.Ending != nil {
		return piece, true, piece.Ending.Err
	}
	return piece, true, nil
}

// Abort gives the request up, with scheduler.ErrAborted if err is nil. One that
// has ended is not touched. It never waits.
func (s *Stream) Abort(err error) {
	if err == nil {
		err = scheduler.ErrAborted
	}
	if !s.gone.CompareAndSwap(nil, &err) {
		return
	}
	s.mu.Lock()
	over := s.over
	s.mu.Unlock()
	if !over {
		// It may overtake the request on its way through the tokenizer: the
		// scheduler actor looks at gone as well.
		s.sys.scheduler.tell(&abort{s.id, err})
	}
}

// push adds a token, on the deliverer's goroutine.
func (s *Stream) push(out *scheduler.Output, isStop bool) {
	s.buf = s.buf[:0]
	if s.detok != nil && !isStop {
		s.buf = s.detok.Next(s.buf, out.Token)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	s.digest = (s.digest ^ out.Digest) * fnvPrime
	s.text = append(s.text, s.buf...)
	s.tokens = append(s.tokens, out.Token)
	s.signal()
}

// setPrompt notes what the prompt became, before the scheduler gets it.
func (s *Stream) setPrompt(tokens []kv.Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The cap keeps the output from being written behind the caller's tokens.
	s.tokens = tokens[:len(tokens):len(tokens)]
	s.prompt, s.taken = len(tokens), len(tokens)
}

// finish ends the stream with the scheduler's ending, on the deliverer's goroutine.
func (s *Stream) finish(e scheduler.Ending) {
	if s.detok != nil {
		s.buf = s.detok.Flush(s.buf[:0])
		s.mu.Lock()
		if !s.over {
			s.text = append(s.text, s.buf...)
		}
		s.mu.Unlock()
	}
	s.end(e)
}

// end gives the stream its one ending; later ones are ignored.
func (s *Stream) end(e scheduler.Ending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	s.over = true
	s.ending = &Ending{
		Reason: e.Reason, Err: e.Err, Tokens: s.tokens,
		PromptTokens: s.prompt, CachedTokens: e.CachedTokens, OutputTokens: len(s.tokens) - s.prompt,
		Preemptions: e.Preemptions, LogitDigest: s.digest,
		Queued: e.Queued, FirstToken: e.FirstToken, Total: e.Total,
	}
	if s.ending.Err == nil && (e.Reason == scheduler.Failed || e.Reason == scheduler.Abort) {
		s.ending.Err = fmt.Errorf("actors: request ended by %v", e.Reason)
	}
	s.signal()
}

func (s *Stream) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
