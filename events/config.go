package events

import (
	"errors"
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/events/wire"
	"github.com/coppice-llm/coppice/kv"
)

// ErrClosed is the answer of what was closed.
var ErrClosed = errors.New("events: closed")

// PublisherConfig bounds a [Publisher]. The zero value works, but for BlockTokens.
type PublisherConfig struct {
	DP          uint32 // data-parallel rank, sent with every batch
	BlockTokens int    // of all blocks; required
	Form        wire.Form

	// Epoch tells this publisher from its predecessors and must be greater than
	// theirs. 0 = the time of its start.
	Epoch uint64

	// A batch is sent when it has so many events or blocks, or when it is
	// FlushEvery old; with FlushEvery 0 as soon as nothing more is waiting. Nothing waits
	// for longer than a Heartbeat.
	BatchEvents int           // 128, Dynamo's limit
	BatchBlocks int           // 4096 of 16 tokens: 360 KiB on the wire; fewer of larger ones
	FlushEvery  time.Duration // at most 15 s

	// QueueEvents may wait to be sent. One more, and the publisher gives up on
	// being exact: it drops them, clears all and builds up anew.
	QueueEvents int // 65536

	RingBatches int // 10000, vLLM's buffer_steps; the last ones sent, for replay
	RingBytes   int // 256 MiB
	HeldBlocks  int // 1<<24; what the cache holds, for snapshots. One more is a gap.

	// Heartbeat is how long the publisher is silent before it sends an empty
	// batch, so that a lost last batch is noticed. 0 = 1 s, below 0 = never.
	Heartbeat time.Duration
}

// WithDefaults fills in what is 0.
func (c PublisherConfig) WithDefaults() PublisherConfig {
	if c.Epoch == 0 {
		c.Epoch = uint64(time.Now().UnixNano())
	}
	setDefault(&c.BatchEvents, 128)
	// 512 KiB at most, as NATS takes no more than 1 MiB: a token takes 5 bytes, a
	// hash 9.
	setDefault(&c.BatchBlocks, max(1, min(4096, 512<<10/(9+5*max(c.BlockTokens, 1)))))
	setDefault(&c.QueueEvents, 1<<16)
	setDefault(&c.RingBatches, 10_000)
	setDefault(&c.RingBytes, 256<<20)
	setDefault(&c.HeldBlocks, 1<<24)
	setDefault(&c.Heartbeat, time.Second)
	return c
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Validate reports all that can't be.
func (c PublisherConfig) Validate() error {
	return errors.Join(
		within("BlockTokens", c.BlockTokens, 1, 1<<20),
		within("BatchEvents", c.BatchEvents, 1, 1<<14),
		within("BatchBlocks", c.BatchBlocks, 1, 1<<18),
		within("QueueEvents", c.QueueEvents, 1, 1<<24),
		within("RingBatches", c.RingBatches, 1, 1<<24),
		within("RingBytes", c.RingBytes, 1, 1<<40),
		within("HeldBlocks", c.HeldBlocks, 1, 1<<32),
		within("FlushEvery", c.FlushEvery, 0, 15*time.Second),
		within("Heartbeat", c.Heartbeat, -1<<62, time.Hour),
	)
}

// SubscriberConfig bounds a [Subscriber]. The zero value works, but for BlockTokens.
type SubscriberConfig struct {
	BlockTokens int // of the index; workers with another size are refused
	Limits      wire.Limits

	// RecoverTimeout is how long one replay or snapshot may take: 10 s.
	RecoverTimeout time.Duration
	// After a recovery that failed, the next one waits from RetryMin on, twice as
	// long each time, up to RetryMax: 10 ms to 5 s, Dynamo's.
	RetryMin, RetryMax time.Duration
	// Grace is how long a rank is believed after its connection broke: 2 s. Then
	// it is cleared. Below 0 = not at all.
	Grace time.Duration
	// Silence is how long a rank is believed that says nothing new at all, heartbeats
	// included: then it is cleared, until it speaks again. 0 = for good, as vLLM
	// has no heartbeat.
	Silence time.Duration
	// DumpBlocks bounds what one snapshot may hold: 1<<22.
	DumpBlocks int
	// SaltedBlocks bounds, per rank, the blocks whose salt is remembered, as only
	// the first of a sequence names it: 1<<20. Beyond it salted blocks are refused.
	SaltedBlocks int

	// OnChange is told when a rank's state changes, by that rank's goroutine. It
	// must not wait. nil = nobody.
	OnChange func(kv.Rank, State, error)
}

// WithDefaults fills in what is 0.
func (c SubscriberConfig) WithDefaults() SubscriberConfig {
	setDefault(&c.RecoverTimeout, 10*time.Second)
	setDefault(&c.RetryMin, 10*time.Millisecond)
	setDefault(&c.RetryMax, 5*time.Second)
	setDefault(&c.Grace, 2*time.Second)
	setDefault(&c.DumpBlocks, 1<<22)
	setDefault(&c.SaltedBlocks, 1<<20)
	return c
}

// Validate reports all that can't be.
func (c SubscriberConfig) Validate() error {
	return errors.Join(
		within("BlockTokens", c.BlockTokens, 1, 1<<20),
		within("RecoverTimeout", c.RecoverTimeout, time.Millisecond, time.Hour),
		within("RetryMin", c.RetryMin, time.Microsecond, time.Hour),
		within("RetryMax", c.RetryMax, c.RetryMin, time.Hour),
		within("Grace", c.Grace, -1<<62, time.Hour),
		within("Silence", c.Silence, 0, 24*time.Hour),
		within("DumpBlocks", c.DumpBlocks, 1, 1<<32),
		within("SaltedBlocks", c.SaltedBlocks, 0, 1<<32),
	)
}

func within[T int | time.Duration](name string, v, least, most T) error {
	if v < least || v > most {
		return fmt.Errorf("events: %s is %v, must be from %v to %v", name, v, least, most)
	}
	return nil
}
