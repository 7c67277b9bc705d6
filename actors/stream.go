package actors

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
	"github.com/coppice-llm/coppice/tokenizer"
)

// Piece is the output of one sample since its previous Piece: usually the token of one step,
// more for a slow caller. Pieces of different samples alternate.
type Piece struct {
	Sample int        // index of the sample, from 0
	Text   string     // complete UTF-8; empty while a character is incomplete
	Tokens []kv.Token // as sampled, including stop tokens; read only
	// Logprobs are the log-probabilities of Tokens, and Top the most probable tokens at each
	// position, best first. Both are nil unless Request.Sampling requests them.
	Logprobs []float32
	Top      [][]engine.TokenLogprob
	// PromptLogprobs are the log-probabilities of the prompt's tokens, NaN for the first;
	// PromptTop are the most probable tokens at each position. They are in the first piece of
	// sample 0, if Request.PromptLogprobs is set.
	PromptLogprobs []float32
	PromptTop      [][]engine.TokenLogprob
	Embedding      []float32 // in the last piece, if Request.Embed requests it
	Ending         *Ending   // in the last piece of the sample, else nil
	Final          bool      // the last piece of the request
	// Begun marks a piece without output, before all others, if Request.Begun is set: a sample
	// has entered a step for the first time.
	Begun bool
}

// Ending describes how a sample ended, and the tokens, KV and time that it used.
type Ending struct {
	Reason       scheduler.Reason
	Err          error      // nil for Stop and Length
	Tokens       []kv.Token // prompt and output, from which a next turn can continue; read only
	PromptTokens int
	CachedTokens int // prompt tokens found in the cache
	// CachedByTier splits CachedTokens by the tier that held them when the request came.
	CachedByTier [kv.Tiers]int
	// ComputedTokens counts the other prompt tokens; fewer if the sample ended early.
	ComputedTokens int
	OutputTokens   int
	// Drafts counts the guesses at output tokens that were verified, and those that were right, which
	// are part of OutputTokens.
	Drafts      scheduler.DraftCounts
	StopString  string // the stop string that ended the output, or ""
	StopToken   bool   // the last of Tokens is a stop token, and not part of the text
	Preemptions int
	LogitDigest uint64        // over the logit bits of all output tokens, if Request.Digest is set
	Queued      time.Duration // time in the scheduler's queue
	FirstToken  time.Duration // time from the submission to the scheduler to the first token
	Total       time.Duration // time from the submission to the scheduler to the end
	// Timeline lists the events of the sample, oldest first, if Request.Timeline is set.
	Timeline []scheduler.Mark
}

// Stream is the caller's handle of a request. Only one goroutine may call Next; Abort may be
// called from any. Each sample ends exactly once, and the stream ends with the last of them.
type Stream struct {
	id       scheduler.RequestID
	sys      *System
	deadline time.Duration         // on the system's clock, 0 for none; set by Open
	stops    *grammar.Stops        // nil: none
	keepStop bool                  // the text includes the stop string that ends it
	special  []kv.Token            // special tokens that have text
	buf      []byte                // scratch of the deliverer
	gone     atomic.Pointer[error] // the error of Abort, once it was called
	wants    wants
	// formatted is set once the request has been sent to the formats actor.
	formatted atomic.Bool

	mu      sync.Mutex
	samples []sample  // the slice header is never changed
	one     [1]sample // backing array for the usual single sample
	prompt  int       // number of prompt tokens
	turn    int       // index of the sample that take looks at first
	open    int       // samples without an ending
	untaken int       // samples whose ending the caller has not taken
	begun   bool      // a Piece with Begun is due
	wake    chan struct{}
}

// wants are the parts of a Piece that a request asks for.
type wants struct {
	logprobs bool // log-probabilities of the output
	begun    bool // Request.Begun
	embed    Embed
}

// sample is one output of a stream. The stream's mutex guards it, but for the deliverer's
// fields. Output that the caller has not taken is merged, so it is bounded by the request's
// MaxTokens.
type sample struct {
	detok     *tokenizer.Detokenizer // used by the deliverer only
	stopState grammar.StopState      // used by the deliverer only: the automaton of the stop strings
	held      []byte                 // used by the deliverer only: text that may begin a stop string
	marks     []mark                 // used by the deliverer only: text of special tokens within held
	tokens    []kv.Token             // prompt and output, append only
	taken     int                    // length of the prefix of tokens that Next has returned, prompt included
	text      []byte                 // not taken yet

	logprobs  []float32 // of the output, if requested
	top       [][]engine.TokenLogprob
	prompt    []float32 // of the prompt, not taken yet
	promptTop [][]engine.TokenLogprob

	embedding []float32

	digest uint64
	ending *Ending // not taken yet
	over   bool    // it has its ending, taken or not
}

// mark is the text of a special token, to be inserted at an offset of a sample's held text. Apart from
// it, because stop strings are looked for in the text without marks.
type mark struct {
	at   int
	text string
}

// fnvPrime combines the digests of a sample's tokens into one.
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

// Next waits for the next piece. The last piece of each sample carries its Ending, and Next
// returns the Ending's error if the Reason is Abort or Failed. After the final piece Next
// returns io.EOF. If ctx ends first, Next aborts the request and returns ctx's error; the
// endings can then still be read by a Next with another ctx.
func (s *Stream) Next(ctx context.Context) (Piece, error) {
	for {
		if ctx.Err() != nil && s.runs() { // even if a piece is ready: for a slow caller one always is
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

// Ready waits until Next has something to return, or ctx has ended, and returns true; or until tick sends a value, and returns
// false. The goroutine that calls Next calls it.
func (s *Stream) Ready(ctx context.Context, tick <-chan time.Time) bool {
	for !s.has() {
		select {
		case <-s.wake:
		case <-ctx.Done():
			return true
		case <-tick:
			return false
		}
	}
	return true
}

// has reports whether take has something to return.
func (s *Stream) has() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun || s.untaken == 0 {
		return true
	}
	for i := range s.samples {
		if o := &s.samples[i]; o.taken < len(o.tokens) || o.ending != nil {
			return true
		}
	}
	return false
}

// take returns the next piece and true, or false if there is nothing to return yet. A piece
// is the unread output of one sample; the samples take turns. The error is that of the
// sample's Ending, or io.EOF when the caller has all endings.
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
	piece := Piece{Text: string(o.text), Tokens: o.tokens[o.taken:n:n], PromptLogprobs: o.prompt, PromptTop: o.promptTop, Embedding: o.embedding, Ending: o.ending}
	if m := len(o.logprobs); m > 0 {
		at := m - (n - o.taken)
		piece.Logprobs, piece.Top = o.logprobs[at:m:m], o.top[at:m:m]
	}
	o.text, o.prompt, o.promptTop, o.taken, o.ending = o.text[:0], nil, nil, n, nil
	return piece, true
}

// Abort ends the request with err, scheduler.ErrAborted if err is nil. It has no effect on a
// request that has ended. It never blocks.
func (s *Stream) Abort(err error) {
	if err == nil {
		err = scheduler.ErrAborted
	}
	if !s.gone.CompareAndSwap(nil, &err) {
		return
	}
	if s.runs() {
		// This message may overtake the request on its way through the tokenizer, so the
		// scheduler actor checks gone as well.
		s.sys.scheduler.tell(&abort{s.id, err})
		if s.formatted.Load() {
			s.sys.formats.tell(&abort{s.id, err})
		}
	}
}

// runs reports whether a sample has no ending yet.
func (s *Stream) runs() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open > 0
}

// setPrompt records the prompt's tokens, before the scheduler gets them.
func (s *Stream) setPrompt(tokens []kv.Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prompt = len(tokens)
	for i := range s.samples {
		// The capacity is cut to the length, so that appending output tokens copies the array:
		// it is the caller's, and all samples share it.
		s.samples[i].tokens, s.samples[i].taken = tokens[:len(tokens):len(tokens)], len(tokens)
	}
}

// begin records the request's first step. It runs on the scheduler's goroutine.
func (s *Stream) begin() {
	if !s.wants.begun {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open > 0 {
		s.begun = true
		s.signal()
	}
}

// push adds the token of out to its sample, with its text and log-probabilities. It runs on
// the deliverer's goroutine.
func (s *Stream) push(out *scheduler.Output) {
	o := &s.samples[out.Sample]
	s.buf = s.buf[:0]
	if o.detok != nil && !out.Ending.StopToken {
		s.speak(o, out.Token)
	}
	if s.stops != nil {
		s.hold(o, out.Ending.StopString)
	}
	s.buf = o.insert(s.buf)
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.over {
		return
	}
	o.digest = (o.digest ^ out.Digest) * fnvPrime
	o.text = append(o.text, s.buf...)
	o.tokens = append(o.tokens, out.Token)
	if s.wants.logprobs {
		o.logprobs, o.top = append(o.logprobs, out.Logprob), append(o.top, out.Top)
	}
	if out.Prompt != nil {
		o.prompt, o.promptTop = out.Prompt, out.PromptTop
	}
	s.signal()
}

// speak puts the text of token into s.buf, or if token is one of s.special into o.marks.
func (s *Stream) speak(o *sample, token kv.Token) {
	if slices.Contains(s.special, token) {
		s.buf = o.detok.Flush(s.buf) // a rune does not continue after a mark
		o.marks = append(o.marks, mark{len(o.held) + len(s.buf), string(s.sys.cfg.Tokenizer.Decode(nil, []kv.Token{token}, false))})
		return
	}
	s.buf = o.detok.Next(s.buf, token)
}

// insert inserts the marks of o into text, which begins where o.held began. It keeps the marks
// after text, whose offsets then count from its end.
func (o *sample) insert(text []byte) []byte {
	if len(o.marks) == 0 {
		return text
	}
	said, at := make([]byte, 0, len(text)+32), 0
	kept := o.marks[:0]
	for _, m := range o.marks {
		if m.at > len(text) {
			kept = append(kept, mark{m.at - len(text), m.text})
			continue
		}
		said = append(append(said, text[at:m.at]...), m.text...)
		at = m.at
	}
	o.marks = kept
	return append(said, text[at:]...)
}

// hold moves the text of the latest token through o.held: it keeps the end of the text back
// while that may be the beginning of a stop string, and leaves in s.buf what the caller may
// see. If stop is not empty, it is the string that ended the output: hold then keeps
// nothing back, and cuts the text where stop begins, or with keepStop where it ends.
func (s *Stream) hold(o *sample, stop string) {
	before := len(o.held)
	o.held = append(o.held, s.buf...)
	n := len(o.held)
	if stop != "" {
		// The text held before this token is shorter than stop, so a match begins at most
		// len(stop)-1 bytes before it.
		from := max(before-len(stop)+1, 0)
		if at := bytes.Index(o.held[from:], []byte(stop)); at >= 0 {
			if n = from + at; s.keepStop {
				n += len(stop)
			}
		}
		s.buf, o.held = append(s.buf[:0], o.held[:n]...), o.held[:0]
		return
	}
	for text := s.buf; ; { // a loop: before MinTokens, complete stop strings are ignored
		var which, end int
		if o.stopState, which, end = s.stops.Next(o.stopState, text); which < 0 {
			break
		}
		text = text[end:]
	}
	n -= s.stops.Held(o.stopState)
	s.buf = append(s.buf[:0], o.held[:n]...)
	o.held = o.held[:copy(o.held, o.held[n:])]
}

// finish ends the sample of out with the scheduler's ending. It runs on the deliverer's
// goroutine. With the request's last sample it returns the credits before the caller can
// see the ending, so that the caller's next request finds them.
func (s *Stream) finish(out *scheduler.Output) {
	o, e := &s.samples[out.Sample], out.Ending
	s.buf = s.buf[:0]
	s.buf = append(s.buf, o.held...)
	if o.detok != nil && e.StopString == "" {
		s.buf = o.detok.Flush(s.buf)
		s.buf = o.insert(s.buf)
	}
	if out.Final {
		s.sys.requests.leave(s)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !o.over {
		o.text = append(o.text, s.buf...)
		if out.Embedding != nil {
			o.embedding = s.wants.embed.finish(out.Embedding)
		}
		s.close(o, e)
	}
}

// end gives the ending e to all samples that have none yet.
func (s *Stream) end(e scheduler.Ending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.samples {
		if o := &s.samples[i]; !o.over {
			s.close(o, e)
		}
	}
}

// close gives the sample o its ending, made from e. The caller holds the mutex, and o has
// no ending yet.
func (s *Stream) close(o *sample, e scheduler.Ending) {
	o.over = true
	s.open--
	o.ending = &Ending{
		Reason: e.Reason, Err: e.Err, Tokens: o.tokens[:len(o.tokens):len(o.tokens)],
		PromptTokens: s.prompt, CachedTokens: e.CachedTokens, CachedByTier: e.CachedByTier, ComputedTokens: e.ComputedTokens, OutputTokens: len(o.tokens) - s.prompt, Drafts: e.Drafts, StopString: e.StopString,
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
