package nats

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/coppice-llm/coppice/internal/bounds"
)

// Workers register by announcements on core NATS: a worker publishes its description to
// <prefix>-here.<worker> periodically, and at once when a watcher publishes to whoSubject. An
// empty announcement is a goodbye. The server stores nothing.

func (c Config) hereSubject(worker string) string { return c.Prefix + "-here." + worker }
func (c Config) whoSubject() string               { return c.Prefix + "-who" }

// MaxPayload bounds an announcement, in bytes.
const MaxPayload = 64 << 10

// AnnouncerConfig configures an announcement and its subject. Worker and Payload are required.
type AnnouncerConfig struct {
	Config         // only URL, Worker, Prefix, Retry and Options are used
	Payload []byte // 1 to MaxPayload bytes; shared, never changed

	// Epoch distinguishes this process from its predecessors of the same name: a later one has a
	// higher epoch. So a predecessor's late goodbye has no effect. Default: the time of the
	// start.
	Epoch    uint64
	Interval time.Duration `default:"1s" min:"1ms"` // between announcements; default 1 s
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

// Announcer announces a worker until it is closed. It does not look into the payload.
type Announcer struct {
	cfg AnnouncerConfig
	client
	up    chan struct{} // capacity 1: signals each new connection
	asked chan *nats.Msg
}

// NewAnnouncer starts announcing. It does not wait for a server. The error is about the
// configuration.
func NewAnnouncer(cfg AnnouncerConfig) (*Announcer, error) {
	a := &Announcer{cfg: cfg.withDefaults(), up: make(chan struct{}, 1), asked: make(chan *nats.Msg, 16)}
	if err := a.cfg.validate(); err != nil {
		return nil, err
	}
	a.begin()
	connect := func(o nats.Option) (*nats.Conn, error) {
		return a.cfg.connect("coppice worker "+a.cfg.Worker+", registration", func() { signal(a.up) }, nil, o)
	}
	// A full channel drops questions: one announcement answers them all.
	if err := a.open(a.cfg.Retry, connect, into(a.cfg.whoSubject(), a.asked)); err != nil {
		return nil, err
	}
	a.wait.Go(a.run)
	return a, nil
}

// answerGap is the least time between two answers, so that a watcher that asks continuously does
// not make every worker publish continuously.
const answerGap = 10 * time.Millisecond

// run announces every Interval, and when asked.
func (a *Announcer) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var last time.Time
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-timer.C:
			if a.nc().IsConnected() { // otherwise the client would keep it and send it when it is outdated
				_ = a.publish(a.cfg.Payload) // on an error: the next one is due soon
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

func (a *Announcer) publish(payload []byte) error {
	return a.nc().PublishMsg(&nats.Msg{Subject: a.cfg.hereSubject(a.cfg.Worker), Header: header(a.cfg.Epoch, 0), Data: payload})
}

// Close says goodbye, if a server is connected, and ends. It may be called again.
func (a *Announcer) Close() error {
	return a.end(func() { _ = a.publish(nil) })
}
