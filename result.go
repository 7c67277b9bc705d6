package coppice

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"time"

	"github.com/coppice-llm/coppice/actors"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// Result is the result of a request. Its own fields are those of sample 0.
type Result struct {
	Output
	// More are the outputs of the other samples: sample i is More[i-1].
	More []Output
}

// Output is the output of one sample.
type Output struct {
	Text string
	// Logprobs are the log-probabilities of the output tokens, and Top the most probable tokens
	// at each position, best first. Both are nil unless Request.Sampling requests them.
	Logprobs []float32
	Top      [][]engine.TokenLogprob
	// Ending has the reason of the end, the tokens, the error and the figures.
	Ending
}

// The reasons of an Ending, of type scheduler.Reason.
const (
	Stop   = scheduler.Stop   // a stop or end-of-text token, a stop string, a complete Format
	Length = scheduler.Length // MaxTokens
	Abort  = scheduler.Abort  // the caller left, or a time limit passed
	Failed = scheduler.Failed // see Ending.Err
)

// Bill sums up the samples of one request, whatever order they ended in. The prompt counts
// once. Aborted and failed samples count as far as they were computed.
type Bill struct {
	PromptTokens int // 0: no sample began
	CachedTokens int // prompt tokens found in the cache, the minimum over the samples
	// CachedByTier splits CachedTokens by the tier that held them when the request came.
	CachedByTier   [kv.Tiers]int
	ComputedTokens int // prompt tokens computed, summed over the samples
	OutputTokens   int
	// Drafted are the guesses at output tokens that were verified, and Accepted those that were right,
	// which are part of OutputTokens. Both are summed over the samples.
	Drafted, Accepted int
}

// Add adds the ending of a sample. A sample of which no prompt token was cached or computed
// adds no prompt.
func (b *Bill) Add(e *Ending) {
	b.OutputTokens += e.OutputTokens
	b.ComputedTokens += e.ComputedTokens
	drafted, accepted := e.Drafts.Sum()
	b.Drafted, b.Accepted = b.Drafted+int(drafted), b.Accepted+int(accepted)
	if e.CachedTokens+e.ComputedTokens == 0 {
		return // no step had begun
	}
	if b.PromptTokens == 0 || e.CachedTokens < b.CachedTokens {
		b.CachedTokens, b.CachedByTier = e.CachedTokens, e.CachedByTier
	}
	b.PromptTokens = e.PromptTokens
}

// Stream is a handle of a running request. Only one goroutine may call Next; Abort may be
// called from any.
type Stream struct{ inner *actors.Stream }

// Stream starts a request and returns a handle. Call Next until io.EOF, or Abort. Its error is
// a refusal; errors found later are returned by Next.
func (n *Node) Stream(req Request) (*Stream, error) {
	s, err := n.sys.Open(req)
	if err != nil {
		return nil, public(err)
	}
	return &Stream{s}, nil
}

// Next waits for the next piece. The last piece of each sample has an Ending, and Next returns
// the Ending's error with it. After the final piece Next returns io.EOF. If ctx ends first,
// Next aborts the request and returns the cause; the endings can then still be read by a Next
// with another context, once the current step has finished.
func (s *Stream) Next(ctx context.Context) (Piece, error) {
	piece, err := s.inner.Next(ctx)
	if err == io.EOF && piece.Ending == nil {
		return Piece{}, err
	}
	if err != nil {
		if err = public(err); piece.Ending != nil {
			piece.Ending.Err = err
		}
	}
	return piece, err
}

// Ready waits until Next would not wait, and returns true; or until tick sends a value, and returns false. The goroutine that
// calls Next calls it.
func (s *Stream) Ready(ctx context.Context, tick <-chan time.Time) bool {
	return s.inner.Ready(ctx, tick)
}

// Abort ends the request with err, ErrAborted if err is nil. It has no effect on a request that
// has ended. It never blocks: after Abort, Next still returns the endings once the current step
// has finished.
func (s *Stream) Abort(err error) { s.inner.Abort(err) }

// Generate returns an iterator that runs a request and yields its pieces as they come. The last
// piece of each sample has an Ending. A refusal, a failure, an expired time limit and the end
// of ctx are yielded as errors. The loop ends after the final piece, or after an error without
// an Ending. Leaving the loop early aborts the request.
func (n *Node) Generate(ctx context.Context, req Request) iter.Seq2[Piece, error] {
	return func(yield func(Piece, error) bool) {
		stream, err := n.Stream(req)
		if err != nil {
			yield(Piece{}, err)
			return
		}
		defer stream.Abort(nil) // no effect once it has ended
		for {
			piece, err := stream.Next(ctx)
			if !yield(piece, err) || piece.Final || err != nil && piece.Ending == nil {
				return
			}
		}
	}
}

// Text runs a request and waits for its end. If the Node refuses the request, the error is
// the refusal. If a sample fails or is aborted, the error is that of the first such sample,
// and the Result has the output until then.
func (n *Node) Text(ctx context.Context, req Request) (Result, error) {
	return collect(n.Generate(ctx, req))
}

// collect returns what the pieces of a request add up to, as Node.Text does.
func collect(pieces iter.Seq2[Piece, error]) (Result, error) {
	outputs, texts := make([]Output, 1), make([][]byte, 1)
	var failed error
	for p, err := range pieces {
		if failed == nil {
			failed = err
		}
		for p.Sample >= len(outputs) {
			outputs, texts = append(outputs, Output{}), append(texts, nil)
		}
		o := &outputs[p.Sample]
		texts[p.Sample] = append(texts[p.Sample], p.Text...)
		o.Logprobs, o.Top = append(o.Logprobs, p.Logprobs...), append(o.Top, p.Top...)
		if p.Ending != nil {
			o.Ending = *p.Ending
		}
	}
	for i := range outputs {
		outputs[i].Text = string(texts[i])
	}
	result := Result{Output: outputs[0], More: outputs[1:]}
	if result.Err == nil {
		result.Err = failed // the error of a refusal, or of another sample
	}
	return result, failed
}

// Batch runs requests concurrently and waits for all of them: results[i] belongs to reqs[i],
// and results[i].Err is its error. The returned error joins those errors. Batch keeps as many
// requests open as the Node admits; the others wait for earlier ones to end.
func (n *Node) Batch(ctx context.Context, reqs []Request) (results []Result, err error) {
	results = make([]Result, len(reqs))
	b := batch{todo: make([]int, len(reqs))}
	for i := range reqs {
		b.todo[i] = len(reqs) - 1 - i // take removes the last entry
	}
	var workers sync.WaitGroup
	for range min(len(reqs), n.sys.MaxRequests()) {
		workers.Go(func() {
			for t, ok := b.take(); ok; t, ok = b.take() {
				var err error
				results[t.request], err = n.Text(ctx, reqs[t.request])
				if !b.ended(t, err) {
					return
				}
			}
		})
	}
	workers.Wait()
	var errs []error
	for i := range results {
		if err := results[i].Err; err != nil {
			errs = append(errs, fmt.Errorf("request %d: %w", i, err))
		}
	}
	return results, errors.Join(errs...)
}

// batch hands out the requests of one call of Batch to its workers.
type batch struct {
	mu    sync.Mutex
	todo  []int // indexes of the requests left, the next one last
	open  int   // requests handed out that have not ended
	taken int   // attempts handed out so far
}

// turn is one attempt of a request.
type turn struct {
	request int
	alone   bool // no other request of the batch was open when this attempt began
	taken   int  // batch.taken when this attempt began
}

func (b *batch) take() (t turn, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	last := len(b.todo) - 1
	if last < 0 {
		return turn{}, false
	}
	b.taken++
	t = turn{b.todo[last], b.open == 0, b.taken}
	b.todo = b.todo[:last]
	b.open++
	return t, true
}

// ended records that the attempt t ended with err, and reports whether the worker should
// continue. If the Node was full while other requests of the batch were open, those may
// have filled it, and the request of t goes back to todo. A worker whose request is still
// open retries it later; if all others have ended, this worker does. If the request was the
// only one of the batch, its error stands.
func (b *batch) ended(t turn, err error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open--
	full := errors.Is(err, ErrQueueFull) || errors.Is(err, ErrTenantFull)
	if !full || t.alone && b.taken == t.taken {
		return true
	}
	b.todo = append(b.todo, t.request)
	return b.open == 0
}
