// Package fleet makes a node a worker of a fleet: it publishes the events of the node's cache,
// registers the worker with the routers, and deregisters it at the end. It never answers HTTP,
// which package server does, and never routes. Its functions may be called from any goroutine.
//
//	w, err := fleet.Join(node, fleet.Config{Publish: []string{"zmq://*:5557"}, Models: []string{"llama"}, Addr: listener.Addr()})
//	srv, err := server.New(server.Config{Node: node, Model: "llama", Card: w.Card(), Events: w.Metrics})
//	...
//	w.Leave() // before requests are refused
//	err = w.Close()
package fleet

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/events/bundle"
	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/events/eventurl"
	"github.com/coppice-llm/coppice/events/nats"
	"github.com/coppice-llm/coppice/events/wire"
	"github.com/coppice-llm/coppice/events/zmq"
	"github.com/coppice-llm/coppice/internal/wording"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Config configures a worker. Models is required, and either Addr or URL.
type Config struct {
	// Publish lists the destinations of cache events: zmq://*:5557?replay=5558&topic=T for a
	// pair of ZeroMQ sockets, nats://a:4222,b:4222?prefix=P&creds=FILE&ca=FILE (or tls://) for
	// NATS, where the worker is registered, too. The node must have Scheduler.Events. Default:
	// none; routers then guess the contents of the cache.
	Publish []string
	// ArrayEvents publishes events as arrays, for readers older than vLLM 0.26.
	ArrayEvents bool
	// Addr is the listen address of the worker's HTTP server.
	Addr net.Addr
	// TLS is set if the server at Addr speaks TLS.
	TLS bool
	// URL is the server's address for routers. Default: made of Addr, with this machine's name
	// if Addr has no host.
	URL string
	// Models are the names by which requests may select the model; the first is its own name.
	Models []string
	// Name is the worker's name, unique in the fleet. Default: this machine's name, the port and
	// a random number, so that a restarted worker has another name.
	Name string
	// Pool is the worker's pool, for routers that route by pool. Default: none.
	Pool string
	// Keyed is set if the server requires API keys.
	Keyed bool
	// Controls is how the server treats control tokens in messages; see server.Config.
	Controls chat.ControlMode
	// ToolsPrompt is the server's treatment of tools that the template does not print; see server.Config.
	ToolsPrompt chat.ToolsPrompt
	// Bundle is the bundle that the server offers to routers; see server.Config.
	Bundle *bundle.Bundle
	// Profile gives the duration of the worker's steps. Default: unknown; routers measure.
	Profile *card.Profile
	// Log receives messages when NATS fails or works again. Default: nothing is logged.
	Log *slog.Logger
}

// Validate reports all faults at once, except those that only Join can find. The only files
// that it opens are those named in URLs.
func (c *Config) Validate() error {
	_, err := eventurl.ParseAll(c.Publish)
	errs := []error{err}
	if c.Name != "" {
		errs = append(errs, card.CheckName(c.Name))
	}
	if c.Pool != "" {
		errs = append(errs, card.CheckPool(c.Pool))
	}
	if c.URL != "" {
		errs = append(errs, CheckURL(c.URL))
	} else if c.Addr == nil {
		errs = append(errs, errors.New("fleet: give Addr or URL"))
	}
	if len(c.Models) == 0 {
		errs = append(errs, errors.New("fleet: Models is empty, give the name of the model"))
	}
	return wording.Error(errors.Join(errs...))
}

// CheckURL returns an error unless text is a worker's URL, such as http://host:8080.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery+u.Fragment != "" {
		return fmt.Errorf("fleet: the URL is %.80q, want one like http://host:8080", eventurl.Redact(text))
	}
	return nil
}

// Worker is a node's membership in a fleet.
type Worker struct {
	node    *coppice.Node
	card    card.Card
	pub     *events.Publisher // nil: nothing is published
	senders []*zmq.Sender
	nats    []nats.Config
	log     *slog.Logger
	ended   chan struct{} // closed when the worker has left after the end of the node's events

	mu         sync.Mutex
	announcers []*nats.Announcer
	left       bool
}

// Join publishes the node's cache events and registers the worker. The server at Config.Addr or
// URL should be listening already. The worker may be closed before or after the node. If the
// node is closed first, readers still get the node's last events.
func Join(node *coppice.Node, cfg Config) (*Worker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	w := &Worker{node: node, log: cfg.Log, ended: make(chan struct{})}
	if w.log == nil {
		w.log = slog.New(slog.DiscardHandler)
	}
	if err := w.describe(&cfg); err != nil {
		return nil, wording.Error(err)
	}
	if len(cfg.Publish) == 0 {
		close(w.ended)
		return w, nil
	}
	if err := w.publish(&cfg); err != nil {
		return nil, wording.Error(err)
	}
	go func() {
		defer close(w.ended)
		<-w.pub.Done()
		w.Leave() // the cache is gone
	}()
	if err := w.announce(); err != nil {
		return nil, errors.Join(wording.Error(err), w.Close())
	}
	return w, nil
}

// describe fills in the worker's card. Addresses of events are added by publish.
func (w *Worker) describe(cfg *Config) error {
	name, at, err := cfg.identity()
	if err != nil {
		return err
	}
	info, limits := w.node.Info(), w.node.Limits()
	pool := info.NumPages * info.PageTokens
	w.card = card.Card{
		Name: name, URL: at, Pool: cfg.Pool, Models: cfg.Models, Keyed: cfg.Keyed, PoolTokens: pool, StepTokens: limits.StepTokens, ChunkTokens: limits.ChunkTokens,
		MaxRunning: limits.MaxRunning, MaxModelTokens: min(info.MaxPositions, pool), Epoch: uint64(time.Now().UnixNano()), Profile: cfg.Profile,
	}
	if cfg.Controls != chat.Allow {
		w.card.ControlTokens = cfg.Controls.String()
	}
	w.card.ToolsPrompt = cfg.ToolsPrompt.String()
	if cfg.Bundle != nil {
		w.card.Tokenizer = cfg.Bundle.Digest
	}
	return nil
}

// identity returns the worker's name and URL.
func (c *Config) identity() (name, at string, err error) {
	name, at = c.Name, strings.TrimRight(c.URL, "/")
	if name != "" && at != "" {
		return name, at, nil
	}
	hostname, err := os.Hostname()
	if err != nil && name == "" {
		return "", "", fmt.Errorf("fleet: this machine has no host name, give the worker a name: %w", err)
	}
	address := ""
	if c.Addr != nil {
		address = c.Addr.String()
	} else if u, err := url.Parse(at); err == nil {
		address = u.Host
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil && at == "" {
		return "", "", fmt.Errorf("fleet: Addr: %w", err)
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() && hostname != "" {
		host = hostname
	}
	if name == "" {
		name = card.NameOf(fmt.Sprintf("%s-%s-%06x", hostname, port, rand.Uint32()>>8)) // two hosts may have the same name, and two containers the same port
	}
	if at == "" {
		scheme := "http"
		if c.TLS {
			scheme = "https"
		}
		at = scheme + "://" + net.JoinHostPort(host, port)
	}
	return name, at, nil
}

// publish starts the publisher and its transports, and adds their addresses to the card.
func (w *Worker) publish(cfg *Config) error {
	if !w.node.Limits().Events {
		return errors.New("fleet: the node makes no cache events, set Scheduler.Events")
	}
	targets, err := eventurl.ParseAll(cfg.Publish)
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
		if t.ZMQ != nil {
			s := t.ZMQ.Sender(topic)
			transports, w.senders = append(transports, s), append(w.senders, s)
			if w.card.ZMQ == nil {
				w.card.ZMQ = &card.ZMQ{Topic: topic}
				if t.ZMQ.Topic != "" {
					w.card.ZMQ.Topic = t.ZMQ.Topic
				}
			}
			continue
		}
		at := *t.NATS
		at.Worker = w.card.Name
		w.nats = append(w.nats, at)
		at.Notify = func(err error) { // the registration uses the same servers, so one report is enough
			if err == nil {
				w.log.Info("NATS works again")
				return
			}
			w.log.Warn("NATS has a problem: cache events, and perhaps the registration, are not sent; retrying", "error", err)
		}
		transports = append(transports, nats.NewSender(at))
		if w.card.NATS == nil {
			w.card.NATS = &card.NATS{Prefix: at.Prefix}
		}
	}
	w.card.BlockTokens = w.node.Limits().BlockTokens
	if w.pub, err = events.NewPublisher(events.PublisherConfig{Form: wire.Form{Arrays: cfg.ArrayEvents}, Epoch: w.card.Epoch}, w.node.EventLog(), transports...); err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("%w; zmq://HOST:PORT takes PORT for events and the next one for replays, unless it ends in ?replay=PORT", err)
		}
		return err
	}
	if z := w.card.ZMQ; z != nil {
		z.Port, z.ReplayPort = portOf(w.senders[0].Addr()), portOf(w.senders[0].ReplayAddr())
	}
	return nil
}

// portOf returns the port of a TCP address, 0 for nil or any other address.
func portOf(a net.Addr) int {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.Port
	}
	return 0
}

// announce registers the worker at each NATS destination to which it publishes.
func (w *Worker) announce() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, at := range w.nats {
		if w.left {
			return nil
		}
		here := w.card
		here.NATS = &card.NATS{Prefix: at.Prefix}
		a, err := nats.NewAnnouncer(nats.AnnouncerConfig{Config: at, Payload: here.Append(nil), Epoch: here.Epoch})
		if err != nil {
			return err
		}
		w.announcers = append(w.announcers, a)
	}
	return nil
}

// Card returns the worker's description, for server.Config.Card. The caller must not change it.
func (w *Worker) Card() *card.Card { return &w.card }

// Publishes reports whether cache events are published.
func (w *Worker) Publishes() bool { return w.pub != nil }

// Metrics returns the publisher's figures, for server.Config.Events; zeros if nothing is
// published.
func (w *Worker) Metrics() events.PublisherMetrics {
	if w.pub == nil {
		return events.PublisherMetrics{}
	}
	return w.pub.Metrics()
}

// String lists what is published where, one destination per line.
func (w *Worker) String() string {
	if w.pub == nil {
		return fmt.Sprintf("worker %s at %s", w.card.Name, w.card.URL)
	}
	lines := []string{fmt.Sprintf("worker %s at %s publishes its cache in blocks of %d tokens", w.card.Name, w.card.URL, w.card.BlockTokens)}
	for _, s := range w.senders {
		line := fmt.Sprintf("events at tcp://%s", s.Addr())
		if a := s.ReplayAddr(); a != nil {
			line += fmt.Sprintf(", replays at tcp://%s", a)
			if portOf(a) == portOf(s.Addr())+1 {
				line += " (the next port; ?replay=PORT names another)"
			}
		}
		lines = append(lines, line)
	}
	for _, n := range w.nats {
		lines = append(lines, "events and registration at "+eventurl.RedactAll([]string{n.URL}))
	}
	return strings.Join(lines, "\n")
}

// Leave deregisters the worker, so that routers send it no more requests. Events are still
// published. A second Leave has no effect.
func (w *Worker) Leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left = true
	for _, a := range w.announcers {
		_ = a.Close() // it never fails
	}
	w.announcers = nil
}

// Close deregisters the worker and stops publishing. If the node has ended, it first waits until
// the node's last events were sent.
func (w *Worker) Close() error {
	w.Leave()
	if w.pub == nil {
		return nil
	}
	select {
	case <-w.node.Done():
		<-w.ended
		return w.pub.Close()
	default:
	}
	err := w.pub.Close()
	<-w.ended
	return err
}
