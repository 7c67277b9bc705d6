package nats

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/coppice-llm/coppice/internal/bounds"
)

// MaxName is the longest name of a worker that a Watcher believes.
const MaxName = 128

// validName tells whether a worker may be called so: one token of a subject, in
// printable ASCII.
func validName(name string) bool {
	return name != "" && len(name) <= MaxName &&
		!strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(".*>/\\", r) })
}

// WatcherConfig says where workers register and what is believed. The zero value works.
type WatcherConfig struct {
	Config // URL, Prefix, Retry and Options count

	// Grace is how long a worker may be silent; then it is asked, and gone if it does
	// not answer within a quarter of Grace. 5 s. It begins anew after each outage.
	Grace      time.Duration `default:"5s" above:"0s"`
	MaxNames   int           `default:"4096" min:"1"`   // 4096; further ones are passed over
	MaxPayload int           `default:"64<<10" min:"1"` // MaxPayload; longer ones are passed over

	// What may wait to be read: as many announcements, and bytes of them.
	QueueMessages int `default:"8192" min:"1"`   // 8192
	QueueBytes    int `default:"64<<20" min:"1"` // 64 MiB

	meanwhile chan func(*registry) // tests: what becomes of the names before they are judged
}

func (c WatcherConfig) withDefaults() WatcherConfig {
	c.Worker = "watcher" // it has no name, and needs none
	return bounds.Fill(c)
}

func (c WatcherConfig) validate() error {
	return errors.Join(c.Config.validate(), bounds.Check("nats", c))
}

// Change is what became of a worker's process: there, with what it says of itself, or gone.
type Change struct {
	Process
	Payload []byte // shared, never changed; nil: gone
}

// Gone tells that the worker said goodbye or fell silent.
func (c Change) Gone() bool { return c.Payload == nil }

// Watcher knows which workers there are. A reader that is slow gets the latest of each,
// and nothing of what was between.
type Watcher struct {
	cfg     WatcherConfig
	nc      *nats.Conn
	sub     *nats.Subscription
	ctx     context.Context
	cancel  context.CancelFunc
	wait    sync.WaitGroup
	turned  chan struct{} // of one place: the connection is there anew
	heard   chan *nats.Msg
	changes chan Change
	once    sync.Once

	mu      sync.Mutex
	metrics WatcherMetrics

	// The goroutine's.
	names      registry
	reconnects uint64 // of the connection by which the names' terms run
}

// NewWatcher begins. It does not wait for a server.
func NewWatcher(cfg WatcherConfig) (*Watcher, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	w := &Watcher{cfg: cfg, turned: make(chan struct{}, 1), heard: make(chan *nats.Msg), changes: make(chan Change),
		names: registry{cfg: cfg, names: make(map[Process]*entry)}}
	var err error
	if w.nc, err = cfg.connect("coppice router, registration", func() { signal(w.turned) }, nil); err != nil {
		return nil, err
	}
	if w.sub, err = subscribe(w.nc, cfg.hereAt("*"), cfg.QueueMessages, cfg.QueueBytes); err != nil {
		w.nc.Close()
		return nil, err
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.wait.Go(func() { pump(w.ctx, w.sub, w.heard) })
	w.wait.Go(w.run)
	return w, nil
}

// Changes yields what is new, first of all who is there. It is closed by Close.
func (w *Watcher) Changes() <-chan Change { return w.changes }

// Metrics may be read at any time.
func (w *Watcher) Metrics() WatcherMetrics {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.metrics
}

// Close ends all.
func (w *Watcher) Close() error {
	w.once.Do(func() {
		w.cancel()
		w.wait.Wait()
		w.nc.Close()
	})
	return nil
}

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
			w.hear(m)
		case out <- change:
			w.names.told(change)
		case <-w.turned:
			w.connected()
			w.ask()
		case <-timer.C:
			timer.Reset(w.judge())
		case f := <-w.cfg.meanwhile:
			f(&w.names)
			timer.Reset(w.judge())
		case <-w.ctx.Done():
			return
		}
	}
}

func (w *Watcher) hear(m *nats.Msg) {
	epoch := uint64(0)
	if text := m.Header.Get(headEpoch); text != "" {
		var err error
		if epoch, err = strconv.ParseUint(text, 10, 64); err != nil {
			w.names.metrics.Malformed++
			return
		}
	}
	w.names.hear(time.Now(), strings.TrimPrefix(m.Subject, w.cfg.hereAt("")), epoch, m.Data)
}

// judge finds out who is gone, and returns how long it has time until the next time.
func (w *Watcher) judge() time.Duration {
	if !w.connected() {
		return w.cfg.Grace
	}
	due, ask := w.names.judge(time.Now())
	if ask {
		// They may have spoken and not have been heard, by a server that hangs or a process
		// that was stopped. So the server has to answer too.
		ctx, cancel := context.WithTimeout(w.ctx, w.cfg.Grace)
		defer cancel()
		if !w.ask() || w.nc.FlushWithContext(ctx) != nil || !w.connected() {
			w.names.pardon(time.Now())
			return w.cfg.Grace
		}
		w.names.doubt(time.Now())
		due = time.Now().Add(w.cfg.Grace / 4)
	}
	return max(0, time.Until(due))
}

// connected tells whether there is a server. After an outage, and for as long as it lasts,
// everybody's term begins anew. The order of the questions counts: who was connected, and
// has not connected again, has been all the time.
func (w *Watcher) connected() bool {
	up, reconnects := w.nc.IsConnected(), w.nc.Stats().Reconnects
	if !up || reconnects != w.reconnects {
		w.names.pardon(time.Now())
	}
	w.reconnects = reconnects
	return up
}

// ask has everybody announced; false if there is nobody to ask.
func (w *Watcher) ask() bool { return w.nc.IsConnected() && w.nc.Publish(w.cfg.whoAt(), nil) == nil }

func (w *Watcher) share() {
	m := &w.names.metrics
	m.Names = len(w.names.names)
	if n, err := w.sub.Dropped(); err == nil {
		m.Dropped = uint64(n)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.metrics = *m
}
