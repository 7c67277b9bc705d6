package cuda

import (
	"errors"
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/internal/engine/intake"
)

// Config sizes a backend. Driver is required; 0 elsewhere means the default.
type Config struct {
	Driver cudrv.Driver
	Device int // of the driver
	// MemoryFraction of the device's memory is used; 0.9. What is in use already, by
	// whomever, counts.
	MemoryFraction float64
	// MakeWeights has matrices made on the device, of random numbers, instead of reading the
	// model's: to measure shapes of which no weights are at hand. What such a model says
	// means nothing.
	MakeWeights bool
	// Progress is called as weights are uploaded, with bytes.
	Progress func(done, total int)

	PageTokens int // slots per page, a power of two up to 256; 16
	Pages      int // pages of the pool; with KVTokens 0 too, as many as memory is left for
	KVTokens   int // used if Pages is 0: the pool holds at least so many tokens
	MaxSlots   int // sequences with sampling state; 256
	MaxRows    int // per batch; 256
	MaxTokens  int // per batch; 8192
	// MaxInflight batches may be pending; 3: one runs, one is queued, one is planned.
	MaxInflight int
	// MaxMoves may be pending; 64.
	MaxMoves int
	// NoGraphs launches each kernel of a step by itself, to compare. Else the kernels of a
	// step whose rows decode are launched as one graph, where the driver makes graphs.
	NoGraphs bool
	// StepTimeout is how long the device may end no batch and no move that it was
	// given before it counts as lost; 2 minutes. The longest step takes seconds.
	StepTimeout time.Duration
}

const (
	maxPages = 1 << 24   // of a pool
	maxGrid  = 1<<16 - 1 // blocks in a grid's second dimension, which are tokens in some kernels
)

// WithDefaults is c with every zero field but Pages and KVTokens filled in, and
// Pages set from KVTokens.
func (c Config) WithDefaults() Config {
	if c.MemoryFraction == 0 {
		c.MemoryFraction = 0.9
	}
	if c.StepTimeout == 0 {
		c.StepTimeout = 2 * time.Minute
	}
	c.size().Fill(intake.Limits{MaxSlots: 256, MaxRows: 256, MaxTokens: 8192, MaxInflight: 3, MaxMoves: 64})
	return c
}

// maxMasks is one for each row in flight, and some for those that come again.
func (c *Config) maxMasks() int { return max(c.MaxRows*c.MaxInflight, 256) }

// size are the fields that all backends have.
func (c *Config) size() intake.Size {
	return intake.Size{
		PageTokens: &c.PageTokens, Pages: &c.Pages, KVTokens: &c.KVTokens, MaxSlots: &c.MaxSlots, MaxRows: &c.MaxRows,
		MaxTokens: &c.MaxTokens, MaxInflight: &c.MaxInflight, MaxMoves: &c.MaxMoves,
	}
}

// Validate reports every field of a config with defaults that no backend can
// have, by name and value.
func (c Config) Validate() error {
	if c.Pages == 0 {
		c.Pages = 1 // measured later
	}
	err := c.size().Validate("cuda", intake.Limits{Pages: maxPages, MaxSlots: 1 << 14, MaxRows: 1 << 12, MaxTokens: maxGrid, MaxInflight: 64, MaxMoves: 1 << 16})
	if c.Driver == nil {
		err = errors.Join(errors.New("cuda: Driver is nil"), err)
	}
	if c.StepTimeout < 0 {
		err = errors.Join(err, fmt.Errorf("cuda: StepTimeout is %v, want more than 0", c.StepTimeout))
	}
	if !(c.MemoryFraction > 0 && c.MemoryFraction <= 1) {
		err = errors.Join(err, fmt.Errorf("cuda: MemoryFraction is %v, want more than 0 and at most 1", c.MemoryFraction))
	}
	return err
}
