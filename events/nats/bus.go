package nats

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/coppice-llm/coppice/internal/bounds"
)

// ErrNoServer reports that a message was not sent because there is no server. It is not kept for
// later, when it would be outdated.
var ErrNoServer = errors.New("nats: no server")

// BusConfig configures a Bus. Topic is required.
type BusConfig struct {
	Config        // only URL, Prefix, Retry and Options are used
	Topic  string // one token; the subject is <prefix>-<topic>

	MaxMessage int `default:"1<<20" min:"1"` // 1 MiB; longer messages are neither sent nor received
	// QueueMessages and QueueBytes limit the received messages that wait to be read. Further
	// ones are dropped.
	QueueMessages int `default:"8192" min:"1"`   // 8192
	QueueBytes    int `default:"64<<20" min:"1"` // 64 MiB
}

func (c BusConfig) withDefaults() BusConfig {
	c.Worker = "bus" // required by validate, but not used
	return bounds.Fill(c)
}

func (c BusConfig) validate() error {
	errs := []error{c.Config.validate(), bounds.Check("nats", c)}
	if !validName(c.Topic) || strings.Contains(c.Topic, "\\") {
		errs = append(errs, fmt.Errorf("nats: Topic %.100q must be one token: no dots, blanks, slashes or wildcards", c.Topic))
	}
	return errors.Join(errs...)
}

func (c BusConfig) subject() string { return c.Prefix + "-" + c.Topic }

// BusMetrics counts since the start.
type BusMetrics struct {
	Connected bool   // at present
	Connects  uint64 // including the first
	Sent      uint64
	Unsent    uint64 // messages that were too long, or for which there was no server
	Received  uint64
	TooLong   uint64 // received, but longer than MaxMessage: ignored
	Dropped   uint64 // messages dropped because they came faster than they were read
}

// Bus exchanges small messages among peers: each message goes to all others, not to its sender.
// It is core NATS: messages may be lost, those of one sender arrive in order, and nothing is
// stored. Its methods may be called from any goroutine.
type Bus struct {
	cfg BusConfig
	client
	sub      atomic.Pointer[nats.Subscription]
	up       chan struct{} // capacity 1
	messages chan []byte

	connects, sent, unsent, received, tooLong atomic.Uint64
}

// NewBus connects. It does not wait for a server. The error is about the configuration.
func NewBus(cfg BusConfig) (*Bus, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	b := &Bus{cfg: cfg, up: make(chan struct{}, 1), messages: make(chan []byte)}
	up := func() {
		b.connects.Add(1)
		signal(b.up)
	}
	b.begin()
	heard := make(chan *nats.Msg)
	connect := func(o nats.Option) (*nats.Conn, error) {
		return cfg.connect("coppice bus "+cfg.Topic, up, nil, nats.NoEcho(), nats.ReconnectBufSize(-1), o)
	}
	if err := b.open(cfg.Retry, connect, b.pumpInto(cfg.subject(), cfg.QueueMessages, cfg.QueueBytes, &b.sub, heard)); err != nil {
		return nil, err
	}
	b.wait.Go(func() { b.take(heard) })
	return b, nil
}

// take forwards received messages to the channel messages, except those that are too long.
func (b *Bus) take(heard <-chan *nats.Msg) {
	defer close(b.messages)
	for {
		var m *nats.Msg
		select {
		case m = <-heard:
		case <-b.ctx.Done():
			return
		}
		if len(m.Data) > b.cfg.MaxMessage {
			b.tooLong.Add(1)
			continue
		}
		b.received.Add(1)
		select {
		case b.messages <- m.Data:
		case <-b.ctx.Done():
			return
		}
	}
}

// Messages returns the channel of messages from the others. The receiver owns each message.
// Close closes the channel.
func (b *Bus) Messages() <-chan []byte { return b.messages }

// Up returns a channel that signals each new connection, also the first one. Messages sent or
// received around that time may be lost. Signals that were not read yet are merged into one.
func (b *Bus) Up() <-chan struct{} { return b.up }

// Connected reports whether there is a server.
func (b *Bus) Connected() bool { return b.nc().IsConnected() }

// MaxMessage returns the longest message that Send accepts, in bytes: the smaller of the
// configuration's limit and, once connected, the server's.
func (b *Bus) MaxMessage() int {
	if n := b.nc().MaxPayload(); n > 0 {
		return int(min(n, int64(b.cfg.MaxMessage)))
	}
	return b.cfg.MaxMessage
}

// Send publishes a copy of message to all others. A nil error means that the message is on its
// way to the server. It is [ErrNoServer] if no server is connected now.
func (b *Bus) Send(message []byte) error {
	err := b.send(message)
	if err != nil {
		b.unsent.Add(1)
		return err
	}
	b.sent.Add(1)
	return nil
}

func (b *Bus) send(message []byte) error {
	if most := b.MaxMessage(); len(message) > most {
		return fmt.Errorf("nats: a message of %d bytes, want at most %d", len(message), most)
	}
	if !b.nc().IsConnected() {
		return ErrNoServer
	}
	switch err := b.nc().Publish(b.cfg.subject(), message); {
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionClosed):
		return ErrNoServer // the connection broke just now
	case err != nil:
		return fmt.Errorf("nats: %w", err)
	}
	return nil
}

// Metrics returns the counters. It may be called at any time.
func (b *Bus) Metrics() BusMetrics {
	m := BusMetrics{Connected: b.Connected(), Connects: b.connects.Load(), Sent: b.sent.Load(), Unsent: b.unsent.Load(),
		Received: b.received.Load(), TooLong: b.tooLong.Load()}
	if n, err := b.sub.Load().Dropped(); err == nil {
		m.Dropped = uint64(n)
	}
	return m
}

// Close waits up to a second for sent messages to leave, and ends. It may be called again.
func (b *Bus) Close() error { return b.end(func() {}) }
