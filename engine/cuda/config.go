package cuda

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/cuda/kernels"
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
	// BF16Weights rounds all matrices to bf16. Otherwise those of type Q8_0, Q4_K and Q6_K stay quantised
	// on the device. The results are the same bits.
	BF16Weights bool
	// Progress is called while weights are uploaded, with the bytes uploaded so far and the bytes
	// to upload in all.
	Progress func(done, total int)

	PageTokens int `default:"16" min:"1" max:"256" pow2:""` // tokens per page, a power of two up to 256; default 16
	Pages      int `min:"0" max:"1<<24"`                    // pages of the pool; if Pages and KVTokens are 0, as many as fit into the remaining memory
	KVTokens   int // if Pages is 0: the least number of tokens that the pool holds
	// Pool is device memory for the pool, which the caller has allocated. Without it, Open allocates.
	Pool      PoolMemory
	MaxSlots  int `default:"256" min:"1" max:"1<<14"`  // slots are in [0, MaxSlots); default 256
	MaxRows   int `default:"256" min:"1" max:"1<<12"`  // rows per batch; default 256
	MaxTokens int `default:"8192" min:"1" max:"65535"` // tokens per batch; default 8192; at most a block for each in a grid
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
	// Log receives a warning for each graph that the driver does not make, and for each step that fails for lack of
	// memory. Default: nothing is logged.
	Log *slog.Logger

	statesMost int // bound of the buffer of split states in bytes, unless one token needs more; default 256 MiB
}

const maxPages = 1 << 24 // of a pool

// PoolMemory is device memory for the pool of pages that the caller brings, for example a part of what
// another library has allocated in the device's primary context. Open sets it to zero. If Config.Pages and
// KVTokens are 0, the pool takes as many pages as fit.
type PoolMemory struct {
	Address cudrv.Ptr // a multiple of 256; 0: the backend allocates the pool
	Bytes   int
	// Owner is kept alive until the backend has been closed, so that a finalizer that frees the memory does not run
	// before. The backend does not use it.
	Owner any
}

// fitPool sets the number of pages from the memory that the caller brings. It fails with ErrMemory if this is
// too small.
func (d *device) fitPool() error {
	p, page := &d.cfg.Pool, 2*d.pageElements
	if p.Address == 0 {
		return nil
	}
	fit := min(p.Bytes/page, maxPages)
	if d.cfg.Pages == 0 {
		d.cfg.Pages = fit
	}
	if fit == 0 || d.cfg.Pages > fit {
		return fmt.Errorf("%w: the memory for the pool has %s, the pool takes %s", ErrMemory, size(p.Bytes), size(max(d.cfg.Pages, 1)*page))
	}
	return nil
}

// WithDefaults returns c with defaults for the fields that are zero, except Pages and KVTokens. If
// Pages is 0 it is set from KVTokens.
func (c Config) WithDefaults() Config {
	c = bounds.Fill(c)
	c.Pages = intake.PoolPages(c.Pages, c.KVTokens, c.PageTokens)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.statesMost = cmp.Or(c.statesMost, 256<<20)
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
	if p := &c.Pool; p.Address%256 != 0 || p.Address != 0 && p.Bytes <= 0 || p.Address == 0 && p.Bytes != 0 {
		err = errors.Join(err, fmt.Errorf("cuda: Pool has %d bytes at %#x, want some at a multiple of 256", p.Bytes, p.Address))
	}
	return err
}

// Reasons why a device can't be used, besides cudrv.ErrNoDevice.
var (
	ErrOld    = errors.New("cuda: too old")
	ErrMemory = errors.New("cuda: too little memory")
)

// Requirements of the kernels' PTX.
const (
	minCUDA   = 13000 // PTX 9.0
	minDriver = 580   // NVIDIA's number of the first driver for it
	minMajor  = 8     // bf16 on tensor cores, cp.async
)

// Usable returns an error if device i of driver d can't run the kernels for heads of headDim: ErrOld,
// cudrv.ErrNoDevice or the driver's own.
func Usable(d cudrv.Driver, i, headDim int) error {
	version, err := d.Version()
	if err != nil {
		return err
	}
	if version < minCUDA {
		return fmt.Errorf("%w: the driver supports CUDA %d.%d, the kernels need %d.%d, NVIDIA's driver %d",
			ErrOld, version/1000, version%1000/10, minCUDA/1000, minCUDA%1000/10, minDriver)
	}
	n, err := d.Devices()
	if err != nil {
		return err
	}
	if i < 0 || i >= n {
		return fmt.Errorf("%w: GPU %d, the driver has %d, counted from 0", cudrv.ErrNoDevice, i, n)
	}
	p, err := d.Properties(i)
	if err != nil {
		return err
	}
	if p.Major < minMajor {
		return fmt.Errorf("%w: GPU %d (%s) has compute capability %d.%d, the kernels need %d.0", ErrOld, i, p.Name, p.Major, p.Minor, minMajor)
	}
	if need := kernels.TileBytes(headDim); p.SharedPerBlock < need {
		return fmt.Errorf("%w: GPU %d (%s) has %d bytes of shared memory for a block, attention needs %d", ErrOld, i, p.Name, p.SharedPerBlock, need)
	}
	return nil
}

// budget checks that weights of weightBytes, the buffers and the pool fit into memory. It sets the
// size of the pool if the configuration leaves it open. The error wraps ErrMemory.
func (d *device) budget(weightBytes int) error {
	free, total, err := d.ctx.MemInfo()
	if err != nil {
		return err
	}
	bufferBytes := 0
	for _, b := range d.buffers() {
		bufferBytes += (b.n + allocUnit - 1) / allocUnit * allocUnit
	}
	page := 2 * d.pageElements
	if d.cfg.Pool.Address != 0 {
		page = 0 // in use already
	}
	left := free - int(float64(total)*(1-d.cfg.MemoryFraction)) - weightBytes - bufferBytes
	pages := d.cfg.Pages
	if pages == 0 { // never with memory of the caller
		pages = min(max(left/page, 0), maxPages)
	}
	if pages == 0 || pages*page > left {
		return fmt.Errorf("%w: GPU %d has %s free of %s, of which %.0f%% may be used; weights take %s, buffers %s, the pool %s",
			ErrMemory, d.cfg.Device, size(free), size(total), 100*d.cfg.MemoryFraction, size(weightBytes), size(bufferBytes), size(max(pages, 1)*page))
	}
	d.cfg.Pages = pages
	return nil
}

// size formats a number of bytes with a unit.
func size(n int) string {
	if n >= 1<<30 {
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
