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
	Refused               // can't belong to this fleet: see the error
	States                // number of states
)

var stateNames = enum.New[State]("members", "state", "joining", "healthy", "draining", "lost", "refused")

func (s State) String() string { return stateNames.Name(s) }

// Member is a worker of the fleet. Only its keeper and Suspect change it. Its methods may be
// called from any goroutine.
type Member struct {
	given      Worker
	url        *url.URL
	registered registered // guarded by the fleet's mutex
	before     *Member    // earlier member with the same URL, still leaving
	cancel     context.CancelFunc
	kick       chan struct{} // capacity 1: probe now
	done       chan struct{} // closed when the keeper has ended

	mu          sync.Mutex
	description description
	state       State
	err         error     // why it is Lost or Refused
	fails       int       // failed probes in a row
	lost        time.Time // time of the loss, if it is Lost
	users       int       // requests running there
	left        bool      // closed for new requests
}

// registered is the registration of a worker's process. name is "" if it has not registered.
type registered struct {
	onlyRegistered bool // the worker is not configured too
	name           string
	epoch          uint64
}

// description holds a worker's description of itself.
type description struct {
	card    *card.Card // nil until it has answered; made from its models if it has none
	own     string     // its own name, under which its events are published
	foreign bool       // no Coppice worker: it has no card
	loras   map[string]bool
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

// newMember makes a member of a valid Worker. It has no keeper yet.
func newMember(given Worker) (*Member, error) {
	if err := given.Validate(); err != nil {
		return nil, err
	}
	u, err := url.Parse(given.URL)
	if err != nil {
		return nil, err
	}
	given.Ranks = max(given.Ranks, 1)
	return &Member{given: given, url: u, kick: make(chan struct{}, 1), done: make(chan struct{})}, nil
}

// URL returns the worker's address. The caller must not change it.
func (m *Member) URL() *url.URL { return m.url }

// Ranks returns the number of data-parallel ranks.
func (m *Member) Ranks() int { return m.given.Ranks }

// Name returns the worker's name in logs, metrics and headers.
func (m *Member) Name() string { return m.Status().Name }

// Field returns the worker's name as a log field.
func (m *Member) Field() zap.Field { return zap.String("worker", m.Name()) }

// Status returns the worker's current status.
func (m *Member) Status() Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := Status{Name: m.given.Name, URL: m.given.URL, State: m.state, Err: m.err, Card: m.description.card, Foreign: m.description.foreign}
	switch {
	case s.Card != nil:
		s.Name, s.Pool, s.Models = s.Card.Name, s.Card.Pool, s.Card.Models
	case s.Name == "":
		s.Name = nameOf(m.url)
	}
	return s
}

// card returns the worker's card, nil if it has not answered.
func (m *Member) card() *card.Card { return m.Status().Card }

// Nudge makes the keeper probe the worker soon.
func (m *Member) Nudge() {
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// Use counts a request that goes to the worker, until Done. It returns false if the worker has
// left.
func (m *Member) Use() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left {
		return false
	}
	m.users++
	return true
}

// Done ends a Use.
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

// lostBefore reports whether the worker is lost and its process older than the given epoch.
func (m *Member) lostBefore(epoch uint64) bool {
	s := m.Status()
	return s.State == Lost && s.Card != nil && s.Card.Epoch < epoch
}

// setState sets the state and returns the previous one. Healthy and Draining clear the failures.
func (m *Member) setState(to State) (was State) {
	m.mu.Lock()
	defer m.mu.Unlock()
	was = m.state
	if m.state = to; to == Healthy || to == Draining {
		m.err, m.fails = nil, 0
	}
	return was
}

// failed counts a failed probe. It reports whether the state becomes to: Lost only after
// failAfter failures in a row, Refused at once.
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
	return true
}

// lostSince returns when the worker was lost.
func (m *Member) lostSince() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lost
}

// rank returns rank dp of the worker with card c.
func (m *Member) rank(c *card.Card, dp int) kv.Rank {
	return kv.Rank{Worker: kv.WorkerID(c.ID()), DP: uint32(dp)}
}

// used reports whether requests run at the worker.
func (m *Member) used() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.users > 0
}
