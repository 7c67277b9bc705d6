package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/coppice-llm/coppice/internal/bounds"
)

// Workers register by announcements on core NATS: what a worker says of itself goes to
// <prefix>-here.<worker> again and again, and at once when somebody asks at <prefix>-who.
// An empty one is a goodbye. Nothing of it is stored.

func (c Config) hereAt(worker string) string { return c.Prefix + "-here." + worker }
func (c Config) whoAt() string               { return c.Prefix + "-who" }

// MaxPayload bounds an announcement.
const MaxPayload = 64 << 10

// AnnouncerConfig says what is announced, and where. The zero value works, but for
// Worker and Payload.
type AnnouncerConfig struct {
	Config         // URL, Worker, Prefix, Retry and Options count
	Payload []byte // 1 to MaxPayload bytes; shared, never changed

	// Epoch tells this process from its predecessors of the same name, so that a late
	// goodbye of theirs does no harm: higher is later. 0 = the time of its start.
	Epoch    uint64
	Interval time.Duration `default:"1s" min:"1ms"` // 1 s, between announcements
}

func (c AnnouncerConfig) withDefaults() AnnouncerConfig {
	c.Epoch = cmp.Or(c.Epoch, uint64(time.Now().UnixNano()))
	return bounds.Fill(c)
}

func (c AnnouncerConfig) validate() error {
	errs := []error{c.Config.validate(), bounds.Check("nats", c)}
	if n := len(c.Payload); n == 0 || n > MaxPayload {
		errs = append(errs, fmt.Errorf("nats: Payload has %d bytes, want 1 to %d", n, MaxPayload))
	}
	return errors.Join(errs...)
}

// Announcer says that a worker is there until it is closed. What it says is bytes to it.
type Announcer struct {
	cfg    AnnouncerConfig
	nc     *nats.Conn
	ctx    context.Context
	cancel context.CancelFunc
	wait   sync.WaitGroup
	up     chan struct{} // of one place: there is a connection, maybe a new one
	asked  chan *nats.Msg
	once   sync.Once
}

// NewAnnouncer begins. It does not wait for a server.
func NewAnnouncer(cfg AnnouncerConfig) (*Announcer, error) {
	a := &Announcer{cfg: cfg.withDefaults(), up: make(chan struct{}, 1), asked: make(chan *nats.Msg, 16)}
	if err := a.cfg.validate(); err != nil {
		return nil, err
	}
	var err error
	if a.nc, err = a.cfg.connect("coppice worker "+a.cfg.Worker+", registration", func() { signal(a.up) }, nil); err != nil {
		return nil, err
	}
	// A channel that is full drops questions: one answer serves all who ask.
	if _, err := a.nc.ChanSubscribe(a.cfg.whoAt(), a.asked); err != nil {
		a.nc.Close()
		return nil, fmt.Errorf("nats: %w", err)
	}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	a.wait.Go(a.run)
	return a, nil
}

// answerGap is between two answers, so that who asks all the time does not have everybody
// tell everybody all the time.
const answerGap = 10 * time.Millisecond

// run announces every Interval, and when it is asked.
func (a *Announcer) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var last time.Time
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-timer.C:
			if a.nc.IsConnected() { // else it would be kept, to be sent when it is old
				_ = a.say(a.cfg.Payload) // the next one is due soon
			}
			last = time.Now()
			timer.Reset(a.cfg.Interval)
		case <-a.up:
			timer.Reset(0)
		case <-a.asked:
			timer.Reset(max(0, answerGap-time.Since(last)))
		}
	}
}

func (a *Announcer) say(payload []byte) error {
	return a.nc.PublishMsg(&nats.Msg{Subject: a.cfg.hereAt(a.cfg.Worker), Header: header(a.cfg.Epoch, 0), Data: payload})
}

// Close says goodbye, if there is a server, and ends. It may be called again.
func (a *Announcer) Close() error {
	a.once.Do(func() {
		a.cancel()
		a.wait.Wait()
		if a.nc.IsConnected() && a.say(nil) == nil {
			_ = a.nc.FlushTimeout(flushTimeout) // silence will tell them
		}
		a.nc.Close()
	})
	return nil
}
