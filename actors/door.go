package actors

import (
	"fmt"
	"slices"
	"sync"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// Request is what a caller asks for. The prompt is Tokens followed by the tokens
// of Prompt.
type Request struct {
	Tokens     []kv.Token
	Prompt     string
	Namespace  kv.Namespace
	MaxTokens  int
	StopTokens []kv.Token
	IgnoreEOS  bool
	Sampling   engine.SamplingParams
	Digest     bool
}

// door lets requests in, as many as there are credits, and knows every open one:
// whatever happens to the actors, it can end them all.
type door struct {
	sys *System

	mu     sync.Mutex
	open   map[scheduler.RequestID]*Stream
	lastID scheduler.RequestID
	closed error
}

func newDoor(s *System) *door {
	return &door{sys: s, open: make(map[scheduler.RequestID]*Stream)}
}

// Open accepts a request or refuses it: with scheduler.ErrQueueFull when
// MaxRequests are open, ErrClosed or the failure after the end, or what is wrong
// with the request. What only the scheduler can judge, its size for one, ends the
// stream with an error.
func (s *System) Open(req Request) (*Stream, error) {
	if req.Prompt != "" && s.cfg.Tokenizer == nil {
		return nil, fmt.Errorf("%w: a text prompt needs a tokenizer, give tokens", scheduler.ErrInvalid)
	}
	if req.Prompt == "" && len(req.Tokens) == 0 {
		return nil, fmt.Errorf("%w: give text or tokens", scheduler.ErrEmptyPrompt)
	}
	// What follows happens on other goroutines; the caller's slices stay the caller's.
	req.Tokens, req.StopTokens = slices.Clone(req.Tokens), slices.Clone(req.StopTokens)
	req.Sampling.Bias = slices.Clone(req.Sampling.Bias)
	stream, err := s.door.enter()
	if err != nil {
		return nil, err
	}
	if req.Prompt != "" {
		s.workers[int(stream.id)%len(s.workers)].tell(&encode{stream, req})
	} else {
		s.submit(stream, req, req.Tokens)
	}
	return stream, nil
}

// submit passes a request whose tokens are known on to the scheduler.
func (s *System) submit(stream *Stream, req Request, tokens []kv.Token) {
	stop := req.StopTokens
	if !req.IgnoreEOS {
		stop = append(stop[:len(stop):len(stop)], s.cfg.EOS...) // the cap: the caller's array is not ours
	}
	stream.setPrompt(tokens)
	s.scheduler.tell(&submit{stream, scheduler.Request{
		ID: stream.id, Namespace: req.Namespace, Prompt: tokens, MaxTokens: req.MaxTokens,
		StopTokens: stop, Sampling: req.Sampling, Digest: req.Digest,
	}})
}

func (d *door) enter() (*Stream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed != nil {
		return nil, d.closed
	}
	if len(d.open) >= d.sys.cfg.MaxRequests {
		return nil, fmt.Errorf("%w: %d requests are open, at most %d may be", scheduler.ErrQueueFull, len(d.open), d.sys.cfg.MaxRequests)
	}
	d.lastID++
	stream := newStream(d.lastID, d.sys)
	d.open[stream.id] = stream
	return stream, nil
}

// leave returns a request's credit, once nothing of it is on its way any more.
func (d *door) leave(id scheduler.RequestID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, id)
}

// close refuses what comes and ends what is open.
func (d *door) close(cause error) {
	d.mu.Lock()
	d.closed = cause
	streams := make([]*Stream, 0, len(d.open))
	for _, stream := range d.open {
		streams = append(streams, stream)
	}
	clear(d.open)
	d.mu.Unlock()
	for _, stream := range streams {
		stream.end(scheduler.Ending{Reason: scheduler.Failed, Err: cause})
	}
}
