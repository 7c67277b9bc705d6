package events

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// State is what a subscriber has of a rank.
type State uint8

// The states.
const (
	Waiting State = iota // nothing yet: never connected, or silent for too long
	Live                 // the sink is as the publisher was before the cursor
	Lost                 // something is missing and could not be had; cleared, to be retried
	Faulty               // it can't be indexed: see the error; cleared, for good
)

var stateNames = [...]string{"waiting", "live", "lost", "faulty"}

func (s State) String() string { return stateNames[s] }

// Subscriber keeps a [Sink] up to date with any number of ranks.
type Subscriber struct {
	cfg  SubscriberConfig
	sink Sink

	mu     sync.Mutex
	ranks  map[kv.Rank]*follower
	past   Counts // of ranks that are not followed any more
	closed bool
}

// ErrKnown is Add's answer to a rank that is followed already.
var ErrKnown = errors.New("events: rank is followed already")

// NewSubscriber follows nobody yet. It fails on what Validate reports.
func NewSubscriber(cfg SubscriberConfig, sink Sink) (*Subscriber, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Subscriber{cfg: cfg, sink: sink, ranks: make(map[kv.Rank]*follower)}, nil
}

// Follow is how Add is to take a source.
type Follow struct {
	// Topic is what messages must carry; others are counted as of unknown workers
	// and dropped. "" = any.
	Topic string
	// AnyRank takes batches of whatever data-parallel rank: of a source that is one
	// engine's alone, which may call itself the n-th of others.
	AnyRank bool
	// Silence is the subscriber's for this rank, of a publisher with a heartbeat. 0 = the
	// subscriber's own.
	Silence time.Duration
}

// Add follows a rank by a source, which is the subscriber's from then on, also
// if it fails: with ErrKnown or ErrClosed.
func (s *Subscriber) Add(r kv.Rank, src Source, how Follow) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := error(nil)
	if s.closed {
		err = ErrClosed
	} else if s.ranks[r] != nil {
		err = fmt.Errorf("%w: %v", ErrKnown, r)
	}
	if err != nil {
		return errors.Join(err, src.Close())
	}
	f := newFollower(r, src, how, s.cfg, s.sink)
	s.ranks[r] = f
	go f.run()
	return nil
}

// Remove ends the following of a rank and has the sink forget it; until it
// returns, Add refuses the rank. It does nothing for a rank that is not followed.
func (s *Subscriber) Remove(r kv.Rank) {
	s.mu.Lock()
	f := s.ranks[r]
	s.mu.Unlock()
	if f == nil {
		return
	}
	f.stop()
	f.forget.Do(func() { s.sink.Forget(r) })
	s.mu.Lock()
	if s.ranks[r] == f {
		delete(s.ranks, r)
		s.past.add(&f.status.Counts) // its goroutine has ended
	}
	s.mu.Unlock()
}

// Close ends all. The sink keeps what it has, and Counts goes on to tell.
func (s *Subscriber) Close() {
	s.mu.Lock()
	s.closed = true
	all := slices.Collect(maps.Values(s.ranks))
	s.mu.Unlock()
	for _, f := range all {
		f.cancel()
	}
	for _, f := range all {
		f.stop()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.ranks { // who was removed meanwhile is among the past
		s.past.add(&f.status.Counts)
	}
	s.ranks = nil
}

// Status is what is known of one rank.
type Status struct {
	State State
	Err   error // why it is Lost or Faulty
	Epoch uint64
	Next  uint64 // the batch that is due
	// Doubted: the connection broke and is there again, and the publisher, which keeps no
	// history, has sent nothing since that shows whether it is the same.
	Doubted bool
	// Successor is the epoch of a later process that sends batches under the worker's name,
	// which are passed over; 0: there is none.
	Successor uint64
	// Elsewhere: messages come under Topic, and none under the one that was asked for, which
	// the publisher may not have.
	Elsewhere bool
	Topic     string
	Counts    Counts
}

// Status of a rank; false if it is not followed.
func (s *Subscriber) Status(r kv.Rank) (Status, bool) {
	s.mu.Lock()
	f := s.ranks[r]
	s.mu.Unlock()
	if f == nil {
		return Status{}, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status, true
}

// Counts is the sum over all ranks that are or were followed.
func (s *Subscriber) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := s.past
	for _, f := range s.ranks {
		f.mu.Lock()
		sum.add(&f.status.Counts)
		f.mu.Unlock()
	}
	return sum
}
