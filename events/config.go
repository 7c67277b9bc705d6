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

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
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
