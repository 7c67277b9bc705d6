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

// Events is how the events of a rank are followed; false: they are not.
func (f *Fleet) Events(w kv.Rank) (events.Status, bool) { return f.subscriber.Status(w) }

// EventCounts are of the events of all workers.
func (f *Fleet) EventCounts() events.Counts { return f.subscriber.Counts() }

// Mode is how it is known what a worker holds: "events", "approximate", or "waiting" for its
// events.
func (f *Fleet) Mode(m *Member) string {
	c := m.card()
	if c == nil {
		return "waiting"
	}
	if f.sources(m, c) == nil {
		return "approximate"
	}
	for dp := range m.Ranks() {
		if !f.heard(m.rank(c, dp)) {
			return "waiting"
		}
	}
	return "events"
}

func (f *Fleet) heard(w kv.Rank) bool {
	s, ok := f.subscriber.Status(w)
	return ok && s.State == events.Live
}

// tellHeard tells whether the events of a rank are heard now. Of two callers the later one
// brings the later news.
func (f *Fleet) tellHeard(w kv.Rank) {
	f.hearing.Lock()
	defer f.hearing.Unlock()
	f.cfg.Apply(Heard{w, f.heard(w)})
}

// sources opens the events of a rank; nil: there are none that can be followed.
func (f *Fleet) sources(m *Member, c *card.Card) func(dp uint32) (events.Source, error) {
	switch g := &m.given; {
	case f.cfg.Approximate || g.Events == noEvents:
		return nil
	case g.Events != "":
		return func(dp uint32) (events.Source, error) { return f.sockets(dp, g.Events, g.Replay, g.Topic) }
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
		at.Worker = m.said.own
		m.mu.Unlock()
		at.Epoch, at.Notify = c.Epoch, nil // the watcher tells once for all
		if c.NATS.Prefix != "" {
			at.Prefix = c.NATS.Prefix
		}
		return func(dp uint32) (events.Source, error) {
			at.DP = dp
			return nats.NewSource(at)
		}
	}
	return nil
}

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

// attend begins to follow the events of a worker that answers.
func (k *keeper) attend() error {
	if k.follows || len(k.ranks) == 0 {
		return nil
	}
	f, c := k.f, k.m.card()
	open := f.sources(k.m, c)
	k.follows, k.since = true, time.Now()
	if open == nil {
		f.log.Info("worker tells nothing of its cache: routed to by guesses", k.m.Field())
		return nil
	}
	if !f.Tokenizer().Exact() && c.Tokenizer == "" {
		k.warn("prompts are compared by their bytes, so events are of use for token ids alone", errors.New("give the gateway the model's directory"))
	}
	var errs []error
	how := events.Follow{AnyRank: len(k.ranks) == 1} // vLLM's and SGLang's tell theirs, also where each is a server of its own
	if c.ZMQ != nil || c.NATS != nil {
		how.Silence = f.cfg.Silence // its publisher has a heartbeat
	}
	for _, w := range k.ranks {
		src, err := open(w.DP)
		if err == nil {
			err = f.subscriber.Add(w, src, how)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("rank %d: %w", w.DP, err))
		}
		errs = append(errs, k.attendFurther(w))
	}
	return errors.Join(errs...)
}

// eventPatience is how long events may take to come before it is logged.
const eventPatience = 10 * time.Second

// watch tells whether events come, and warns if they do not.
func (k *keeper) watch(now time.Time) {
	f := k.f
	if !k.follows || f.sources(k.m, k.m.card()) == nil {
		return
	}
	for _, w := range k.ranks {
		f.tellHeard(w)
		s, _ := f.subscriber.Status(w)
		if s.Successor > k.successor {
			k.successor, k.probes = s.Successor, -1 // its card may be another one by now
			k.m.Nudge()
		}
		if s.Elsewhere {
			k.warn("nothing comes of the worker's topic, but of another: nothing is known of its cache", fmt.Errorf("rank %d: a message has come under %q; is the topic that was given its own?", w.DP, s.Topic))
		} else if s.State != events.Live && now.Sub(k.since) > eventPatience {
			k.warn("worker's events do not come: routed to by guesses", fmt.Errorf("rank %d is %v; are its ports reached from here?", w.DP, s.State))
		} else if s.Counts.UnknownWorker > 0 && s.Counts.Batches == 0 {
			k.warn("worker's events are all of another rank: nothing is known of its cache", fmt.Errorf("%d messages came where those of rank %d are looked for", s.Counts.UnknownWorker, w.DP))
		}
	}
}

// unfollow ends that, and forgets what the events told.
func (k *keeper) unfollow() {
	if !k.follows {
		return
	}
	k.follows = false
	for _, w := range k.ranks {
		k.f.subscriber.Remove(w)
		for _, s := range k.f.further {
			s.Remove(w)
		}
	}
}

// faultLasts is how long a worker whose events are at fault is refused before they are looked at
// again.
const faultLasts = time.Minute

// checkEvents refuses a worker whose events can't be indexed, as their blocks have another size:
// nothing that it holds would ever be found.
func (k *keeper) checkEvents(now time.Time) error {
	var err error
	for _, w := range k.ranks {
		if s, ok := k.f.subscriber.Status(w); k.follows && err == nil && ok && s.State == events.Faulty {
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

// eventsChanged is told by the subscriber how the events of a rank are. It must not block.
func (f *Fleet) eventsChanged(w kv.Rank, to events.State, err error) {
	m := f.Snapshot().ByID[w.Worker]
	if m == nil {
		return
	}
	f.tellHeard(w)
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
