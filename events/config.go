package events

import (
	"errors"
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/events/wire"
	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/kv"
)

// ErrClosed is returned by calls after Close.
var ErrClosed = errors.New("events: closed")

// SubscriberConfig bounds a [Subscriber]. The zero value works, except BlockTokens.
type SubscriberConfig struct {
	BlockTokens int `min:"1" max:"1<<20"` // tokens per block of the index; workers with another block size are refused
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
