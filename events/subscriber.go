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
	Waiting  State = iota // the contents are empty: never connected, disconnected or silent for too long
	Live                  // the contents are those of the publisher after batch Status.Next-1
	Lost                  // a loss could not be repaired; the contents are cleared, and recovery is retried
	Faulty                // the rank can't be indexed, see Status.Err; the contents are cleared, and nothing is retried
	Outdated              // the contents are those of the publisher after batch Status.Next-1; later batches do not arrive, see Follow.Outlast
)

var stateNames = [...]string{"waiting", "live", "lost", "faulty", "outdated"}

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

// NewSubscriber returns a subscriber of sink without ranks. The error is that of Validate.
func NewSubscriber(cfg SubscriberConfig, sink Sink) (*Subscriber, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Subscriber{cfg: cfg, sink: sink, ranks: make(map[kv.Rank]*follower)}, nil
}

// Follow holds the options of Add.
type Follow struct {
	// Topic is the only accepted topic. Messages of other topics are counted as UnknownWorker
	// and dropped. Empty: any.
	Topic string
	// AnyRank accepts batches whatever data-parallel rank they name. It is for a source that
	// belongs to a single engine: such an engine may number itself as the n-th of several.
	AnyRank bool
	// Silence replaces SubscriberConfig.Silence for this rank, whose publisher sends heartbeats.
	// 0: SubscriberConfig.Silence.
	Silence time.Duration
	// Outlast is how long the rank keeps its last contents, in state Outdated, while nothing
	// arrives and nothing shows that the publisher has restarted. It is for a transport through a
	// server of its own, such as NATS: an outage of that server says nothing about the publisher's
	// cache. 0: the contents are cleared at once.
	Outlast time.Duration
}

// Add starts to follow rank r through src. The subscriber owns src from then on, and closes it
// if Add fails, with ErrKnown or ErrClosed.
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

// Remove stops following rank r and lets the sink forget it. Until it returns, Add refuses the
// rank. It does nothing for an unknown rank.
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
	Err   error // the reason for Lost or Faulty, and for Outdated if a request has failed
	Epoch uint64
	Next  uint64 // number of the next batch
	// Doubted says that it is unknown, after a reconnect, whether the publisher is the same as
	// before: it has no history and has not sent a batch yet.
	Doubted bool
	// Successor is the epoch of a later process that sends batches under the worker's name.
	// These batches are ignored. 0: none.
	Successor uint64
	// Elsewhere says that no messages of the wanted topic arrive, but some of topic Topic. The
	// publisher may not have the wanted topic.
	Elsewhere bool
	Topic     string
	Counts    Counts
}

// Status returns the status of a rank. The second result is false if the rank is not followed.
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

// Counts returns the sum of the counts of all ranks, including those that were removed.
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
