package members

import (
	"context"
	"net/url"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/internal/enum"
	"github.com/coppice-llm/coppice/kv"
)

// State is the last known state of a worker.
type State uint8

// States of a worker.
const (
	Joining  State = iota // has not answered yet
	Healthy               // gets requests
	Draining              // finishes its requests, gets no new ones
	Lost                  // does not answer, or breaks connections
	Refused               // can't belong to this fleet: Status.Err says why
	States                // number of states
)

var stateNames = enum.New[State]("members", "state", "joining", "healthy", "draining", "lost", "refused")

func (s State) String() string { return stateNames.Name(s) }

// Member is a worker of the fleet. Only its keeper and Suspect change it. Its methods may be
// called from any goroutine.
type Member struct {
	cfg        WorkerConfig
	url        *url.URL
	registered registered // guarded by the fleet's mutex
	before     *Member    // earlier member with the same URL, which has to leave first
	cancel     context.CancelFunc
	kick       chan struct{} // capacity 1: probe now
	done       chan struct{} // closed when the keeper has ended

	mu          sync.Mutex
	description description
	state       State
	err         error     // why it is Lost or Refused
	fails       int       // failed probes in a row
	lost        time.Time // time of the loss, if it is Lost
	away        time.Time // since when it has not answered, if it is lost or suspected
	users       int       // requests running there
	left        bool      // closed for new requests
}

// registered says which process has registered as this worker. name is "" if none has.
type registered struct {
	onlyRegistered bool // the worker is not in the list of configured workers
	name           string
	epoch          uint64
}

// description holds the facts that a worker gives about itself.
type description struct {
	card    *card.Card // nil until the worker has answered; made from its list of models if it has no card
	own     string     // the worker's own name, under which it publishes its events
	foreign bool       // no Coppice worker: it has no card
	loras   map[string]bool
	sources []eventSource // where the ranks of a foreign worker publish; empty: it does not say
}

// Status describes a worker.
type Status struct {
	Name    string
	URL     string // as configured
	State   State
	Err     error      // why it is Lost or Refused
	Card    *card.Card // nil until it has answered; read only
	Foreign bool       // no Coppice worker: it has no card of its own
	Pool    string
	Models  []string // read only
}

// newMember makes a member without a keeper. An invalid cfg is an error.
func newMember(cfg WorkerConfig) (*Member, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	u, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, err
	}
	return &Member{cfg: cfg, url: u, kick: make(chan struct{}, 1), done: make(chan struct{})}, nil
}

// URL returns the worker's address. The caller must not change it.
func (m *Member) URL() *url.URL { return m.url }

// Ranks returns the number of data-parallel ranks: that of the configuration, or else as many as the worker says that
// it has.
func (m *Member) Ranks() int {
	if m.cfg.Ranks > 0 {
		return m.cfg.Ranks
	}
	return max(1, len(m.sources()))
}

// described returns the facts that the worker has given about itself.
func (m *Member) described() description {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.description
}

// sources returns the places where the worker's ranks publish, if it is foreign and says so.
func (m *Member) sources() []eventSource { return m.described().sources }

// Name returns the worker's name in logs, metrics and headers.
func (m *Member) Name() string { return m.Status().Name }

// Field returns the worker's name as a log field.
func (m *Member) Field() zap.Field { return zap.String("worker", m.Name()) }

// Status returns the worker's current status.
func (m *Member) Status() Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := Status{Name: m.cfg.Name, URL: m.cfg.URL, State: m.state, Err: m.err, Card: m.description.card, Foreign: m.description.foreign}
	switch {
	case s.Card != nil:
		s.Name, s.Pool, s.Models = s.Card.Name, s.Card.Pool, s.Card.Models
	case s.Name == "":
		s.Name = card.NameOf(m.url.Host + m.url.Path)
	}
	return s
}

// card returns the worker's card, nil if the worker has not answered yet.
func (m *Member) card() *card.Card { return m.Status().Card }

// Nudge makes the keeper probe the worker soon.
func (m *Member) Nudge() {
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// Use notes that a request goes to the worker. The caller must call Done when the request has
// ended. If the worker has left, Use returns false and notes nothing.
func (m *Member) Use() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left {
		return false
	}
	m.users++
	return true
}

// Done notes that a request for which Use returned true has ended.
func (m *Member) Done() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.users--
}

// Gone reports whether the worker has left and its keeper has ended.
func (m *Member) Gone() bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// lostBefore reports whether the worker is lost and its process is older than the process with
// this epoch.
func (m *Member) lostBefore(epoch uint64) bool {
	s := m.Status()
	return s.State == Lost && s.Card != nil && s.Card.Epoch < epoch
}

// setState sets the state and returns the previous one. The states Healthy and Draining clear
// the error and the number of failed probes.
func (m *Member) setState(to State) (was State) {
	m.mu.Lock()
	defer m.mu.Unlock()
	was = m.state
	if m.state = to; to == Healthy || to == Draining {
		m.err, m.fails, m.away = nil, 0, time.Time{}
	}
	return was
}

// failed counts a failed probe and stores its error. It reports whether the caller should set
// the state to: Refused at once, Lost only after failAfter failures in a row.
func (m *Member) failed(to State, err error, failAfter int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
	if m.fails++; to == Lost && m.fails < failAfter {
		return false
	}
	if m.state != to {
		m.lost = time.Now()
	}
	if to == Lost && m.away.IsZero() {
		m.away = time.Now()
	}
	return true
}

// suspect notes that a request could not connect. One more failed probe makes the worker lost.
func (m *Member) suspect(failAfter int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fails = max(m.fails, failAfter-1)
	if m.away.IsZero() {
		m.away = time.Now()
	}
}

// Away returns the time since when the worker does not answer, if it is lost or suspected, else the zero time.
func (m *Member) Away() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.away
}

// lostSince returns the time at which the worker was lost.
func (m *Member) lostSince() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lost
}

// rank returns the kv.Rank of data-parallel rank dp of a worker with card c.
func (m *Member) rank(c *card.Card, dp int) kv.Rank {
	return kv.Rank{Worker: kv.WorkerID(c.ID()), DP: uint32(dp)}
}

// used reports whether requests run at the worker.
func (m *Member) used() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.users > 0
}
