package nats

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/coppice-llm/coppice/events"
)

const flushTimeout = time.Second

// streamHeartbeat is how often a stream says that it is there: twice that without one, and
// it is taken to be gone.
const streamHeartbeat = 5 * time.Second

// maxAnswers to one question may wait to be read.
const maxAnswers = 1 << 20

// ErrNoPublisher is the answer to a question that nobody is there to hear.
var ErrNoPublisher = errors.New("nats: the worker's publisher does not answer")

// Source is one rank seen over NATS: an [events.Source].
type Source struct {
	cfg     Config
	frames  chan events.Frame
	ctx     context.Context
	cancel  context.CancelFunc
	wait    sync.WaitGroup
	turned  chan struct{} // of one place: the connection broke or is there anew
	trouble trouble

	successor uint64 // the last that was told; the listener's

	mu sync.Mutex
	nc *nats.Conn
}

// NewSource does nothing yet: Start connects. It fails on names that can't be
// part of a subject.
func NewSource(cfg Config) (*Source, error) {
	s := &Source{cfg: cfg.withDefaults(), turned: make(chan struct{}, 1)}
	s.trouble.notify = s.cfg.Notify
	s.frames = make(chan events.Frame, s.cfg.Frames)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, s.cfg.validate()
}

// Start implements [events.Source].
func (s *Source) Start() <-chan events.Frame {
	s.wait.Go(func() {
		defer close(s.frames)
		retry(s.ctx, s.cfg, s.connect)
		if s.ctx.Err() != nil {
			return
		}
		for {
			heard := false
			retry(s.ctx, s.cfg, func() error {
				connected, err := s.listen()
				if connected {
					s.put(events.Frame{Kind: events.FrameDisconnected})
					heard = true
					return nil
				}
				return err
			})
			if s.ctx.Err() != nil || !heard {
				return
			}
		}
	})
	return s.frames
}

func (s *Source) connect() error {
	turn := func(*nats.Conn) {
		select {
		case s.turned <- struct{}{}:
		default:
		}
	}
	t := &s.trouble
	nc, err := s.cfg.connect("coppice router, for worker "+s.cfg.Worker, t, nats.ConnectHandler(func(*nats.Conn) { t.is(nil) }),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			t.is(nil)
			turn(nc)
		}),
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) {
			if err != nil {
				t.is(err)
			}
			turn(nc)
		}))
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.nc = nc
	s.mu.Unlock()
	return nil
}

func (s *Source) put(f events.Frame) bool {
	select {
	case s.frames <- f:
		return true
	case <-s.ctx.Done():
		return false
	}
}

// listen reads the stream from its end on, until the connection turns: whether the
// stream is the same one after that, nobody can tell. False if there was none.
func (s *Source) listen() (connected bool, err error) {
	select { // of the time before
	case <-s.turned:
	default:
	}
	js, err := jetstream.New(s.nc)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(s.ctx, 5*time.Second)
	defer cancel()
	stream, err := s.cfg.find(ctx, js) // whatever it keeps: that is its publishers' to say
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		stream, err = js.CreateStream(ctx, s.cfg.stream())
	}
	if err != nil {
		if err = fmt.Errorf("nats: stream %s: %w", s.cfg.Stream, err); s.nc.IsConnected() && s.ctx.Err() == nil { // else the connection tells
			s.trouble.is(err)
		}
		return false, err
	}
	s.trouble.is(nil)
	// A plain consumer, not the client's ordered one: that waits for good for a stream that
	// is gone, and in one that counts anew for the number where it was. What is missed here
	// the numbers of the batches show.
	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		FilterSubject: s.cfg.subject(), DeliverPolicy: jetstream.DeliverNewPolicy, AckPolicy: jetstream.AckNonePolicy,
		InactiveThreshold: time.Minute, MemoryStorage: true, Replicas: 1})
	if err != nil {
		return false, fmt.Errorf("nats: consumer: %w", err)
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(s.cfg.Frames), jetstream.PullHeartbeat(streamHeartbeat))
	if err != nil {
		return false, fmt.Errorf("nats: consumer: %w", err)
	}
	defer messages.Stop()
	if !s.put(events.Frame{Kind: events.FrameConnected}) {
		return true, nil
	}
	done := make(chan struct{})
	var watch sync.WaitGroup
	defer watch.Wait()
	defer close(done)
	watch.Go(func() {
		select {
		case <-s.turned:
		case <-s.ctx.Done():
		case <-done:
		}
		messages.Stop()
	})
	for {
		m, err := messages.Next()
		if err != nil {
			return true, err
		}
		if f, news := s.frame(m); news && !s.put(f) {
			return true, nil
		}
	}
}

// frame is what comes of a message of the stream; not news: of another process of the name,
// that is told already or an earlier one.
func (s *Source) frame(m jetstream.Msg) (f events.Frame, news bool) {
	got, ok := message(m.Headers(), m.Data())
	switch {
	case !ok:
		return events.Frame{Kind: events.FrameMalformed}, true
	case !s.stranger(got.Epoch):
		return events.Frame{Message: got}, true
	case got.Epoch <= max(s.successor, s.cfg.Epoch):
		return f, false
	}
	s.successor = got.Epoch
	return events.Frame{Kind: events.FrameSuccessor, Message: events.Message{Epoch: got.Epoch}}, true
}

// stranger reports whether what has an epoch is of another process of the worker's name.
func (s *Source) stranger(epoch uint64) bool { return s.cfg.Epoch != 0 && epoch != s.cfg.Epoch }

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

// batchCost is what a batch of a snapshot takes beside its payload, which may be empty.
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

// ask sends one request to the publisher, yields the answers and returns the last,
// which has no payload.
func (s *Source) ask(ctx context.Context, request string, each func(events.Message) error) (end events.Message, err error) {
	s.mu.Lock()
	nc := s.nc
	s.mu.Unlock()
	if nc == nil {
		return end, nats.ErrConnectionClosed
	}
	inbox := nc.NewRespInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return end, fmt.Errorf("nats: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := sub.SetPendingLimits(maxAnswers, s.cfg.SnapshotBytes+1<<20); err != nil {
		return end, fmt.Errorf("nats: %w", err)
	}
	if err := nc.PublishRequest(s.cfg.askAt(), inbox, []byte(request)); err != nil {
		return end, fmt.Errorf("nats: %w", err)
	}
	for heard := 0; ; {
		m, err := sub.NextMsgWithContext(ctx)
		if errors.Is(err, nats.ErrNoResponders) {
			return end, fmt.Errorf("%w at %s", ErrNoPublisher, s.cfg.askAt())
		}
		if err != nil {
			return end, fmt.Errorf("nats: %w", err)
		}
		got, ok := message(m.Header, m.Data)
		if ok && s.stranger(got.Epoch) {
			continue // another process of the name answers too
		}
		if reason := m.Header.Get(headErr); reason != "" {
			return end, fmt.Errorf("nats: the publisher says: %.200s", reason)
		}
		if !ok {
			return end, fmt.Errorf("nats: an answer without epoch or number")
		}
		if said := m.Header.Get(headEnd); said != "" {
			if said != strconv.Itoa(heard) {
				return end, fmt.Errorf("nats: %d answers came of %.20s", heard, said)
			}
			return got, nil
		}
		if err := each(got); err != nil {
			return end, err
		}
		heard++
	}
}

// retry does what until it is done or ctx ends, with growing waits.
func retry(ctx context.Context, cfg Config, what func() error) {
	for wait := cfg.Retry; ctx.Err() == nil && what() != nil; wait = min(2*wait, 5*time.Second) {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}
