package zmq

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/internal/bounds"
)

// SenderConfig holds the addresses and limits of a publisher. Endpoint is required.
type SenderConfig struct {
	// Endpoint of the PUB socket, such as tcp://*:5557. As in vLLM, the socket listens there if
	// the host is * or an IPv6 wildcard, and for ipc://. Otherwise it connects to a subscriber
	// that listens. With Bind it always listens.
	Endpoint string
	Bind     bool
	// ReplayEndpoint of the ROUTER socket, which always listens. "": neither replays nor
	// snapshots, so subscribers can't recover lost batches exactly.
	ReplayEndpoint string
	// Topic of all messages: by convention kv@<address of the worker>@<model>.
	Topic string

	// QueueMessages bounds the queue of each subscriber, by default 10000. If the queue is full,
	// the subscriber misses messages, and notices the gap in their numbers.
	QueueMessages  int `default:"10000"`
	QueueBytes     int `default:"64<<20"` // 64 MiB per subscriber
	MaxSubscribers int `default:"256"`    // 256 connections; further ones wait
	// MaxReplays bounds the connections to the ROUTER socket, by default 64. Further ones wait.
	// A connection without requests is closed after a minute.
	MaxReplays   int           `default:"64"`
	WriteTimeout time.Duration `default:"10s"` // 10 s; a connection that takes no bytes for so long is closed
}

const handshakeTimeout = 5 * time.Second

// Sender holds the sockets of a publisher. It is an [events.Transport].
type Sender struct {
	cfg     SenderConfig
	history events.History
	ctx     context.Context
	cancel  context.CancelFunc
	wait    sync.WaitGroup // all goroutines

	pub, router net.Listener

	mu    sync.Mutex
	conns map[net.Conn]bool // all open connections, for Close
	subs  map[*subscription]bool

	dropped, refused atomic.Uint64 // messages that a slow subscriber missed; connections and requests that are no ZMTP or invalid
}

// NewSender returns a Sender; Start opens its sockets.
func NewSender(cfg SenderConfig) *Sender {
	s := &Sender{cfg: bounds.Fill(cfg), conns: make(map[net.Conn]bool), subs: make(map[*subscription]bool)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Start implements [events.Transport].
func (s *Sender) Start(h events.History) error {
	s.history = h
	network, address, err := parse(s.cfg.Endpoint)
	if err != nil {
		return err
	}
	if s.cfg.Bind || binds(s.cfg.Endpoint) {
		if s.pub, err = net.Listen(network, address); err != nil {
			return fmt.Errorf("zmq: the socket for events (PUB): %w", err)
		}
		s.wait.Go(func() {
			s.accept(s.pub, make(chan struct{}, s.cfg.MaxSubscribers), func(nc net.Conn) { s.serveSubscriber(nc) })
		})
	} else {
		dialer := net.Dialer{Timeout: handshakeTimeout}
		s.wait.Go(func() {
			s.connect(func() (net.Conn, error) { return dialer.DialContext(s.ctx, network, address) })
		})
	}
	if s.cfg.ReplayEndpoint == "" {
		return nil
	}
	if network, address, err = parse(s.cfg.ReplayEndpoint); err != nil {
		return err
	}
	if s.router, err = net.Listen(network, address); err != nil {
		return fmt.Errorf("zmq: the socket for replays (ROUTER): %w", err)
	}
	s.wait.Go(func() { s.accept(s.router, make(chan struct{}, s.cfg.MaxReplays), s.serveReplay) })
	return nil
}

// Addr returns the address at which the PUB socket listens, nil if it does not. It tells the
// port if the endpoint has port 0.
func (s *Sender) Addr() net.Addr { return addr(s.pub) }

// ReplayAddr returns the address at which the ROUTER socket listens, nil if there is none.
func (s *Sender) ReplayAddr() net.Addr { return addr(s.router) }

func addr(l net.Listener) net.Addr {
	if l == nil {
		return nil
	}
	return l.Addr()
}

// Send implements [events.Transport]. It queues m for each subscriber and never waits.
func (s *Sender) Send(m events.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sub := range s.subs {
		if !sub.offer(m) {
			s.dropped.Add(1)
		}
	}
	return nil
}

// Close implements [events.Transport]. Messages that subscribers have not read yet are lost.
func (s *Sender) Close() error {
	s.cancel()
	var err error
	for _, l := range []net.Listener{s.pub, s.router} {
		if l != nil {
			err = errors.Join(err, l.Close())
		}
	}
	s.mu.Lock()
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.wait.Wait()
	return err
}

// accept accepts connections at l and calls serve for each, on its own goroutine. At most
// cap(places) are served at a time. Further ones wait in the operating system's queue, which
// eventually refuses them.
func (s *Sender) accept(l net.Listener, places chan struct{}, serve func(net.Conn)) {
	for {
		select {
		case places <- struct{}{}:
		case <-s.ctx.Done():
			return
		}
		nc, err := l.Accept()
		if err != nil {
			<-places
			if s.ctx.Err() != nil || !s.pause(10*time.Millisecond) {
				return
			}
			continue // perhaps out of descriptors
		}
		s.wait.Go(func() {
			defer func() { <-places }()
			s.with(nc, serve)
		})
	}
}

// connect keeps one connection to a subscriber that listens; dial makes it. It waits longer
// after each failure. A successful connection resets the wait.
func (s *Sender) connect(dial func() (net.Conn, error)) {
	const least = 10 * time.Millisecond
	for wait := least; ; wait = min(2*wait, 5*time.Second) {
		if nc, err := dial(); err == nil {
			s.with(nc, func(nc net.Conn) {
				if s.serveSubscriber(nc) {
					wait = least
				}
			})
		}
		if !s.pause(wait) {
			return
		}
	}
}

// pause waits for d. It returns false if the sender is closed meanwhile.
func (s *Sender) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-s.ctx.Done():
		return false
	}
}

// with calls serve for a connection and closes it. Meanwhile Close can close it too.
func (s *Sender) with(nc net.Conn, serve func(net.Conn)) {
	s.mu.Lock()
	s.conns[nc] = true
	s.mu.Unlock()
	defer func() {
		_ = nc.Close()
		s.mu.Lock()
		delete(s.conns, nc)
		s.mu.Unlock()
	}()
	if s.ctx.Err() == nil { // otherwise Close may have missed it
		serve(nc)
	}
}

// serveReplay answers the requests that arrive over one connection until it ends.
func (s *Sender) serveReplay(nc net.Conn) {
	c, err := handshake(nc, "ROUTER", maxCommand, handshakeTimeout, "REQ", "DEALER", "ROUTER")
	if err != nil {
		s.refused.Add(1)
		return
	}
	c.timeout = s.cfg.WriteTimeout
	for {
		if c.SetReadDeadline(time.Now().Add(time.Minute)) != nil {
			return
		}
		frames, command, err := c.read()
		if err != nil {
			return
		}
		if command != "" {
			continue
		}
		if len(frames) != 2 || len(frames[0]) != 0 || len(frames[1]) != 8 {
			s.refused.Add(1) // ignore it, like vLLM
			continue
		}
		if err := s.answer(c, frames[1]); err != nil {
			return
		}
	}
}

// snapshotRequest asks for a snapshot instead of a replay.
const snapshotRequest = "snapshot"

// answer writes the replay or snapshot that request asks for. The first message of a snapshot
// contains "snapshot", the epoch and the number of batches, 8 bytes each.
func (s *Sender) answer(c *conn, request []byte) error {
	say := func(topic string, seq uint64, payload []byte) error {
		return c.write(nil, []byte(topic), binary.BigEndian.AppendUint64(nil, seq), payload)
	}
	if string(request) == snapshotRequest {
		snap, err := s.history.Snapshot(s.ctx)
		if err != nil {
			return err
		}
		head := binary.BigEndian.AppendUint64([]byte(snapshotRequest), snap.Epoch)
		head = binary.BigEndian.AppendUint64(head, uint64(len(snap.Batches)))
		if err := say(s.cfg.Topic, snap.Next, head); err != nil {
			return err
		}
		for _, payload := range snap.Batches {
			if err := say(s.cfg.Topic, snap.Next, payload); err != nil {
				return err
			}
		}
	} else {
		for m := range s.history.Replay(binary.BigEndian.Uint64(request)) {
			if err := say(s.cfg.Topic, m.Seq, m.Payload); err != nil {
				return err
			}
		}
	}
	if err := say("", events.EndSeq, nil); err != nil {
		return err
	}
	return c.flush()
}
