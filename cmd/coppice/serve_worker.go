package main

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/events/nats"
	"github.com/coppice-llm/coppice/events/wire"
	"github.com/coppice-llm/coppice/events/zmq"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// worker is what this process is to a fleet. Its owner closes it behind the node, whose
// events end then; it waits for its goroutine.
type worker struct {
	card    card.Card
	pub     *events.Publisher // nil: it publishes nothing
	senders []*zmq.Sender
	nats    []nats.Config
	log     *zap.Logger
	done    chan struct{} // closed when all of the node's events are sent

	mu         sync.Mutex
	announcers []*nats.Announcer
	left       bool
}

// startWorker says who the server that listens there is, and publishes the node's events if
// --publish is given.
func (c *serveCmd) startWorker(s *served, at net.Addr, keyed bool, log *zap.Logger) (*worker, error) {
	name, reached, err := c.identity(at, c.TLSCert != "")
	if err != nil {
		return nil, err
	}
	info, limits := s.node.Info(), s.node.Limits()
	pool := info.NumPages * info.PageTokens
	w := &worker{log: log, done: make(chan struct{}), card: card.Card{
		Name: name, URL: reached, Pool: c.Pool, Models: s.names, Keyed: keyed, PoolTokens: pool, StepTokens: limits.StepTokens, ChunkTokens: limits.ChunkTokens,
		MaxRunning: limits.MaxRunning, MaxModelTokens: min(info.MaxPositions, pool), Epoch: uint64(time.Now().UnixNano()), Profile: s.profile,
	}}
	if c.ControlTokens != chat.Allow {
		w.card.ControlTokens = c.ControlTokens.String()
	}
	if s.bundle != nil {
		w.card.Tokenizer = s.bundle.Digest
	}
	if len(c.Publish) == 0 {
		close(w.done)
		return w, nil
	}
	if err := w.publish(&c.fleetFlags, s.node.EventLog()); err != nil {
		return nil, err
	}
	go w.follow()
	return w, nil
}

// publish starts the publisher and its transports, and puts them on the card.
func (w *worker) publish(f *fleetFlags, log *events.Log) error {
	targets, err := f.targets()
	if err != nil {
		return err
	}
	topic := w.card.URL
	if u, err := url.Parse(topic); err == nil {
		topic = u.Host
	}
	topic = "kv@" + topic + "@" + w.card.Models[0]
	var transports []events.Transport
	for _, t := range targets {
		if t.zmq != nil {
			s := t.zmq.sender(topic)
			transports, w.senders = append(transports, s), append(w.senders, s)
			if w.card.ZMQ == nil {
				w.card.ZMQ = &card.ZMQ{Topic: topic}
				if t.zmq.topic != "" {
					w.card.ZMQ.Topic = t.zmq.topic
				}
			}
			continue
		}
		cfg := t.nats.config(w.card.Name)
		w.nats = append(w.nats, cfg)
		cfg.Notify = func(err error) { // not the registration's, too: it is the same server
			if err == nil {
				w.log.Info("NATS answers again")
				return
			}
			w.log.Warn("cache events can't go to NATS, and maybe the registration; trying on", zap.Error(err))
		}
		transports = append(transports, nats.NewSender(cfg))
		if w.card.NATS == nil {
			w.card.NATS = &card.NATS{Prefix: cfg.Prefix}
		}
	}
	w.card.BlockTokens = f.BlockTokens
	w.pub, err = events.NewPublisher(events.PublisherConfig{Form: wire.Form{Arrays: f.ArrayEvents}, Epoch: w.card.Epoch}, log, transports...)
	if err != nil {
		return fmt.Errorf("--publish: %w", err)
	}
	if z := w.card.ZMQ; z != nil {
		z.Port = portOf(w.senders[0].Addr())
		z.ReplayPort = portOf(w.senders[0].ReplayAddr())
	}
	return nil
}

// portOf is 0 for nil.
func portOf(a net.Addr) int {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.Port
	}
	return 0
}

// follow says goodbye when the node's events have ended: the cache is gone.
func (w *worker) follow() {
	defer close(w.done)
	<-w.pub.Done()
	w.leave()
}

// announce has the worker registered where it publishes to NATS.
func (w *worker) announce() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left {
		return nil
	}
	for _, cfg := range w.nats {
		here := w.card
		here.NATS = &card.NATS{Prefix: cfg.Prefix}
		a, err := nats.NewAnnouncer(nats.AnnouncerConfig{Config: cfg, Payload: here.Append(nil), Epoch: here.Epoch})
		if err != nil {
			return fmt.Errorf("--publish: %w", err)
		}
		w.announcers = append(w.announcers, a)
	}
	return nil
}

// leave says goodbye: no more requests, please. What is cached is published on.
func (w *worker) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left = true
	for _, a := range w.announcers {
		_ = a.Close() // it never fails
	}
	w.announcers = nil
}

// close ends all, behind the node.
func (w *worker) close() error {
	w.leave()
	<-w.done
	if w.pub == nil {
		return nil
	}
	return w.pub.Close()
}

// metrics is nil if nothing is published.
func (w *worker) metrics() func() events.PublisherMetrics {
	if w.pub == nil {
		return nil
	}
	return w.pub.Metrics
}

// greet says what is published, and where.
func (w *worker) greet(to io.Writer) {
	if w.pub == nil {
		return
	}
	fmt.Fprintf(to, "coppice: worker %s at %s publishes its cache in blocks of %d tokens\n", w.card.Name, w.card.URL, w.card.BlockTokens)
	for _, s := range w.senders {
		replay := ""
		if a := s.ReplayAddr(); a != nil {
			replay = fmt.Sprintf(", replays at %d", portOf(a))
		}
		fmt.Fprintf(to, "coppice: events at tcp://%s%s\n", s.Addr(), replay)
	}
	for _, n := range w.nats {
		fmt.Fprintf(to, "coppice: events and registration at %s\n", redactURLs([]string{n.URL}))
	}
	if u, err := url.Parse(w.card.URL); err == nil && net.ParseIP(u.Hostname()).IsLoopback() {
		fmt.Fprintln(to, "coppice: routers on other machines can't reach this: see --addr and --advertise")
	}
}

// profileOf are the coefficients of a device's steps, by differences of simulated steps;
// nil for one that costs nothing.
func profileOf(device *sim.Profile) *card.Profile {
	if *device == (sim.Profile{}) {
		return nil
	}
	step := func(rows ...engine.Row) float64 { return device.Step(&engine.Batch{Rows: rows}, 0).Seconds() }
	prompt := func(n int) float64 { return step(engine.Row{Tokens: make([]kv.Token, n)}) }
	decodes := func(n, context int) float64 {
		rows := make([]engine.Row, n)
		for i := range rows {
			rows[i] = engine.Row{Tokens: make([]kv.Token, 1), Start: int32(context), Sample: true}
		}
		return step(rows...)
	}
	// A prompt of n tokens takes t0 + token·n + pair·n(n+1)/2: three of them tell the pair and
	// the token. They are long, so that the device multiplies rather than reads weights.
	const n, context = 4096, 100_000
	a, b, c := prompt(n), prompt(2*n), prompt(4*n)
	pairs := func(n float64) float64 { return n * (n + 1) / 2 }
	p := card.Profile{Step: decodes(1, 1), KV: (decodes(1, 1+context) - decodes(1, 1)) / context}
	p.Pair = max(0, ((c-b)-2*(b-a))/((pairs(4*n)-pairs(2*n))-2*(pairs(2*n)-pairs(n))))
	p.Token = max(0, (b-a-p.Pair*(pairs(2*n)-pairs(n)))/n)
	// So many rows decode together that a device which computes longer than it reads shows it.
	const rows = 64
	p.Row = max(0, (decodes(1+rows, 1)-decodes(1, 1))/rows-2*p.KV)
	return &p
}
