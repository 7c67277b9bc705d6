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

// State is how a worker is, as far as is known.
type State uint8

// The states.
const (
	Joining  State = iota // it has not answered yet
	Healthy               // it gets requests
	Draining              // it ends what it has
	Lost                  // it does not answer, or breaks connections
	Refused               // it can't be of this fleet: see the error
	States                // how many there are
)

var stateNames = enum.New[State]("members", "state", "joining", "healthy", "draining", "lost", "refused")

func (s State) String() string { return stateNames.Name(s) }

// Member is a worker of the fleet. Its keeper is the one goroutine that changes it, but for
// Suspect. Its methods may be called from any goroutine.
type Member struct {
	given      Worker
	url        *url.URL
	registered registered // under the fleet's mutex
	before     *Member    // had its URL, and leaves
	cancel     context.CancelFunc
	kick       chan struct{} // holds one: probe it now
	done       chan struct{} // closed when the keeper has ended

	mu    sync.Mutex
	said  said
	state State
	err   error     // why it is Lost or Refused
	fails int       // in a row
	lost  time.Time // since when, if it is Lost
	users int       // requests that are there
	left  bool      // no more requests may go there
}

// registered is how a worker's process has announced itself. The name is "" if it has not.
type registered struct {
	alone bool // it was not given, too
	name  string
	epoch uint64
}

// said is what a worker says of itself.
type said struct {
	card    *card.Card // nil until it has answered; of a foreign worker, what is known
	own     string     // the name that it gives itself, which its events have
	foreign bool       // it has no card
	loras   map[string]bool
}

// Status is what is known of a worker.
type Status struct {
	Name    string
	URL     string // as it was given
	State   State
	Err     error      // why it is Lost or Refused
	Card    *card.Card // nil until it has answered. Read only
	Foreign bool       // it is of another make, and has no card of its own
	Pool    string
	Models  []string // read only
}

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

// URL is where the worker is. The caller must not change it.
func (m *Member) URL() *url.URL { return m.url }

// Ranks is how many data-parallel ranks the worker has.
func (m *Member) Ranks() int { return m.given.Ranks }

// Name is what the worker is called in logs, metrics and headers.
func (m *Member) Name() string { return m.Status().Name }

// Field names the worker in a log.
func (m *Member) Field() zap.Field { return zap.String("worker", m.Name()) }

// Status is what is known of the worker now.
func (m *Member) Status() Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := Status{Name: m.given.Name, URL: m.given.URL, State: m.state, Err: m.err, Card: m.said.card, Foreign: m.said.foreign}
	switch {
	case s.Card != nil:
		s.Name, s.Pool, s.Models = s.Card.Name, s.Card.Pool, s.Card.Models
	case s.Name == "":
		s.Name = nameOf(m.url)
	}
	return s
}

// card is what the worker said, nil if it has not answered.
func (m *Member) card() *card.Card { return m.Status().Card }

// Nudge has the worker probed now.
func (m *Member) Nudge() {
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// Use counts a request that goes to the worker, until Done; false: the worker has left.
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

// Gone reports whether the worker has left.
func (m *Member) Gone() bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// lostBefore reports whether the worker is lost, and an earlier process than one of that epoch.
func (m *Member) lostBefore(epoch uint64) bool {
	s := m.Status()
	return s.State == Lost && s.Card != nil && s.Card.Epoch < epoch
}

// setState sets the state and returns the one before. Healthy and Draining mean no failure.
func (m *Member) setState(to State) (was State) {
	m.mu.Lock()
	defer m.mu.Unlock()
	was = m.state
	if m.state = to; to == Healthy || to == Draining {
		m.err, m.fails = nil, 0
	}
	return was
}

// failed counts a failed probe. It reports whether the worker is in state to for good: lost only
// after so many failures in a row.
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

// lostSince is when the worker was lost.
func (m *Member) lostSince() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lost
}

// rank is one of the worker's ranks.
func (m *Member) rank(c *card.Card, dp int) kv.Rank {
	return kv.Rank{Worker: kv.WorkerID(c.ID()), DP: uint32(dp)}
}

// used reports whether requests are there.
func (m *Member) used() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.users > 0
}
