package cuda

import (
	"errors"
	"time"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/internal/intake"
	"github.com/coppice-llm/coppice/internal/bounds"
)

// Config configures a backend. Driver is required; zero values of other fields mean the default.
type Config struct {
	Driver cudrv.Driver
	Device int // index in the driver's numbering
	// MemoryFraction is the largest fraction of the device's memory that may be in use, including
	// memory that other processes use; default 0.9.
	MemoryFraction float64 `default:"0.9" above:"0" max:"1"`
	// MakeWeights fills matrices with random numbers made on the device instead of the model's
	// weights, to measure the speed of a shape without a model. The output is meaningless.
	MakeWeights bool
	// Progress is called while weights are uploaded, with the bytes uploaded so far and the bytes
	// to upload in all.
	Progress func(done, total int)

	PageTokens int `default:"16" min:"1" max:"256" pow2:""` // tokens per page, a power of two up to 256; default 16
	Pages      int `min:"0" max:"1<<24"`                    // pages of the pool; if Pages and KVTokens are 0, as many as fit into the remaining memory
	KVTokens   int // if Pages is 0: the least number of tokens that the pool holds
	MaxSlots   int `default:"256" min:"1" max:"1<<14"`  // slots are in [0, MaxSlots); default 256
	MaxRows    int `default:"256" min:"1" max:"1<<12"`  // rows per batch; default 256
	MaxTokens  int `default:"8192" min:"1" max:"65535"` // tokens per batch; default 8192; at most a block for each in a grid
	// MaxInflight is how many batches may be pending; default 3: one runs, one is queued, one is
	// planned.
	MaxInflight int `default:"3" min:"2" max:"64"`
	// MaxMoves is how many moves of pages may be pending; default 64.
	MaxMoves int `default:"64" min:"1" max:"1<<16"`
	// NoGraphs launches all kernels one by one, for comparison. Otherwise the kernels of a step of
	// decoding rows are launched as one graph, if the driver supports graphs.
	NoGraphs bool
	// StepTimeout bounds the time that passes without the end of any batch or move while some are
	// queued; default 2 minutes. After that the device counts as lost. The longest step takes
	// seconds.
	StepTimeout time.Duration `default:"2m" above:"0s"`
}

const maxPages = 1 << 24 // of a pool

// WithDefaults returns c with defaults for the fields that are zero, except Pages and KVTokens. If
// Pages is 0 it is set from KVTokens.
func (c Config) WithDefaults() Config {
	c = bounds.Fill(c)
	c.Pages = intake.PoolPages(c.Pages, c.KVTokens, c.PageTokens)
	return c
}

// maxMasks is the number of masks that the device keeps: one for each row in flight, and at least
// 256, so that later rows may reuse masks.
func (c *Config) maxMasks() int { return max(c.MaxRows*c.MaxInflight, 256) }

// Validate returns an error that names all invalid fields of a config with defaults, or nil.
func (c Config) Validate() error {
	err := bounds.Check("cuda", c)
	if c.Driver == nil {
		err = errors.Join(errors.New("cuda: Driver is nil"), err)
	}
	return err
}
