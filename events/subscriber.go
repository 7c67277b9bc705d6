package events

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/coppice-llm/coppice/events/wire"
	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/kv"
)

// ErrClosed is returned by calls after Close.
var ErrClosed = errors.New("events: closed")

// SubscriberConfig bounds a [Subscriber]. The zero value works, except BlockTokens.
type SubscriberConfig struct {
	// BlockTokens is the number of tokens per block of the index. A worker's blocks may be several times as long: each is
	// then stored as several, and removed as one. Other workers are refused.
	BlockTokens int `min:"1" max:"1<<20"`
	Limits      wire.Limits

	// RecoverTimeout bounds one replay or snapshot. Default 10 s.
	RecoverTimeout time.Duration `default:"10s" min:"1ms" max:"1h"`
	// RetryMin is the wait after a failed recovery. After each further failure the wait doubles,
	// up to RetryMax. Defaults 10 ms and 5 s, as in Dynamo.
	RetryMin time.Duration `default:"10ms" min:"1us" max:"1h"`
	RetryMax time.Duration `default:"5s" max:"1h"`
	// Grace is how long a rank stays valid after its connection has broken. Then it is cleared, or
	// Outdated under Follow.Outlast.
	// Default 2 s. Below 0: cleared at once.
	Grace time.Duration `default:"2s" max:"1h"`
	// Silence is how long a rank stays valid without a new message, heartbeats included. Then it
	// is cleared until its next message, or Outdated under Follow.Outlast. 0: never cleared, because vLLM sends no heartbeats.
	Silence time.Duration `min:"0s" max:"24h"`
	// DumpBlocks bounds the blocks of one snapshot. Default 1<<22.
	DumpBlocks int `default:"1<<22" min:"1" max:"1<<32"`
	// SaltedBlocks bounds, per rank, the blocks whose salt is remembered. Only the first block
	// of a sequence names its salt, but the hashes of later blocks depend on it too. Beyond the
	// bound salted blocks are refused. Default 1<<20.
	SaltedBlocks int `default:"1<<20" min:"0" max:"1<<32"`

	// OnChange, if not nil, is called when a rank's state changes, with the new state and the
	// reason for Lost or Faulty. The rank's goroutine calls it, so it must not block.
	OnChange func(kv.Rank, State, error)
}

// WithDefaults returns a copy in which zero fields have their defaults.
func (c SubscriberConfig) WithDefaults() SubscriberConfig { return bounds.Fill(c) }

// Validate returns all fields that are out of range.
func (c SubscriberConfig) Validate() error {
	err := bounds.Check("events", c)
	if c.RetryMax < c.RetryMin {
		err = errors.Join(err, fmt.Errorf("events: RetryMax is %v, want at least RetryMin, %v", c.RetryMax, c.RetryMin))
	}
	return err
}

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

// Block is a stored block as an index needs it.
type Block struct {
	Hash  kv.BlockHash // as the worker names the block, also when the block is removed
	Local kv.LocalHash // hash of the content, computed by this process: equal for all workers
}

// Stored is a run of consecutive blocks that became available in one tier.
type Stored struct {
	Tier      kv.Tier
	Parent    kv.BlockHash // the block before Blocks[0], if HasParent
	HasParent bool         // false at the start of a sequence
	Blocks    []Block
	// Named says that the blocks, in any order and without Parent, are copies of blocks that the rank may have in another
	// tier: their Local is unknown. A Sink ignores those that the rank does not have.
	Named bool
}

// ErrUnknownParent is a Sink's error for blocks below an unknown block.
var ErrUnknownParent = errors.New("events: parent block unknown")

// Sink is an index that a [Subscriber] keeps current. Calls for one rank are sequential and in
// order; calls for different ranks are concurrent. A Sink keeps no slice of its arguments after
// it returns, except Replace's.
//
// The contents of a rank are a set of pairs (tier, hash). Store adds pairs and Remove deletes
// them. Storing a pair that is present, or removing one that is absent, changes nothing.
type Sink interface {
	// Store fails with ErrUnknownParent if the rank has the parent in no tier. Then it
	// stores nothing.
	Store(r kv.Rank, s Stored) error
	Remove(r kv.Rank, tier kv.Tier, hashes []kv.BlockHash)
	// Clear deletes all blocks of a rank, in all tiers. The rank stays known.
	Clear(r kv.Rank)
	// Replace makes dump the whole contents of the rank. Readers see all of the change or
	// nothing of it. In dump, parents come before their children. The sink owns dump. refused is
	// the number of blocks whose parents are not in dump.
	Replace(r kv.Rank, dump []Stored) (refused int)
	// Forget removes a rank that will not return.
	Forget(r kv.Rank)
}

// PublisherMetrics are counts since the start.
type PublisherMetrics struct {
	Events     uint64 // events appended to the log
	Batches    uint64 // sent, including heartbeats
	Heartbeats uint64
	Bytes      uint64 // bytes of all payloads sent
	Lost       uint64 // batches that the log dropped before they were sent; readers recover them by a snapshot
	SendErrors uint64 // failed sends, counted per transport
	Snapshots  uint64 // made
	HeldBlocks uint64 // blocks stored and not removed; a block in two tiers counts twice
	NextSeq    uint64 // of the next batch to append to the log; HeldBlocks is after the batches before it
}

// Counts are the effects of a rank's messages, for Status and metrics.
type Counts struct {
	Batches, Events             uint64 // applied
	StoredBlocks, RemovedBlocks uint64 // applied
	Stale                       uint64 // batches seen twice or late; dropped
	Gaps                        uint64 // found
	Restarts                    uint64 // of the publisher
	Replays, Snapshots          uint64 // recoveries that succeeded
	Recoveries                  uint64 // begun
	FailedRecoveries            uint64
	Clears                      uint64 // times that a rank was cleared because it was no longer valid
	Malformed                   uint64 // frames and payloads that can't be read
	Impossible                  uint64 // sequence numbers that no publisher sends
	UnknownWorker               uint64 // messages of another topic or rank
	UnknownEvents               uint64 // of unknown kinds; skipped
	UnknownMedium               uint64 // events of unknown tiers; skipped
	OtherGroup                  uint64 // events of other KV cache groups, or whose blocks have another size than the group's; skipped
	RefusedSalted               uint64 // events refused because of SaltedBlocks, or with a salt over 1 KiB
	OrphanBlocks                uint64 // stored below an unknown parent
	Dropped                     uint64 // batches that arrived while the rank was lost or faulty
}

// add adds the counts o of another rank to c.
func (c *Counts) add(o *Counts) {
	sum, more := reflect.ValueOf(c).Elem(), reflect.ValueOf(o).Elem()
	for i := range sum.NumField() {
		sum.Field(i).SetUint(sum.Field(i).Uint() + more.Field(i).Uint())
	}
}
