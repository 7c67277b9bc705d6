package nats

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/internal/bounds"
)

const flushTimeout = time.Second

// Limits of received messages that wait for a slow reader. Beyond them, messages are dropped, and
// the reader asks for them.
const (
	queueMessages = 1 << 16
	queueBytes    = 64 << 20
)

// maxAnswers is the most messages of an answer that may wait to be read.
const maxAnswers = 1 << 20

// ErrNoPublisher reports that no publisher subscribes to the worker's requests.
var ErrNoPublisher = fmt.Errorf("nats: no publisher of the worker is connected: %w", events.ErrUnreachable)

// Source reads one rank's events over NATS. It is an [events.Source].
type Source struct {
	cfg    Config
	frames chan events.Frame
	ctx    context.Context
	cancel context.CancelFunc
	wait   sync.WaitGroup
	turned chan struct{} // capacity 1: signals that the connection broke or is new
	ended  chan struct{} // capacity 1: signals that a server has ended the connection permanently

	successor uint64 // epoch of the last reported successor; only the goroutine of listen uses it

	mu sync.Mutex
	nc *nats.Conn
}

// NewSource returns a Source; Start connects it. It is an error if Worker or Prefix can't be
// part of a subject.
func NewSource(cfg Config) (*Source, error) {
	s := &Source{cfg: bounds.Fill(cfg), turned: make(chan struct{}, 1), ended: make(chan struct{}, 1), frames: make(chan events.Frame, 16)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, s.cfg.validate()
}

// Start implements [events.Source].
func (s *Source) Start() <-chan events.Frame {
	s.wait.Go(func() {
		defer close(s.frames)
		heard := make(chan *nats.Msg)
		for p := (pauses{first: s.cfg.Retry}); s.ctx.Err() == nil; p.pause(s.ctx) {
			if s.connect(heard) {
				s.listen(heard)
				p.last = 0
			}
		}
	})
	return s.frames
}

// connect connects and subscribes. It returns false if that is impossible now, for example
// because a file with credentials can't be read.
func (s *Source) connect(heard chan<- *nats.Msg) bool {
	turn := func() { signal(s.turned) }
	nc, err := s.cfg.connect("coppice router, for worker "+s.cfg.Worker, turn, turn, nats.ClosedHandler(func(*nats.Conn) { signal(s.ended) }))
	if err != nil {
		return false
	}
	sub, err := subscribe(nc, s.cfg.subject(), queueMessages, queueBytes)
	if err != nil {
		nc.Close()
		return false
	}
	s.mu.Lock()
	s.nc = nc
	s.mu.Unlock()
	s.wait.Go(func() { pump(s.ctx, sub, heard) })
	return true
}

// put sends a frame to the subscriber, unless the source is closing.
func (s *Source) put(f events.Frame) {
	select {
	case s.frames <- f:
	case <-s.ctx.Done():
	}
}

// listen forwards messages, and changes of the connection, as frames until a server ends the
// connection permanently or the source is closed.
func (s *Source) listen(heard <-chan *nats.Msg) {
	for up := false; ; {
		select {
		case <-s.turned: // also after it broke and reconnected
			if up {
				s.put(events.Frame{Kind: events.FrameDisconnected})
			}
			if up = s.nc.IsConnected(); up {
				s.put(events.Frame{Kind: events.FrameConnected})
			}
		case m := <-heard:
			if f, news := s.frame(m); news {
				s.put(f)
			}
		case <-s.ended:
			if !s.nc.IsClosed() {
				continue // it was an earlier one
			}
			if up {
				s.put(events.Frame{Kind: events.FrameDisconnected})
			}
			return
		case <-s.ctx.Done():
			return
		}
	}
}

// frame converts a message. news is false if there is nothing to report: the message is of
// another process with the worker's name, and this process is an earlier one or was reported
// before.
func (s *Source) frame(m *nats.Msg) (f events.Frame, news bool) {
	got, ok := message(m.Header, m.Data)
	switch {
	case !ok:
		return events.Frame{Kind: events.FrameMalformed}, true
	case !s.isOther(got.Epoch):
		return events.Frame{Message: got}, true
	case got.Epoch <= max(s.successor, s.cfg.Epoch):
		return f, false
	}
	s.successor = got.Epoch
	return events.Frame{Kind: events.FrameSuccessor, Message: events.Message{Epoch: got.Epoch}}, true
}

// isOther reports whether epoch is that of another process than Config.Epoch.
func (s *Source) isOther(epoch uint64) bool { return s.cfg.Epoch != 0 && epoch != s.cfg.Epoch }

// Close implements [events.Source].
func (s *Source) Close() error {
	s.cancel()
	s.wait.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nc != nil {
		s.nc.Close()
	}
	return nil
}

// Replay implements [events.Source].
func (s *Source) Replay(ctx context.Context, from uint64, each func(events.Message) error) (uint64, error) {
	end, err := s.ask(ctx, strconv.FormatUint(from, 10), each)
	return end.Epoch, err
}

// batchCost is the assumed memory of a batch of a snapshot in addition to its payload, which may
// be empty.
const batchCost = 64

// Snapshot implements [events.Source].
func (s *Source) Snapshot(ctx context.Context) (events.Snapshot, error) {
	var snap events.Snapshot
	size := 0
	end, err := s.ask(ctx, snapshotRequest, func(m events.Message) error {
		if size += len(m.Payload) + batchCost; size > s.cfg.SnapshotBytes {
			return fmt.Errorf("nats: a snapshot of over %d bytes", s.cfg.SnapshotBytes)
		}
		snap.Batches = append(snap.Batches, m.Payload)
		return nil
	})
	snap.Epoch, snap.Next = end.Epoch, end.Seq
	return snap, err
}

// ask sends a request to the publisher and calls each with every message of the answer. It
// returns the end message, which has no payload. The error is that of each, [ErrNoPublisher], or
// says that the answer is incomplete; it wraps [events.ErrUnreachable] if none has begun to arrive.
func (s *Source) ask(ctx context.Context, request string, each func(events.Message) error) (end events.Message, err error) {
	s.mu.Lock()
	nc := s.nc
	s.mu.Unlock()
	if nc == nil {
		return end, fmt.Errorf("%w: %w", events.ErrUnreachable, nats.ErrConnectionClosed)
	}
	inbox := nc.NewRespInbox()
	sub, err := subscribe(nc, inbox, maxAnswers, s.cfg.SnapshotBytes+1<<20)
	if err != nil {
		return end, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := nc.PublishRequest(s.cfg.askSubject(), inbox, []byte(request)); err != nil {
		return end, fmt.Errorf("%w: %w", events.ErrUnreachable, err)
	}
	for heard := 0; ; {
		m, err := sub.NextMsgWithContext(ctx)
		if errors.Is(err, nats.ErrNoResponders) {
			return end, fmt.Errorf("%w at %s", ErrNoPublisher, s.cfg.askSubject())
		}
		if err != nil && heard == 0 {
			return end, fmt.Errorf("%w: %w", events.ErrUnreachable, err)
		}
		if err != nil {
			return end, fmt.Errorf("nats: %w", err)
		}
		got, ok := message(m.Header, m.Data)
		if ok && s.isOther(got.Epoch) {
			continue // answer of another process with the same name
		}
		if reason := m.Header.Get(headErr); reason != "" {
			return end, fmt.Errorf("nats: the publisher says %.200q", reason)
		}
		if !ok {
			return end, fmt.Errorf("nats: an answer without epoch or number")
		}
		if said := m.Header.Get(headEnd); said != "" {
			if said != strconv.Itoa(heard) {
				return end, fmt.Errorf("nats: %d of %.20s answers arrived", heard, said)
			}
			return got, nil
		}
		if err := each(got); err != nil {
			return end, err
		}
		heard++
	}
}
