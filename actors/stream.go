package actors

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
	"github.com/coppice-llm/coppice/tokenizer"
)

// Piece is what came of one sample since its last one: usually one step's token,
// more if the caller was slow. Those of different samples come in turns.
type Piece struct {
	Sample int        // which one, from 0
	Text   string     // complete UTF-8; empty while a character is incomplete
	Tokens []kv.Token // as sampled, those of a stop included; not to be written to
	// Logprobs is the log-probability of each of Tokens, if asked for, Top the most
	// probable tokens in its place, best first.
	Logprobs []float32
	Top      [][]engine.TokenLogprob
	// PromptLogprobs, if asked for, comes with the first piece of sample 0: that of
	// each token of the prompt, NaN for the first.
	PromptLogprobs []float32
	// PromptTop, if asked for, comes with it: the most probable tokens in each place.
	PromptTop [][]engine.TokenLogprob
	Ending    *Ending // in the last piece of the sample
	Final     bool    // the last piece of the request
	// Begun, in a piece with nothing else in it: a sample of the request is in a step for
	// the first time. It comes before all others, if Request.Begun asks for it.
	Begun bool
}

// Ending is how a request, or one of its samples, ended, and its bill.
type Ending struct {
	Reason       scheduler.Reason
	Err          error
	Tokens       []kv.Token // prompt and output, for a next turn to go on from; not to be written to
	PromptTokens int
	CachedTokens int
	// CachedByTier says of CachedTokens in which tier they were when the request came.
	CachedByTier [kv.Tiers]int
	// ComputedTokens are the others of the prompt, but fewer if the sample ended before.
	ComputedTokens int
	OutputTokens   int
	StopString     string // that ended it, if one did
	Preemptions    int
	LogitDigest    uint64        // over the logit bits of all output tokens, if asked for
	Queued         time.Duration // since the scheduler got it, as FirstToken and Total
	FirstToken     time.Duration
	Total          time.Duration
	// Timeline, if asked for, is what happened when, oldest first.
	Timeline []scheduler.Mark
}

// Stream is a caller's end of a request. Next belongs to one goroutine, Abort to
// any. Each of its samples ends exactly once, the stream with the last of them.
type Stream struct {
	id        scheduler.RequestID
	sys       *System
	deadline  time.Duration         // on the system's clock, 0 for none; set by Open
	stops     *grammar.Stops        // nil: none
	keepStop  bool                  // the text has the stop string that ends it
	logprobs  bool                  // of the output are asked for
	buf       []byte                // the deliverer's
	gone      atomic.Pointer[error] // the caller gave up, and why
	tellBegun bool                  // Request.Begun
	// formatted: it is, or was, at the formats actor.
	formatted atomic.Bool

	mu      sync.Mutex
	samples []sample  // the list is never changed
	one     [1]sample // place for the usual list
	prompt  int       // tokens of the prompt
	turn    int       // the sample that take looks at first
	open    int       // samples that have no ending
	untaken int       // samples whose ending was not taken
	begun   bool      // and the piece that says so was not taken
	wake    chan struct{}
}

// sample is one output of a stream, under the stream's mutex but for detok. What
// its caller has not taken merges, so it takes no more than its output limit.
type sample struct {
	detok  *tokenizer.Detokenizer // the deliverer's
	heard  grammar.StopState      // the deliverer's
	held   []byte                 // the deliverer's: text that may be the beginning of a stop string
	tokens []kv.Token             // prompt and output, only ever appended to
	taken  int                    // tokens that Next has given, the prompt counted in
	text   []byte                 // not taken yet

	logprobs  []float32 // of the output, if asked for
	top       [][]engine.TokenLogprob
	prompt    []float32 // of the prompt, not taken yet
	promptTop [][]engine.TokenLogprob

	digest uint64
	ending *Ending // not taken yet
	over   bool    // has its ending, taken or not
}

// fnvPrime folds the digests of a request's tokens into one.
const fnvPrime = 1099511628211

func newStream(id scheduler.RequestID, s *System, samples int) *Stream {
	stream := &Stream{id: id, sys: s, open: samples, untaken: samples, wake: make(chan struct{}, 1)}
	if stream.samples = stream.one[:]; samples > 1 {
		stream.samples = make([]sample, samples)
	}
	if s.cfg.Tokenizer != nil {
		for i := range stream.samples {
			stream.samples[i].detok = s.cfg.Tokenizer.NewContinuation()
		}
	}
	return stream
}

// Next waits for the next piece. The last one of each sample carries its Ending,
// with its error if it is Abort or Failed; after the final one comes io.EOF. When
// ctx ends first, the request is aborted and ctx's error returned; its endings still
// come, to a Next with another ctx.
func (s *Stream) Next(ctx context.Context) (Piece, error) {
	for {
		if ctx.Err() != nil && s.runs() { // even if there is a piece: to a slow caller there always is
			err := context.Cause(ctx)
			s.Abort(err)
			return Piece{}, err
		}
		if piece, ok, err := s.take(); ok {
			return piece, err
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
		}
	}
}

// runs tells whether a sample has no ending yet.
func (s *Stream) runs() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open > 0
}

// take gives what there is of one sample, each in its turn.
func (s *Stream) take() (_ Piece, ok bool, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun {
		s.begun = false
		return Piece{Begun: true}, true, nil
	}
	if s.untaken == 0 {
		return Piece{}, true, io.EOF
	}
	for range s.samples {
		i := s.turn
		if s.turn++; s.turn == len(s.samples) {
			s.turn = 0
		}
		piece, some := s.samples[i].take()
		if !some {
			continue
		}
		piece.Sample = i
		if piece.Ending == nil {
			return piece, true, nil
		}
		s.untaken--
		piece.Final = s.untaken == 0
		return piece, true, piece.Ending.Err
	}
	return Piece{}, false, nil
}

func (o *sample) take() (_ Piece, some bool) {
	n := len(o.tokens)
	if o.taken == n && o.ending == nil {
		return Piece{}, false
	}
	piece := Piece{Text: string(o.text), Tokens: o.tokens[o.taken:n:n], PromptLogprobs: o.prompt, PromptTop: o.promptTop, Ending: o.ending}
	if m := len(o.logprobs); m > 0 {
		at := m - (n - o.taken)
		piece.Logprobs, piece.Top = o.logprobs[at:m:m], o.top[at:m:m]
	}
	o.text, o.prompt, o.promptTop, o.taken, o.ending = o.text[:0], nil, nil, n, nil
	return piece, true
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
	if s.runs() {
		// It may overtake the request on its way through the tokenizer: the
		// scheduler actor looks at gone as well.
		s.sys.scheduler.tell(&abort{s.id, err})
		if s.formatted.Load() {
			s.sys.formats.tell(&abort{s.id, err})
		}
	}
}

// begin notes that the request is in a step for the first time, on the scheduler's goroutine.
func (s *Stream) begin() {
	if !s.tellBegun {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open > 0 {
		s.begun = true
		s.signal()
	}
}

// push adds a token, on the deliverer's goroutine.
func (s *Stream) push(out *scheduler.Output) {
	o := &s.samples[out.Sample]
	s.buf = s.buf[:0]
	if o.detok != nil && !out.Ending.StopToken {
		s.buf = o.detok.Next(s.buf, out.Token)
	}
	if s.stops != nil {
		s.hold(o, out.Ending.StopString)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.over {
		return
	}
	o.digest = (o.digest ^ out.Digest) * fnvPrime
	o.text = append(o.text, s.buf...)
	o.tokens = append(o.tokens, out.Token)
	if s.logprobs {
		o.logprobs, o.top = append(o.logprobs, out.Logprob), append(o.top, out.Top)
	}
	if out.Prompt != nil {
		o.prompt, o.promptTop = out.Prompt, out.PromptTop
	}
	s.signal()
}

// hold keeps the end of the text back while it may begin a stop string, and cuts it
// where stop, if that is what ended the output, begins.
func (s *Stream) hold(o *sample, stop string) {
	before := len(o.held)
	o.held = append(o.held, s.buf...)
	n := len(o.held)
	if stop != "" {
		// What was held back before does not hold all of it.
		from := max(before-len(stop)+1, 0)
		if at := bytes.Index(o.held[from:], []byte(stop)); at >= 0 {
			if n = from + at; s.keepStop {
				n += len(stop)
			}
		}
		s.buf, o.held = append(s.buf[:0], o.held[:n]...), o.held[:0]
		return
	}
	for text := s.buf; ; { // MinTokens may have let one pass
		var which, end int
		if o.heard, which, end = s.stops.Next(o.heard, text); which < 0 {
			break
		}
		text = text[end:]
	}
	n -= s.stops.Held(o.heard)
	s.buf = append(s.buf[:0], o.held[:n]...)
	o.held = o.held[:copy(o.held, o.held[n:])]
}

// setPrompt notes what the prompt became, before the scheduler gets it.
func (s *Stream) setPrompt(tokens []kv.Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prompt = len(tokens)
	for i := range s.samples {
		// The cap keeps the outputs from being written behind the caller's tokens,
		// and over each other.
		s.samples[i].tokens, s.samples[i].taken = tokens[:len(tokens):len(tokens)], len(tokens)
	}
}

// finish ends a sample with the scheduler's ending, on the deliverer's goroutine. The
// credits go back before the caller hears of the end: its next request finds them.
func (s *Stream) finish(out *scheduler.Output) {
	o, e := &s.samples[out.Sample], out.Ending
	s.buf = s.buf[:0]
	s.buf = append(s.buf, o.held...)
	if o.detok != nil && e.StopString == "" {
		s.buf = o.detok.Flush(s.buf)
	}
	if out.Final {
		s.sys.door.leave(s)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !o.over {
		o.text = append(o.text, s.buf...)
		s.close(o, e)
	}
}

// end gives all samples that have none yet the same ending.
func (s *Stream) end(e scheduler.Ending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.samples {
		if o := &s.samples[i]; !o.over {
			s.close(o, e)
		}
	}
}

// close gives an open sample its one ending, under the mutex.
func (s *Stream) close(o *sample, e scheduler.Ending) {
	o.over = true
	s.open--
	o.ending = &Ending{
		Reason: e.Reason, Err: e.Err, Tokens: o.tokens,
		PromptTokens: s.prompt, CachedTokens: e.CachedTokens, CachedByTier: e.CachedByTier, ComputedTokens: e.ComputedTokens, OutputTokens: len(o.tokens) - s.prompt, StopString: e.StopString,
		Preemptions: e.Preemptions, LogitDigest: o.digest,
		Queued: e.Queued, FirstToken: e.FirstToken, Total: e.Total, Timeline: e.Timeline,
	}
	if o.ending.Err == nil && (e.Reason == scheduler.Failed || e.Reason == scheduler.Abort) {
		o.ending.Err = fmt.Errorf("actors: request ended by %v", e.Reason)
	}
	s.signal()
}

func (s *Stream) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
