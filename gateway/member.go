package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
)

// State is what the gateway thinks of a worker.
type State uint8

// The states.
const (
	Joining  State = iota // it has not answered yet
	Healthy               // it gets requests
	Draining              // it ends what it has
	Lost                  // it does not answer, or breaks connections
	Refused               // it can't be of this fleet: see the error
)

var stateNames = [...]string{"joining", "healthy", "draining", "lost", "refused"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// member is a worker of the fleet. Its keeper is the one goroutine that changes it but
// for suspect.
type member struct {
	g      *Gateway
	given  Worker
	caller         // as which process it has announced itself, as of the last time; under the gateway's mu
	before *member // who had its URL, and leaves
	url    *url.URL
	cancel context.CancelFunc
	kick   chan struct{} // holds one: ask it now
	done   chan struct{}

	mu        sync.Mutex
	state     State
	err       error      // why it is Lost or Refused
	card      *card.Card // nil until it has answered; of a stranger, what is known
	foreign   bool       // it has no card
	published string     // the name that its events have
	models    []string
	loras     map[string]bool
	fails     int       // in a row
	lost      time.Time // since when, if it is Lost
	tries     map[*attempt]struct{}
	left      bool // no more of them may begin

	fetching sync.WaitGroup // of its tokenizer

	// The keeper's own.
	ranks  []kv.Rank // that have joined
	follow bool      // their events are followed
	probes int       // since the card was read, below 0 if it is to be read anew
	// succeeded is the latest process whose events came under this one's name.
	succeeded uint64
	warned    string // what was last warned of, as not to repeat it
	fault     error  // of its events, believed until then
	until     time.Time
	since     time.Time // when its events were first waited for
	fetch     retry
}

// caller is how a worker's process has announced itself: the name is "" if it has not.
type caller struct {
	announced bool // and not given
	called    string
	epoch     uint64
}

func newMember(g *Gateway, given Worker) (*member, error) {
	if err := given.Validate(); err != nil {
		return nil, err
	}
	u, err := url.Parse(given.URL)
	if err != nil {
		return nil, err
	}
	if given.Ranks == 0 {
		given.Ranks = 1
	}
	return &member{g: g, given: given, url: u, kick: make(chan struct{}, 1), done: make(chan struct{}), tries: map[*attempt]struct{}{}}, nil
}

// keep asks the worker how it is, again and again, until ctx ends. Then it leaves.
func (m *member) keep(ctx context.Context) {
	defer close(m.done)
	defer m.fetching.Wait()
	if m.before != nil {
		<-m.before.done
		m.before = nil
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	last := time.Time{}
	for {
		select {
		case <-ctx.Done():
			m.part()
			m.outlive()
			return
		case <-timer.C:
		case <-m.kick:
			m.probes = -1 // what failed may have been started anew
			// Soon, but not as often as requests fail there.
			if wait := m.g.cfg.ProbeEvery/leastProbe - time.Since(last); wait > 0 {
				timer.Reset(wait)
				continue
			}
		}
		last = time.Now()
		m.probe(ctx)
		timer.Reset(m.g.cfg.ProbeEvery)
	}
}

// leastProbe is what part of ProbeEvery two probes are apart at least.
const leastProbe = 4

// refreshEvery is how many probes there are for each that reads the card again.
const refreshEvery = 10

// probe asks once.
func (m *member) probe(whole context.Context) {
	ctx, cancel := context.WithTimeout(whole, m.g.cfg.ProbeTimeout)
	defer cancel()
	m.mu.Lock()
	state, known := m.state, m.card
	m.mu.Unlock()
	m.probes++
	if known == nil || state == Lost || state == Refused || m.probes%refreshEvery == 0 {
		found, err := m.learn(ctx)
		if err == nil {
			err = m.settle(found)
		}
		if err != nil {
			m.failed(ctx, err)
			return
		}
	}
	ready, err := m.ready(ctx)
	if err == nil {
		err = m.faulty(time.Now())
	}
	if err == nil {
		err = m.fits()
	}
	if err != nil {
		m.failed(ctx, err)
		return
	}
	m.answered(whole, ready)
}

// fits is why it is not of this fleet any more, if it is not: by a tokenizer that was fetched
// since it joined, or by other pools.
func (m *member) fits() error {
	m.mu.Lock()
	c := m.card
	m.mu.Unlock()
	if err := m.g.pools.Load().admits(m, c); err != nil {
		return err
	}
	return m.g.speaks(m, c)
}

// answered: it lives.
func (m *member) answered(ctx context.Context, ready bool) {
	to, health := Healthy, router.Healthy
	if !ready {
		to, health = Draining, router.Draining
	}
	if err := m.attend(); err != nil {
		m.warn("events can't be followed", err)
	}
	m.learnWords(ctx)
	for _, w := range m.ranks { // each time, for a request may have thought otherwise
		m.g.chooser.health(w, health)
	}
	m.mu.Lock() // now it is true, and may be told
	was := m.state
	m.state, m.err, m.fails = to, nil, 0
	m.mu.Unlock()
	if was != to {
		m.g.log.Info("worker "+to.String(), m.field())
		m.g.enroll()
	}
	m.watch(time.Now())
}

// failed: it does not answer, or not as a worker of this fleet would.
func (m *member) failed(ctx context.Context, err error) {
	if errors.Is(ctx.Err(), context.Canceled) || exhausted(err) {
		return // the gateway ends or is at its limits, not the worker
	}
	to := Lost
	if errors.As(err, new(*refusal)) {
		to = Refused
	}
	m.mu.Lock()
	m.err = err
	if m.fails++; to == Lost && m.fails < m.g.cfg.FailAfter {
		m.mu.Unlock()
		return
	}
	if m.state != to {
		m.lost = time.Now()
	}
	m.mu.Unlock()
	for _, w := range m.ranks {
		m.g.chooser.health(w, router.Lost)
	}
	m.ignore()
	if to == Lost { // who is refused does answer
		m.cut(time.Now())
	}
	m.mu.Lock() // now it is true, and may be told
	was := m.state
	m.state = to
	m.mu.Unlock()
	what := "worker " + to.String()
	if was == to {
		m.warn(what, err)
		return
	}
	m.warned = what + err.Error()
	m.g.log.Error(what, m.field(), zap.Error(err))
	m.g.enroll()
}

// suspect is told by a request that could not connect: nothing goes there until it has
// answered a probe.
func (m *member) suspect(rank kv.Rank, err error) {
	if m.g.roll.Load().byID[rank.Worker] != m {
		return // another one is there by now
	}
	m.mu.Lock()
	m.fails = max(m.fails, m.g.cfg.FailAfter-1) // the next failure is the last
	m.mu.Unlock()
	m.g.chooser.health(rank, router.Lost)
	m.g.log.Warn("worker does not take requests", m.field(), zap.Error(err))
	m.nudge()
}

// gone tells whether it has left.
func (m *member) gone() bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// lostBefore tells whether it does not answer, and is an earlier process than one of that
// epoch.
func (m *member) lostBefore(epoch uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state == Lost && m.card != nil && m.card.Epoch < epoch
}

// nudge has the worker asked now.
func (m *member) nudge() {
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// faultLasts is how long a worker whose events are at fault is refused before they are
// looked at again.
const faultLasts = time.Minute

// faulty is why the worker's events can't be of this fleet, if they can't.
func (m *member) faulty(now time.Time) error {
	if err := m.faults(); err != nil {
		m.fault, m.until = err, now.Add(faultLasts)
	} else if now.After(m.until) {
		m.fault = nil
	}
	return m.fault
}

// warn logs what goes on for long once.
func (m *member) warn(what string, err error) {
	if text := what + err.Error(); m.warned != text {
		m.warned = text
		m.g.log.Warn(what, m.field(), zap.Error(err))
	}
}

// name is what the worker is called in logs, metrics and headers.
func (m *member) name() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.nameLocked()
}

func (m *member) nameLocked() string {
	switch {
	case m.card != nil:
		return m.card.Name
	case m.given.Name != "":
		return m.given.Name
	}
	return nameOf(m.url)
}

func (m *member) field() zap.Field { return zap.String("worker", m.name()) }

// nameOf makes a name of an address.
func nameOf(u *url.URL) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r >= 0x7f || strings.ContainsRune(".:*>/[]", r) {
			return '-'
		}
		return r
	}, u.Host+u.Path)
}

// refusal is why a worker can't be of the fleet however often it is asked.
type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }

func refuse(format string, args ...any) error { return &refusal{fmt.Sprintf(format, args...)} }
