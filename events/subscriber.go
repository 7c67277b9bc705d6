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

// State is the validity of a rank's contents in the sink.
type State uint8

// The states.
const (
	Waiting State = iota // nothing yet: never connected, or silent for too long
	Live                 // the contents are those of the publisher before the cursor
	Lost                 // a loss could not be repaired; cleared, and retried
	Faulty               // it can't be indexed, see the error; cleared, and not retried
)

var stateNames = [...]string{"waiting", "live", "lost", "faulty"}

func (s State) String() string { return stateNames[s] }

// Subscriber keeps a [Sink] current for any number of ranks, with one goroutine per
// rank.
type Subscriber struct {
	cfg  SubscriberConfig
	sink Sink

	mu     sync.Mutex
	ranks  map[kv.Rank]*follower
	past   Counts // of removed ranks
	closed bool
}

// ErrKnown is Add's error for a rank that is followed already.
var ErrKnown = errors.New("events: rank is followed already")

// NewSubscriber returns a subscriber without ranks, or the faults that Validate
// reports.
func NewSubscriber(cfg SubscriberConfig, sink Sink) (*Subscriber, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Subscriber{cfg: cfg, sink: sink, ranks: make(map[kv.Rank]*follower)}, nil
}

// Follow has the options of Add.
type Follow struct {
	// Topic is the only accepted topic; messages of others are counted as UnknownWorker and
	// dropped. Empty: any.
	Topic string
	// AnyRank accepts batches of every data-parallel rank, for a source that belongs to
	// one engine alone: such an engine may number itself as the n-th of several.
	AnyRank bool
	// Silence replaces the subscriber's for this rank, whose publisher sends
	// heartbeats. 0: the subscriber's.
	Silence time.Duration
}

// Add follows a rank through a source. The subscriber owns the source from then on,
// also if Add fails, with ErrKnown or ErrClosed.
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

// Remove ends the following of a rank and lets the sink forget it. Until it returns,
// Add refuses the rank. It does nothing for an unknown rank.
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

// Close ends all followers. The sink keeps its contents, and Counts remains valid.
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
	for _, f := range s.ranks { // ranks removed meanwhile are in past
		s.past.add(&f.status.Counts)
	}
	s.ranks = nil
}

// Status describes one rank.
type Status struct {
	State State
	Err   error // the reason for Lost or Faulty
	Epoch uint64
	Next  uint64 // number of the due batch
	// Doubted: after a reconnect, a publisher without history has not sent a batch yet that
	// shows whether it is the same.
	Doubted bool
	// Successor is the epoch of a later process that sends batches under the worker's name;
	// they are ignored. 0: none.
	Successor uint64
	// Elsewhere: messages arrive under Topic and none under the wanted topic, which the
	// publisher may not have.
	Elsewhere bool
	Topic     string
	Counts    Counts
}

// Status returns the status of a rank, and false if it is not followed.
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

// Counts returns the sum over all present and past ranks.
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
