package members

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/events/nats"
	"github.com/coppice-llm/coppice/events/zmq"
	"github.com/coppice-llm/coppice/kv"
)

// Events returns the state of a rank's event stream. The second result is false if the rank's
// events are not followed.
func (f *Fleet) Events(w kv.Rank) (events.Status, bool) { return f.subscribers[0].Status(w) }

// EventCounts returns the event counters of all workers together.
func (f *Fleet) EventCounts() events.Counts { return f.subscribers[0].Counts() }

// Mode returns the source of a worker's index entries: "events", "approximate" if it has no
// events to follow, "outdated" if the events of some rank do not arrive now, but its last index entries
// are kept, or "waiting" if nothing is known of some rank.
func (f *Fleet) Mode(m *Member) string {
	c := m.card()
	if c == nil {
		return "waiting"
	}
	if f.sources(m, c) == nil {
		return "approximate"
	}
	mode := "events"
	for dp := range m.Ranks() {
		switch s, _ := f.Events(m.rank(c, dp)); s.State {
		case events.Live:
		case events.Outdated:
			mode = "outdated"
		default:
			return "waiting"
		}
	}
	return mode
}

// live reports whether the events of a rank are live.
func (f *Fleet) live(w kv.Rank) bool {
	s, ok := f.subscribers[0].Status(w)
	return ok && s.State == events.Live
}

// applyEventsLive tells the router whether the events of rank w arrive now. A lock keeps
// concurrent calls in order.
func (f *Fleet) applyEventsLive(w kv.Rank) {
	f.applying.Lock()
	defer f.applying.Unlock()
	f.cfg.Router.SetEventsLive(w, f.live(w))
}

// sources returns a function that opens the event stream of rank dp of m, whose card is c. It
// returns nil if m has no events to follow.
func (f *Fleet) sources(m *Member, c *card.Card) func(dp uint32) (events.Source, error) {
	switch g := &m.cfg; {
	case f.cfg.Approximate || g.Events == noEvents:
		return nil
	case g.Events != "":
		return func(dp uint32) (events.Source, error) { return f.sockets(dp, g.Events, g.Replay, g.Topic) }
	case len(m.sources()) > 0 && !f.connectsHere(m.sources()[0].endpoint):
		all := m.sources()
		return func(dp uint32) (events.Source, error) {
			if int(dp) >= len(all) {
				return nil, fmt.Errorf("the worker has %d ranks with events", len(all))
			}
			at := &all[dp]
			return zmq.NewSource(zmq.SourceConfig{Endpoint: at.endpoint, ReplayEndpoint: at.replay, Topic: at.topic, Quiet: f.cfg.Quiet}), nil
		}
	case c.ZMQ != nil:
		at := func(port int) string { return "tcp://" + net.JoinHostPort(m.url.Hostname(), strconv.Itoa(port)) }
		replay := ""
		if c.ZMQ.ReplayPort != 0 {
			replay = at(c.ZMQ.ReplayPort)
		}
		return func(dp uint32) (events.Source, error) { return f.sockets(dp, at(c.ZMQ.Port), replay, c.ZMQ.Topic) }
	case c.NATS != nil && f.cfg.NATS != nil:
		at := *f.cfg.NATS
		m.mu.Lock()
		at.Worker = m.description.own
		m.mu.Unlock()
		at.Epoch, at.Notify = c.Epoch, nil // the watcher reports problems once for all sources
		if c.NATS.Prefix != "" {
			at.Prefix = c.NATS.Prefix
		}
		return func(dp uint32) (events.Source, error) {
			at.DP = dp
			return nats.NewSource(at)
		}
	case f.cfg.Bind != nil:
		return f.bound(m)
	}
	return nil
}

// sockets opens the ZMQ events of rank dp. endpoint and replay ("" for none) are those of rank
// 0; rank dp uses the ports that are higher by dp.
func (f *Fleet) sockets(dp uint32, endpoint, replay, topic string) (events.Source, error) {
	cfg := zmq.SourceConfig{Topic: topic, Quiet: f.cfg.Quiet}
	var err error
	if cfg.Endpoint, err = zmq.RankEndpoint(endpoint, dp); err != nil {
		return nil, err
	}
	if replay != "" {
		if cfg.ReplayEndpoint, err = zmq.RankEndpoint(replay, dp); err != nil {
			return nil, err
		}
	}
	return zmq.NewSource(cfg), nil
}

// startFollowing starts to follow the events of a worker that has answered.
func (k *keeper) startFollowing() error {
	if k.follows || len(k.ranks) == 0 {
		return nil
	}
	f, c := k.f, k.m.card()
	open := f.sources(k.m, c)
	k.follows, k.since = true, time.Now()
	if open == nil {
		f.log.Info("worker sends no cache events: its cache is guessed", k.m.Field())
		return nil
	}
	if !f.Tokenizer().Exact() && c.Tokenizer == "" {
		k.warn("prompts are compared by their bytes, so events help only for prompts of token ids", errors.New("give the gateway the model's directory"))
	}
	var errs []error
	// vLLM and SGLang may give a single rank a number other than 0: accept any.
	how := events.Follow{AnyRank: len(k.ranks) == 1}
	if c.ZMQ != nil || c.NATS != nil {
		how.Silence = f.cfg.Silence // its publisher sends heartbeats
	}
	if k.m.cfg.Events == "" && c.ZMQ == nil && c.NATS != nil {
		how.Outlast = f.cfg.Outlast // an outage of NATS is none of the worker
	}
	for _, w := range k.ranks {
		src, err := open(w.DP)
		if err == nil {
			err = f.subscribers[0].Add(w, src, how)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("rank %d: %w", w.DP, err))
		}
		errs = append(errs, k.followFurther(w))
	}
	return errors.Join(errs...)
}

// eventPatience is how long events may take to arrive before a warning is logged.
const eventPatience = 10 * time.Second

// watch applies for each rank whether events arrive, and warns if they do not.
func (k *keeper) watch(now time.Time) {
	f := k.f
	if !k.follows || f.sources(k.m, k.m.card()) == nil {
		return
	}
	for _, w := range k.ranks {
		f.applyEventsLive(w)
		s, _ := f.subscribers[0].Status(w)
		if s.Successor > k.successor {
			k.successor, k.probes = s.Successor, -1 // read the card again: another process may have the name now
			k.m.Nudge()
		}
		if s.Elsewhere {
			k.warn("the worker's events have another topic: nothing is known of its cache", fmt.Errorf("rank %d: a message arrived with topic %q; is the configured topic right?", w.DP, s.Topic))
		} else if s.State != events.Live && s.State != events.Outdated && now.Sub(k.since) > eventPatience {
			k.warn("no events arrive from the worker: its cache is guessed", fmt.Errorf("rank %d is %v; are its ports reachable from here?", w.DP, s.State))
		} else if s.Counts.UnknownWorker > 0 && s.Counts.Batches == 0 {
			k.warn("the worker's events are all of another rank: nothing is known of its cache", fmt.Errorf("%d messages arrived, none of rank %d", s.Counts.UnknownWorker, w.DP))
		}
	}
}

// unfollow stops following the worker's events and removes its blocks from the index.
func (k *keeper) unfollow() {
	if !k.follows {
		return
	}
	k.follows = false
	for _, w := range k.ranks {
		for _, s := range k.f.subscribers {
			s.Remove(w)
		}
	}
}

// faultLasts is how long a worker with faulty events is refused before they are checked again.
const faultLasts = time.Minute

// checkEvents returns a refusal of a worker whose events can't be indexed because their block
// size differs: none of its blocks would ever be found. The refusal lasts for faultLasts after
// the last faulty event was seen.
func (k *keeper) checkEvents(now time.Time) error {
	var err error
	for _, w := range k.ranks {
		if s, ok := k.f.subscribers[0].Status(w); k.follows && err == nil && ok && s.State == events.Faulty {
			err = refuse("events of worker %s, rank %d, can't be indexed: %v", k.m.url, w.DP, s.Err)
		}
	}
	if err != nil {
		k.fault, k.until = err, now.Add(faultLasts)
	} else if now.After(k.until) {
		k.fault = nil
	}
	return k.fault
}

// eventsChanged is called by the subscriber when the events of rank w change to state to, for
// the reason err. It must not block.
func (f *Fleet) eventsChanged(w kv.Rank, to events.State, err error) {
	m := f.Summary().ByID[w.Worker]
	if m == nil {
		return
	}
	f.applyEventsLive(w)
	fields := []zap.Field{m.Field(), zap.Uint32("rank", w.DP), zap.Stringer("state", to)}
	switch to {
	case events.Live:
		f.log.Info("worker's events", fields...)
	case events.Faulty:
		m.Nudge()
	default:
		f.log.Warn("worker's events", append(fields, zap.Error(err))...)
	}
}

// Sockets are the ports at which the host of each worker publishes the ZMQ events of a further
// cache.
type Sockets struct {
	Port       int    // of the first rank; each further rank uses the next port
	ReplayPort int    // 0: no replays
	Topic      string // "": any
}

// subscribe makes the subscribers: one for the workers' own events, and one for each element of
// Config.Consolidate.
func (f *Fleet) subscribe() error {
	sinks := []events.Sink{f.cfg.Sink}
	if n := len(f.cfg.Consolidate); n > 0 {
		sinks = events.Consolidate(f.cfg.Sink, 1+n)
	}
	for i, sink := range sinks {
		cfg := events.SubscriberConfig{BlockTokens: f.cfg.BlockTokens, OnChange: f.eventsChanged}
		if i > 0 {
			port := f.cfg.Consolidate[i-1].Port
			cfg.OnChange = func(r kv.Rank, to events.State, err error) {
				f.log.Info("events of a worker's additional cache", zap.Uint64("worker", uint64(r.Worker)), zap.Uint32("rank", r.DP), zap.Int("port", port), zap.Stringer("state", to), zap.Error(err))
			}
		}
		s, err := events.NewSubscriber(cfg, sink)
		if err != nil {
			return err
		}
		f.subscribers = append(f.subscribers, s)
	}
	return nil
}

// followFurther follows the events of rank w from each element of Config.Consolidate. The error
// joins those of all elements.
func (k *keeper) followFurther(w kv.Rank) error {
	var errs []error
	for i, s := range k.f.cfg.Consolidate {
		at := func(port int) string { return "tcp://" + net.JoinHostPort(k.m.url.Hostname(), strconv.Itoa(port)) }
		replay := ""
		if s.ReplayPort > 0 {
			replay = at(s.ReplayPort)
		}
		src, err := k.f.sockets(w.DP, at(s.Port), replay, s.Topic)
		if err == nil {
			err = k.f.subscribers[1+i].Add(w, src, events.Follow{AnyRank: true})
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("rank %d, port %d: %w", w.DP, s.Port, err))
		}
	}
	return errors.Join(errs...)
}
