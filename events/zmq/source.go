package zmq

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/internal/bounds"
)

// SourceConfig configures the connection to a publisher. Endpoint is required.
type SourceConfig struct {
	Endpoint       string // of the publisher's PUB socket, which must listen there: tcp://worker:5557
	ReplayEndpoint string // of the publisher's ROUTER socket; "": none
	Topic          string // prefix of the wanted topics; "": all

	// Quiet is how long after connecting no message may match Topic. Then the source subscribes
	// to all topics until one message comes, and reports that message's topic as
	// [events.FrameElsewhere]. Otherwise a wrong Topic would look like a worker without events.
	// Default 10 s.
	Quiet time.Duration `default:"10s"`

	MessageBytes  int           `default:"16<<20"` // 16 MiB; a longer message ends the connection
	SnapshotBytes int           `default:"1<<30"`  // 1 GiB, limit of one snapshot
	Frames        int           `default:"16"`     // capacity of the channel to the subscriber: 16
	Redial        time.Duration `default:"100ms"`  // 100 ms; first wait after a broken connection, doubled up to 5 s
}

// Source reads one publisher's sockets. It is an [events.Source]. One connection never reaches
// two processes of the publisher, so the messages need no epoch.
type Source struct {
	cfg    SourceConfig
	frames chan events.Frame
	ctx    context.Context
	cancel context.CancelFunc
	wait   sync.WaitGroup
}

// NewSource returns a Source; Start connects it.
func NewSource(cfg SourceConfig) *Source {
	s := &Source{cfg: bounds.Fill(cfg)}
	s.frames = make(chan events.Frame, s.cfg.Frames)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Start implements [events.Source].
func (s *Source) Start() <-chan events.Frame {
	s.wait.Go(func() {
		defer close(s.frames)
		wait := s.cfg.Redial
		for s.ctx.Err() == nil {
			if connected := s.listen(); connected {
				wait = s.cfg.Redial
				s.put(events.Frame{Kind: events.FrameDisconnected})
			}
			select {
			case <-time.After(wait):
			case <-s.ctx.Done():
			}
			wait = min(2*wait, 5*time.Second)
		}
	})
	return s.frames
}

// put sends a frame to the subscriber. It returns false if the source is closed.
func (s *Source) put(f events.Frame) bool {
	select {
	case s.frames <- f:
		return true
	case <-s.ctx.Done():
		return false
	}
}

// dial opens a connection to endpoint that ends with ctx. own is the type of this socket, peer
// that of the other one, and limit the most bytes of a message. The caller must call end.
func dial(ctx context.Context, endpoint, own, peer string, limit int) (c *conn, end func(), err error) {
	network, address, err := parse(endpoint)
	if err != nil {
		return nil, nil, err
	}
	dialer := net.Dialer{Timeout: handshakeTimeout}
	nc, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, nil, fmt.Errorf("zmq: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() })
	if c, err = handshake(nc, own, limit, handshakeTimeout, peer, "X"+peer); err != nil {
		stop()
		_ = nc.Close()
		return nil, nil, err
	}
	c.timeout = writeTimeout
	return c, func() { stop(); _ = nc.Close() }, nil
}

// writeTimeout bounds a write to a publisher. All writes are short: a request, or the answer to
// a PING.
const writeTimeout = 10 * time.Second

// listen opens a connection and forwards its messages as frames until it ends. It returns false
// if it could not connect.
func (s *Source) listen() (connected bool) {
	c, end, err := dial(s.ctx, s.cfg.Endpoint, "SUB", "PUB", s.cfg.MessageBytes)
	if err != nil {
		return false
	}
	defer end()
	if c.subscribe(1, s.cfg.Topic) != nil {
		return false
	}
	if !s.put(events.Frame{Kind: events.FrameConnected}) {
		return false
	}
	heard := s.widenWhenQuiet(c)
	defer heard()
	for first := true; ; {
		frames, command, err := c.read()
		if err != nil {
			if errors.Is(err, errProtocol) {
				s.put(events.Frame{Kind: events.FrameMalformed})
			}
			return true
		}
		if command != "" {
			continue
		}
		f := events.Frame{Kind: events.FrameMalformed}
		if len(frames) == 3 && len(frames[1]) == 8 {
			heard()
			topic := string(frames[0])
			ours := strings.HasPrefix(topic, s.cfg.Topic)
			switch {
			case ours:
				f = events.Frame{Topic: topic, Message: events.Message{Seq: binary.BigEndian.Uint64(frames[1]), Payload: frames[2]}}
			case first:
				f = events.Frame{Kind: events.FrameElsewhere, Topic: topic[:min(len(topic), maxPrefix)]}
			default: // sent before the subscription was cancelled
				continue
			}
			first = false
		}
		if !s.put(f) {
			return true
		}
	}
}

// widenWhenQuiet subscribes to all topics if nothing arrives for Quiet. Call heard when
// something has arrived, and at the end: it stops the timer and cancels the wider subscription.
func (s *Source) widenWhenQuiet(c *conn) (heard func()) {
	if s.cfg.Topic == "" {
		return func() {}
	}
	all, done, ended := false, make(chan struct{}), make(chan struct{})
	s.wait.Go(func() {
		defer close(ended)
		select {
		case <-time.After(s.cfg.Quiet):
			all = true
			_ = c.subscribe(1, "") // on an error reading fails too
		case <-done:
		}
	})
	return sync.OnceFunc(func() {
		close(done)
		if <-ended; all { // wait, so that no other goroutine writes
			_ = c.subscribe(0, "")
		}
	})
}

// Close implements [events.Source].
func (s *Source) Close() error {
	s.cancel()
	s.wait.Wait()
	return nil
}

// Replay implements [events.Source]. The epoch is unknown: 0.
func (s *Source) Replay(ctx context.Context, from uint64, each func(events.Message) error) (uint64, error) {
	return 0, s.ask(ctx, binary.BigEndian.AppendUint64(nil, from), each)
}

// batchCost is the assumed memory of a batch of a snapshot in addition to its payload, which may
// be empty.
const batchCost = 64

// Snapshot implements [events.Source].
func (s *Source) Snapshot(ctx context.Context) (events.Snapshot, error) {
	var snap events.Snapshot
	var batches uint64
	begun, size := false, 0
	err := s.ask(ctx, []byte(snapshotRequest), func(m events.Message) error {
		if !begun {
			const length = len(snapshotRequest)
			if len(m.Payload) != length+16 || string(m.Payload[:length]) != snapshotRequest {
				return events.ErrUnsupported
			}
			begun = true
			snap.Next, snap.Epoch = m.Seq, binary.BigEndian.Uint64(m.Payload[length:])
			batches = binary.BigEndian.Uint64(m.Payload[length+8:])
			return nil
		}
		if size += len(m.Payload) + batchCost; m.Seq != snap.Next || size > s.cfg.SnapshotBytes {
			return fmt.Errorf("zmq: a snapshot of %d bytes before batch %d, and %d", size, snap.Next, m.Seq)
		}
		snap.Batches = append(snap.Batches, m.Payload)
		return nil
	})
	switch {
	case err != nil:
		return events.Snapshot{}, err
	case !begun: // the publisher took the request for a number
		return events.Snapshot{}, events.ErrUnsupported
	case batches != uint64(len(snap.Batches)):
		return events.Snapshot{}, fmt.Errorf("zmq: a snapshot of %d batches, want the announced %d", len(snap.Batches), batches)
	}
	return snap, nil
}

// ask sends one request to the publisher's ROUTER socket and calls each with every message of
// the answer, except the end.
func (s *Source) ask(ctx context.Context, request []byte, each func(events.Message) error) error {
	if s.cfg.ReplayEndpoint == "" {
		return events.ErrUnsupported
	}
	c, end, err := dial(ctx, s.cfg.ReplayEndpoint, "DEALER", "ROUTER", s.cfg.MessageBytes)
	if err != nil {
		return cause(ctx, err)
	}
	defer end()
	if err := errors.Join(c.write(nil, request), c.flush()); err != nil {
		return cause(ctx, err)
	}
	for {
		frames, command, err := c.read()
		if err != nil {
			return cause(ctx, err)
		}
		if command != "" {
			continue
		}
		if len(frames) == 4 { // drop the topic, which older publishers leave out
			frames = append(frames[:1], frames[2:]...)
		}
		if len(frames) != 3 || len(frames[0]) != 0 || len(frames[1]) != 8 {
			return fmt.Errorf("%w: an answer of %d frames", errProtocol, len(frames))
		}
		m := events.Message{Seq: binary.BigEndian.Uint64(frames[1]), Payload: frames[2]}
		if m.Seq == events.EndSeq {
			return nil
		}
		if err := each(m); err != nil {
			return err
		}
	}
}

// cause returns ctx's error if ctx has ended, else err.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
