package nats

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/coppice-llm/coppice/internal/bounds"
)

// MaxName is the longest name of a worker that a Watcher accepts, in bytes.
const MaxName = 128

// validName reports whether name can be a worker's name: one token of a subject, in printable
// ASCII.
func validName(name string) bool {
	return name != "" && len(name) <= MaxName &&
		!strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(".*>/\\", r) })
}

// WatcherConfig configures a Watcher. The zero value works.
type WatcherConfig struct {
	Config // only URL, Prefix, Retry and Options are used

	// Grace is how long a worker may be silent. Then it is asked, and counts as gone if it does
	// not answer within Grace/4. After an outage of the connection all workers get the full time
	// again. Default 5 s.
	Grace      time.Duration `default:"5s" above:"0s"`
	MaxNames   int           `default:"4096" min:"1"`   // default 4096; further ones are ignored
	MaxPayload int           `default:"64<<10" min:"1"` // default MaxPayload; longer ones are ignored

	// QueueMessages and QueueBytes limit the announcements that wait to be read. Further ones
	// are dropped.
	QueueMessages int `default:"8192" min:"1"`   // 8192
	QueueBytes    int `default:"64<<20" min:"1"` // 64 MiB

	meanwhile chan func(*registry) // in tests: changes the names before they are judged
}

func (c WatcherConfig) withDefaults() WatcherConfig {
	c.Worker = "watcher" // required by validate, but not used
	return bounds.Fill(c)
}

func (c WatcherConfig) validate() error {
	return errors.Join(c.Config.validate(), bounds.Check("nats", c))
}

// Change is a new state of a worker's process: present with its description, or gone.
type Change struct {
	Process
	Payload []byte // shared, never changed; nil: gone
}

// Gone reports whether the worker's process is gone: it said goodbye or was silent too long.
func (c Change) Gone() bool { return c.Payload == nil }

// Watcher follows which workers are registered. A slow reader gets the latest state of each
// worker, without the states in between.
type Watcher struct {
	cfg WatcherConfig
	client
	sub     atomic.Pointer[nats.Subscription]
	turned  chan struct{} // capacity 1: signals each new connection
	heard   chan *nats.Msg
	changes chan Change

	mu      sync.Mutex
	metrics WatcherMetrics

	// The rest belongs to the goroutine of run.
	names      registry
	of         *nats.Conn // the connection when the current deadlines began,
	reconnects uint64     // and the number of its reconnects
}

// NewWatcher starts watching. It does not wait for a server. The error is about the
// configuration.
func NewWatcher(cfg WatcherConfig) (*Watcher, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	w := &Watcher{cfg: cfg, turned: make(chan struct{}, 1), heard: make(chan *nats.Msg), changes: make(chan Change),
		names: registry{cfg: cfg, names: make(map[Process]*entry)}}
	w.begin()
	connect := func(o nats.Option) (*nats.Conn, error) {
		return cfg.connect("coppice router, registration", func() { signal(w.turned) }, nil, o)
	}
	if err := w.open(cfg.Retry, connect, w.pumpInto(cfg.hereSubject("*"), cfg.QueueMessages, cfg.QueueBytes, &w.sub, w.heard)); err != nil {
		return nil, err
	}
	w.of = w.nc()
	w.wait.Go(w.run)
	return w, nil
}

// Changes returns the channel of changes, which begins with all registered workers. Close closes
// it.
func (w *Watcher) Changes() <-chan Change { return w.changes }

// Metrics returns the counters. It may be called at any time.
func (w *Watcher) Metrics() WatcherMetrics {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.metrics
}

// Close ends the watcher and waits for its goroutines.
func (w *Watcher) Close() error { return w.end(func() {}) }

// run is the goroutine of the watcher. It offers a change to the reader until the reader has
// taken it or it is no longer true.
func (w *Watcher) run() {
	defer close(w.changes)
	w.ask()
	timer := time.NewTimer(w.cfg.Grace)
	defer timer.Stop()
	for {
		var out chan<- Change
		change, ok := w.names.next()
		if ok {
			out = w.changes
		}
		w.share()
		select {
		case m := <-w.heard:
			w.receive(m)
		case out <- change:
			w.names.delivered(change)
		case <-w.turned:
			w.connected()
			w.ask()
		case <-timer.C:
			timer.Reset(w.expire())
		case f := <-w.cfg.meanwhile:
			f(&w.names)
			timer.Reset(w.expire())
		case <-w.ctx.Done():
			return
		}
	}
}

// receive applies one announcement. The worker's name is the last token of the subject.
func (w *Watcher) receive(m *nats.Msg) {
	epoch := uint64(0)
	if text := m.Header.Get(headEpoch); text != "" {
		var err error
		if epoch, err = strconv.ParseUint(text, 10, 64); err != nil {
			w.names.metrics.Malformed++
			return
		}
	}
	w.names.receive(time.Now(), strings.TrimPrefix(m.Subject, w.cfg.hereSubject("")), epoch, m.Data)
}

// expire finds processes that are gone, and asks silent ones. It returns the time until the next
// call.
func (w *Watcher) expire() time.Duration {
	if !w.connected() {
		return w.cfg.Grace
	}
	due, ask := w.names.expire(time.Now())
	if ask {
		// Announcements may have been lost in a server that hangs, or while this process was
		// stopped. So count silence only after the server has answered a flush.
		ctx, cancel := context.WithTimeout(w.ctx, w.cfg.Grace)
		defer cancel()
		if !w.ask() || w.nc().FlushWithContext(ctx) != nil || !w.connected() {
			w.names.renew(time.Now())
			return w.cfg.Grace
		}
		w.names.noteAsked(time.Now())
		due = time.Now().Add(w.cfg.Grace / 4)
	}
	return max(0, time.Until(due))
}

// connected reports whether a server is connected. If there is none, or if there was an outage
// since the last call, it renews all deadlines. The order of the two reads matters: if the
// connection is up and the number of reconnects unchanged, it was up all the time.
func (w *Watcher) connected() bool {
	nc := w.nc()
	up, reconnects := nc.IsConnected(), nc.Stats().Reconnects
	if !up || nc != w.of || reconnects != w.reconnects {
		w.names.renew(time.Now())
	}
	w.of, w.reconnects = nc, reconnects
	return up
}

// ask asks every worker for an announcement. It returns false if no server is connected.
func (w *Watcher) ask() bool {
	return w.nc().IsConnected() && w.nc().Publish(w.cfg.whoSubject(), nil) == nil
}

// share copies the registry's counters for Metrics.
func (w *Watcher) share() {
	m := &w.names.metrics
	m.Names = len(w.names.names)
	if n, err := w.sub.Load().Dropped(); err == nil {
		m.Dropped = uint64(n)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.metrics = *m
}
