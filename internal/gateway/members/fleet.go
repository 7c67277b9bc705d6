package members

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/events/nats"
	"github.com/coppice-llm/coppice/kv"
)

// Fleet is the workers that there are. Its methods may be called from any goroutine.
type Fleet struct {
	cfg        Config
	log        *zap.Logger
	snapshot   atomic.Pointer[Snapshot]
	tokenizers tokenizers
	subscriber *events.Subscriber
	further    []*events.Subscriber // of Config.Consolidate
	watcher    *nats.Watcher        // nil: no worker registers
	troubles   troubles
	hearing    sync.Mutex // over asking whether events are heard and telling so
	ctx        context.Context
	stop       context.CancelFunc
	background sync.WaitGroup // watching registrations, and members that linger

	// Members are told to leave under mu, and waited for without it.
	mu      sync.Mutex
	members map[string]*Member // by URL
	claims  map[uint64]*Member // by number: those that have joined
	closed  bool
}

var (
	errClosed = errors.New("gateway: closed")
	errMany   = errors.New("gateway: too many workers")
)

// Snapshot is who is there now.
func (f *Fleet) Snapshot() *Snapshot { return f.snapshot.Load() }

// All are the members, by URL.
func (f *Fleet) All() []*Member {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.SortedFunc(maps.Values(f.members), func(a, b *Member) int { return strings.Compare(a.given.URL, b.given.URL) })
}

// Enroll makes another snapshot.
func (f *Fleet) Enroll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := snapshotOf(f.claims, len(f.members))
	f.cfg.Apply(Enrolled{s})
	f.snapshot.Store(s)
}

// dismiss has members leave, and waits until they have.
func (f *Fleet) dismiss(gone []*Member) {
	for _, m := range gone {
		m.cancel()
	}
	for _, m := range gone {
		<-m.done
		f.log.Info("worker left", m.Field())
		f.Forget(m.Name())
	}
}

// Forget tells that a name is gone, unless a worker has it.
func (f *Fleet) Forget(name string) {
	f.mu.Lock()
	taken := f.claims[card.IDOf(name)] != nil
	f.mu.Unlock()
	if !taken {
		f.cfg.Apply(Forgotten{name})
	}
}

// claim gives a member the number of its card, if no other member has it, and keeps what it
// said. A member that registered itself, is lost, and began before the card's process did, has
// moved: it leaves.
func (f *Fleet) claim(m *Member, s said) bool {
	f.mu.Lock()
	id := s.card.ID()
	other := f.claims[id]
	if other == nil || other == m {
		f.claims[id] = m
		m.mu.Lock()
		m.said = s
		m.mu.Unlock()
		f.mu.Unlock()
		return true
	}
	moved := other.registered.alone && other.lostBefore(s.card.Epoch)
	if moved && f.members[other.given.URL] == other {
		delete(f.members, other.given.URL)
	}
	f.mu.Unlock()
	if !moved {
		return false
	}
	f.dismiss([]*Member{other})
	return f.claim(m, s)
}

func (f *Fleet) unclaim(m *Member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.claims, func(_ uint64, other *Member) bool { return other == m })
}

// Suspect is told by a request that could not connect to a rank: nothing goes there until the
// worker has answered a probe.
func (f *Fleet) Suspect(m *Member, rank kv.Rank, err error) {
	if f.Snapshot().ByID[rank.Worker] != m {
		return // another one is there by now
	}
	m.mu.Lock()
	m.fails = max(m.fails, f.cfg.FailAfter-1) // the next failure is the last
	m.mu.Unlock()
	f.cfg.Apply(Health{rank, Lost})
	f.log.Warn("worker does not take requests", m.Field(), zap.Error(err))
	m.Nudge()
}

// troubles is what is in the way of connections to NATS, by what they are for.
type troubles struct {
	sync.Mutex
	by map[string]error
}

// Notify is a function that keeps what is in the way of something, nil for nothing, and logs
// it.
func (f *Fleet) Notify(what string) func(error) {
	return func(err error) {
		f.troubles.Lock()
		if delete(f.troubles.by, what); err != nil {
			f.troubles.by[what] = err
		}
		f.troubles.Unlock()
		if err == nil {
			f.log.Info("NATS answers again", zap.String("for", what))
			return
		}
		f.log.Warn("NATS does not answer as it should; trying on", zap.String("for", what), zap.Error(err))
	}
}

// Troubles say in sentences what is in the way now, [] for nothing.
func (f *Fleet) Troubles() []string {
	f.troubles.Lock()
	defer f.troubles.Unlock()
	all := []string{}
	for _, what := range slices.Sorted(maps.Keys(f.troubles.by)) {
		all = append(all, fmt.Sprintf("NATS does not answer as it should, so nothing new is known of %s: %v", what, f.troubles.by[what]))
	}
	return all
}

// Registers reports whether workers may register over NATS.
func (f *Fleet) Registers() bool { return f.cfg.NATS != nil }
