package nats

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/coppice-llm/coppice/events"
)

// Config configures the subjects of a rank's events. All parties of a fleet use the same servers
// and prefix. Worker is required.
type Config struct {
	// URL of the servers, separated by commas. Default: nats://127.0.0.1:4222.
	URL    string `default:"nats://127.0.0.1:4222"`
	Worker string // one token of a subject: no dots, blanks or wildcards
	DP     uint32 // data-parallel rank
	// Epoch, from the worker's card, selects the process whose events a Source takes; events of
	// other processes with the same name are ignored. 0: all processes of that name.
	Epoch uint64

	Prefix string `default:"coppice-kv"` // first part of all subjects. Default: coppice-kv

	SnapshotBytes int           `default:"1<<30"` // limit of one snapshot. Default: 1 GiB
	Retry         time.Duration `default:"100ms"` // first wait after a failure, doubled up to 5 s. Default: 100 ms

	// Credentials is a file with a user's JWT and seed. CA is a PEM file with the certificates
	// of the authorities that signed the servers' certificates. "": none. A user and a password
	// may also be part of URL.
	Credentials, CA string
	// Options are added to the connection's options.
	Options []nats.Option

	// Notify is called with each problem once, such as unreachable servers or refused
	// credentials, and with nil when the connection works again. It must not block. The
	// connection is retried in any case.
	Notify func(error)
}

func (c Config) validate() error {
	for _, f := range [...]struct{ name, token string }{{"Worker", c.Worker}, {"Prefix", c.Prefix}} {
		if f.token == "" || strings.ContainsAny(f.token, ".*> \t\r\n/\\") {
			return fmt.Errorf("nats: %s %q must be one token: no dots, blanks, slashes or wildcards", f.name, f.token)
		}
	}
	return nil
}

func (c Config) subject() string    { return fmt.Sprintf("%s.%s.%d", c.Prefix, c.Worker, c.DP) }
func (c Config) askSubject() string { return fmt.Sprintf("%s-ask.%s.%d", c.Prefix, c.Worker, c.DP) }

// connect returns a connection called name, which keeps trying forever: servers come and go, and
// credentials get repaired. up is called for each new connection, and down, if not nil, when one
// breaks. more are further options. The error is about the configuration only.
func (c Config) connect(name string, up, down func(), more ...nats.Option) (*nats.Conn, error) {
	t := &trouble{notify: c.Notify}
	connected := func(*nats.Conn) {
		t.report(nil)
		up()
	}
	failed := func(_ *nats.Conn, err error) {
		if err != nil { // nil when we close the connection
			t.report(err)
		}
	}
	options := []nats.Option{
		nats.Name(name), nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true), nats.IgnoreAuthErrorAbort(),
		nats.ReconnectWait(c.Retry), nats.ReconnectJitter(c.Retry/2, c.Retry/2), nats.PingInterval(pingInterval),
		nats.ConnectHandler(connected), nats.ReconnectHandler(connected), nats.ReconnectErrHandler(failed),
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) {
			failed(nc, err)
			if down != nil {
				down()
			}
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			// Other errors are returned by the calls they concern.
			if errors.Is(err, nats.ErrPermissionViolation) {
				t.report(err)
			}
		}),
	}
	if c.Credentials != "" {
		options = append(options, nats.UserCredentials(c.Credentials))
	}
	if c.CA != "" {
		options = append(options, nats.RootCAs(c.CA))
	}
	nc, err := nats.Connect(c.URL, slices.Concat(options, c.Options, more)...)
	if bad := (*url.Error)(nil); errors.As(err, &bad) {
		// err quotes the URL, with its password.
		return nil, errors.New("nats: URL can't be read, want servers as nats://host:4222")
	}
	if err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	return nc, nil
}

// client is a connection and the goroutines that use it.
type client struct {
	conn   atomic.Pointer[nats.Conn] // nil before it is opened
	ctx    context.Context
	cancel context.CancelFunc
	wait   sync.WaitGroup
	once   sync.Once
}

func (c *client) begin() { c.ctx, c.cancel = context.WithCancel(context.Background()) }

// nc returns the connection.
func (c *client) nc() *nats.Conn { return c.conn.Load() }

// open opens the connection by connect, which must pass the given option on, and subscribes. A
// server may end a connection permanently, for example for a message that exceeds its limit. Then
// open opens another one; it waits before each attempt as pauses do. The error is that of the
// first connect or subscribe.
func (c *client) open(retry time.Duration, connect func(nats.Option) (*nats.Conn, error), subscribe func(*nats.Conn) error) error {
	ended := make(chan struct{}, 1)
	again := func() error {
		nc, err := connect(nats.ClosedHandler(func(*nats.Conn) { signal(ended) }))
		if err != nil {
			return err
		}
		if err := subscribe(nc); err != nil {
			nc.Close()
			return err
		}
		c.conn.Store(nc)
		return nil
	}
	if err := again(); err != nil {
		return err
	}
	c.wait.Go(func() {
		p := pauses{first: retry}
		for {
			select {
			case <-ended:
			case <-c.ctx.Done():
				return
			}
			p.pause(c.ctx)
			switch {
			case c.ctx.Err() != nil:
				return
			case !c.nc().IsClosed(): // an earlier one has ended
			case again() != nil:
				signal(ended)
			default:
				p.last = 0
			}
		}
	})
	return nil
}

// maxRetry is the longest wait before another attempt to connect, unless Config.Retry is longer.
const maxRetry = 5 * time.Second

// pauses are the waits between attempts to connect: first, then twice the last one, up to maxRetry.
type pauses struct{ first, last time.Duration } // last 0: the next attempt is the first

// pause waits, at most until ctx ends.
func (p *pauses) pause(ctx context.Context) {
	p.last = max(p.first, min(2*p.last, maxRetry))
	select {
	case <-time.After(p.last):
	case <-ctx.Done():
	}
}

// end ends the goroutines and closes the connection. Before that, if a server is connected, it
// calls last and waits up to flushTimeout for sent messages to leave. It may be called again,
// and always returns nil.
func (c *client) end(last func()) error {
	c.once.Do(func() {
		c.cancel()
		c.wait.Wait()
		nc := c.nc()
		if nc == nil {
			return
		}
		if nc.IsConnected() {
			last()
			_ = nc.FlushTimeout(flushTimeout) // on an error they are lost; readers notice by numbers or silence
		}
		nc.Close()
	})
	return nil
}

// pingInterval is the time between pings to a server. After two without an answer the connection
// breaks.
const pingInterval = 10 * time.Second

// signal sends to a channel of capacity 1 unless it is full.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// pump forwards the messages of sub to the channel to, until ctx or the subscription ends.
// Messages that arrive faster than they are read are dropped; readers notice by sequence numbers
// or timeouts.
func pump(ctx context.Context, sub *nats.Subscription, to chan<- *nats.Msg) {
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if errors.Is(err, nats.ErrSlowConsumer) { // reported once for all dropped messages
			continue
		}
		if err != nil {
			return // closed
		}
		select {
		case to <- m:
		case <-ctx.Done():
			return
		}
	}
}

// into returns a function that subscribes to subject and puts the messages into to. A full channel
// drops messages.
func into(subject string, to chan *nats.Msg) func(*nats.Conn) error {
	return func(nc *nats.Conn) error {
		if _, err := nc.ChanSubscribe(subject, to); err != nil {
			return fmt.Errorf("nats: %w", err)
		}
		return nil
	}
}

// pumpInto returns a function that subscribes to subject as subscribe does, stores the subscription
// in sub and forwards its messages to the channel to.
func (c *client) pumpInto(subject string, messages, bytes int, sub *atomic.Pointer[nats.Subscription], to chan<- *nats.Msg) func(*nats.Conn) error {
	return func(nc *nats.Conn) error {
		got, err := subscribe(nc, subject, messages, bytes)
		if err != nil {
			return err
		}
		sub.Store(got)
		c.wait.Go(func() { pump(c.ctx, got, to) })
		return nil
	}
}

// subscribe subscribes to subject. At most this number of messages, with this number of bytes,
// is kept for a slow reader.
func subscribe(nc *nats.Conn, subject string, messages, bytes int) (*nats.Subscription, error) {
	sub, err := nc.SubscribeSync(subject)
	if err == nil {
		err = sub.SetPendingLimits(messages, bytes)
	}
	if err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	return sub, nil
}

// Headers of a message; numbers are decimal.
const (
	headEpoch = "Coppice-Epoch"
	headSeq   = "Coppice-Seq"
	headEnd   = "Coppice-End" // in an answer: the number of messages before it
	headErr   = "Coppice-Error"
)

// header returns the headers of a batch.
func header(epoch, seq uint64) nats.Header {
	return nats.Header{headEpoch: {strconv.FormatUint(epoch, 10)}, headSeq: {strconv.FormatUint(seq, 10)}}
}

// message makes a Message of a header and a payload. The second result is false if the header
// has no valid epoch or number.
func message(h nats.Header, payload []byte) (events.Message, bool) {
	epoch, err := strconv.ParseUint(h.Get(headEpoch), 10, 64)
	seq, err2 := strconv.ParseUint(h.Get(headSeq), 10, 64)
	return events.Message{Epoch: epoch, Seq: seq, Payload: payload}, err == nil && err2 == nil && epoch != 0
}

// trouble reports the problems of a connection to Config.Notify. A problem that recurs is
// reported once. When the connection works again, nil is reported.
type trouble struct {
	notify func(error)

	mu       sync.Mutex
	reported map[string]struct{} // reported since the last nil
}

// maxTroubles bounds the problems reported before the next nil, because errors may contain port
// numbers that vary.
const maxTroubles = 16

// report reports the problem err, or with nil that the connection works again.
func (t *trouble) report(err error) {
	if t.notify == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock() // held during notify too, to keep the order
	if err == nil {
		if len(t.reported) > 0 {
			t.reported = nil
			t.notify(nil)
		}
		return
	}
	if _, known := t.reported[err.Error()]; known || len(t.reported) == maxTroubles {
		return
	}
	if t.reported == nil {
		t.reported = make(map[string]struct{})
	}
	t.reported[err.Error()] = struct{}{}
	t.notify(err)
}
