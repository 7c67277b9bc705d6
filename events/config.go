package events

import (
	"errors"
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/events/wire"
	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/kv"
)

// ErrClosed is the answer of what was closed.
var ErrClosed = errors.New("events: closed")

// SubscriberConfig bounds a [Subscriber]. The zero value works, but for BlockTokens.
type SubscriberConfig struct {
	BlockTokens int `min:"1" max:"1<<20"` // of the index; workers with another size are refused
	Limits      wire.Limits

	// RecoverTimeout is how long one replay or snapshot may take: 10 s.
	RecoverTimeout time.Duration `default:"10s" min:"1ms" max:"1h"`
	// After a recovery that failed, the next one waits from RetryMin on, twice as
	// long each time, up to RetryMax: 10 ms to 5 s, Dynamo's.
	RetryMin time.Duration `default:"10ms" min:"1us" max:"1h"`
	RetryMax time.Duration `default:"5s" max:"1h"`
	// Grace is how long a rank is believed after its connection broke: 2 s. Then
	// it is cleared. Below 0 = not at all.
	Grace time.Duration `default:"2s" max:"1h"`
	// Silence is how long a rank is believed that says nothing new at all, heartbeats
	// included: then it is cleared, until it speaks again. 0 = for good, as vLLM
	// has no heartbeat.
	Silence time.Duration `min:"0s" max:"24h"`
	// DumpBlocks bounds what one snapshot may hold: 1<<22.
	DumpBlocks int `default:"1<<22" min:"1" max:"1<<32"`
	// SaltedBlocks bounds, per rank, the blocks whose salt is remembered, as only
	// the first of a sequence names it: 1<<20. Beyond it salted blocks are refused.
	SaltedBlocks int `default:"1<<20" min:"0" max:"1<<32"`

	// OnChange is told when a rank's state changes, by that rank's goroutine. It
	// must not wait. nil = nobody.
	OnChange func(kv.Rank, State, error)
}

// WithDefaults fills in what is 0.
func (c SubscriberConfig) WithDefaults() SubscriberConfig { return bounds.Fill(c) }

// Validate reports all that can't be.
func (c SubscriberConfig) Validate() error {
	err := bounds.Check("events", c)
	if c.RetryMax < c.RetryMin {
		err = errors.Join(err, fmt.Errorf("events: RetryMax is %v, want at least RetryMin, %v", c.RetryMax, c.RetryMin))
	}
	return err
}
