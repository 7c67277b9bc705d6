package cuda

import (
	"errors"
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/internal/engine/intake"
)

// Config configures a backend. Driver is required; zero values of other fields mean the default.
type Config struct {
	Driver cudrv.Driver
	Device int // index in the driver's numbering
	// MemoryFraction is the largest fraction of the device's memory that may be in use, including
	// memory that other processes use; default 0.9.
	MemoryFraction float64
	// MakeWeights fills matrices with random numbers made on the device instead of the model's
	// weights, to measure the speed of a shape without a model. The output is meaningless.
	MakeWeights bool
	// Progress is called while weights are uploaded, with the bytes uploaded so far and the bytes
	// to upload in all.
	Progress func(done, total int)

	PageTokens int // tokens per page, a power of two up to 256; default 16
	Pages      int // pages of the pool; if Pages and KVTokens are 0, as many as fit into the remaining memory
	KVTokens   int // if Pages is 0: the least number of tokens that the pool holds
	MaxSlots   int // slots are in [0, MaxSlots); default 256
	MaxRows    int // rows per batch; default 256
	MaxTokens  int // tokens per batch; default 8192
	// MaxInflight is how many batches may be pending; default 3: one runs, one is queued, one is
	// planned.
	MaxInflight int
	// MaxMoves is how many moves of pages may be pending; default 64.
	MaxMoves int
	// NoGraphs launches all kernels one by one, for comparison. Otherwise the kernels of a step of
	// decoding rows are launched as one graph, if the driver supports graphs.
	NoGraphs bool
	// StepTimeout bounds the time that passes without the end of any batch or move while some are
	// queued; default 2 minutes. After that the device counts as lost. The longest step takes
	// seconds.
	StepTimeout time.Duration
}

const (
	maxPages = 1 << 24   // of a pool
	maxGrid  = 1<<16 - 1 // blocks in a grid's second dimension; some kernels have a block per token there
)

// WithDefaults returns c with defaults for the fields that are zero, except Pages and KVTokens. If
// Pages is 0 it is set from KVTokens.
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

// maxMasks is the number of masks that the device keeps: one for each row in flight, and at least
// 256, so that later rows may reuse masks.
func (c *Config) maxMasks() int { return max(c.MaxRows*c.MaxInflight, 256) }

// size returns the fields that all backends have.
func (c *Config) size() intake.Size {
	return intake.Size{
		PageTokens: &c.PageTokens, Pages: &c.Pages, KVTokens: &c.KVTokens, MaxSlots: &c.MaxSlots, MaxRows: &c.MaxRows,
		MaxTokens: &c.MaxTokens, MaxInflight: &c.MaxInflight, MaxMoves: &c.MaxMoves,
	}
}

// Validate returns an error that names all invalid fields of a config with defaults, or nil.
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
