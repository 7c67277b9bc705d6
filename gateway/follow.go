package gateway

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
	"github.com/coppice-llm/coppice/gateway/residency"
	"github.com/coppice-llm/coppice/kv"
)

// beliefs takes what events tell: into the index, and what is gone to the chooser, whose
// predictions of it end.
type beliefs struct {
	*residency.Residency
	chooser *chooser
}

// Remove implements [events.Sink].
func (b *beliefs) Remove(r kv.Rank, tier kv.Tier, hashes []kv.BlockHash) {
	b.Residency.Remove(r, tier, hashes)
	b.chooser.removed(r, hashes)
}

// Clear implements [events.Sink].
func (b *beliefs) Clear(r kv.Rank) {
	b.Residency.Clear(r)
	b.chooser.cleared(r)
}

// sources says where the events of each rank are; blind if there are none that can be
// followed.
func (m *member) sources(c *card.Card) (open func(rank uint32) (events.Source, error), blind bool) {
	switch {
	case m.g.cfg.Approximate || m.given.Events == noEvents:
		return nil, true
	case m.given.Events != "":
		return func(rank uint32) (events.Source, error) {
			return m.sockets(rank, m.given.Events, m.given.Replay, m.given.Topic)
		}, false
	case c.ZMQ != nil:
		return func(rank uint32) (events.Source, error) {
			replay := ""
			if c.ZMQ.ReplayPort != 0 {
				replay = m.endpoint(c.ZMQ.ReplayPort)
			}
			return m.sockets(rank, m.endpoint(c.ZMQ.Port), replay, c.ZMQ.Topic)
		}, false
	case c.NATS != nil && m.g.cfg.NATS != nil:
		return func(rank uint32) (events.Source, error) {
			at := *m.g.cfg.NATS
			at.Worker, at.DP, at.Notify = m.published, rank, nil // the watcher tells once for all
			at.Epoch = c.Epoch
			if c.NATS.Prefix != "" {
				at.Prefix = c.NATS.Prefix
			}
			if c.NATS.Stream != "" {
				at.Stream = c.NATS.Stream
			}
			return nats.NewSource(at)
		}, false
	}
	return nil, true
}

// endpoint is a port of the worker's host.
func (m *member) endpoint(port int) string {
	return "tcp://" + net.JoinHostPort(m.url.Hostname(), strconv.Itoa(port))
}

func (m *member) sockets(rank uint32, endpoint, replay, topic string) (events.Source, error) {
	cfg := zmq.SourceConfig{Topic: topic, Quiet: m.g.cfg.quiet}
	var err error
	if cfg.Endpoint, err = zmq.RankEndpoint(endpoint, rank); err != nil {
		return nil, err
	}
	if replay != "" {
		if cfg.ReplayEndpoint, err = zmq.RankEndpoint(replay, rank); err != nil {
			return nil, err
		}
	}
	return zmq.NewSource(cfg), nil
}

// attend follows the events of a worker that answers.
func (m *member) attend() error {
	if m.follow || len(m.ranks) == 0 {
		return nil
	}
	m.mu.Lock()
	c := m.card
	m.mu.Unlock()
	open, blind := m.sources(c)
	m.follow, m.since = true, time.Now()
	if blind {
		m.g.log.Info("worker tells nothing of its cache: routed to by guesses", m.field())
		return nil
	}
	if !m.g.words.Load().exact && c.Tokenizer == "" {
		m.warn("prompts are compared by their bytes, so events are of use for token ids alone", errors.New("give the gateway the model's directory"))
	}
	var errs []error
	how := events.Follow{AnyRank: len(m.ranks) == 1} // vLLM's and SGLang's tell theirs, also where each is a server of its own
	if c.ZMQ != nil || c.NATS != nil {
		how.Silence = m.g.cfg.EventSilence // its publisher has a heartbeat
	}
	for _, w := range m.ranks {
		src, err := open(w.DP)
		if err == nil {
			err = m.g.subscriber.Add(w, src, how)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("rank %d: %w", w.DP, err))
		}
	}
	return errors.Join(errs...)
}

// eventPatience is how long events may take to come before somebody is told.
const eventPatience = 10 * time.Second

// watch has a worker routed to by guesses for as long as its events do not come.
func (m *member) watch(now time.Time) {
	m.mu.Lock()
	c := m.card
	m.mu.Unlock()
	if _, blind := m.sources(c); blind || !m.follow {
		return
	}
	for _, w := range m.ranks {
		m.g.sight(w)
		s, _ := m.g.subscriber.Status(w)
		if s.Successor > m.succeeded {
			m.succeeded, m.probes = s.Successor, -1 // its card may be another one by now
			m.nudge()
		}
		if s.Elsewhere {
			m.warn("nothing comes of the worker's topic, but of another: nothing is known of its cache", fmt.Errorf("rank %d: a message has come under %q; is the topic that was given its own?", w.DP, s.Topic))
		} else if s.State != events.Live && now.Sub(m.since) > eventPatience {
			m.warn("worker's events do not come: routed to by guesses", fmt.Errorf("rank %d is %v; are its ports reached from here?", w.DP, s.State))
		} else if s.Counts.UnknownWorker > 0 && s.Counts.Batches == 0 {
			m.warn("worker's events are all of another rank: nothing is known of its cache", fmt.Errorf("%d messages came where those of rank %d are looked for", s.Counts.UnknownWorker, w.DP))
		}
	}
}

// sight has the chooser see whether a rank's events are heard now.
func (g *Gateway) sight(w kv.Rank) {
	g.chooser.sight(w, func() bool {
		s, ok := g.subscriber.Status(w)
		return ok && s.State == events.Live
	})
}

// ignore ends that, and forgets what they told.
func (m *member) ignore() {
	if !m.follow {
		return
	}
	m.follow = false
	for _, w := range m.ranks {
		m.g.subscriber.Remove(w)
	}
}

// faults asks whether the events of a rank can't be indexed, as their blocks have another
// size: then nothing of the worker would ever be found, and it gets no requests.
func (m *member) faults() error {
	if !m.follow {
		return nil
	}
	for _, w := range m.ranks {
		if s, ok := m.g.subscriber.Status(w); ok && s.State == events.Faulty {
			return refuse("events of worker %s, rank %d, can't be indexed: %v", m.url, w.DP, s.Err)
		}
	}
	return nil
}

// changed is told by the subscriber how the events of a rank are. It must not wait.
func (g *Gateway) changed(r kv.Rank, to events.State, err error) {
	m := g.roll.Load().byID[r.Worker]
	if m == nil {
		return
	}
	g.sight(r)
	fields := []zap.Field{m.field(), zap.Uint32("rank", r.DP), zap.Stringer("state", to)}
	switch to {
	case events.Live:
		g.log.Info("worker's events", fields...)
	case events.Faulty:
		m.nudge()
	default:
		g.log.Warn("worker's events", append(fields, zap.Error(err))...)
	}
}
