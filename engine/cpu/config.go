package cpu

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/coppice-llm/coppice/internal/engine/intake"
	"github.com/coppice-llm/coppice/kv"
)

// Config sizes a backend. Pages or KVTokens is required; zero in any other field means its
// default, which the field's comment names.
type Config struct {
	PageTokens int // tokens per page, a power of two up to 256; default 16
	Pages      int // pages of the pool
	KVTokens   int // smallest capacity of the pool in tokens; used if Pages is 0
	MaxSlots   int // slots are in [0, MaxSlots); default 64
	MaxRows    int // rows per batch; default 64
	MaxTokens  int // tokens per batch (vLLM: max_num_batched_tokens); default 512
	// MaxInflight is how many batches may be pending; default 2: one runs while the next is planned.
	MaxInflight int
	// MaxMoves is how many moves of pages may be pending; default 64.
	MaxMoves int
	Threads  int // goroutines that compute; default GOMAXPROCS
	// KVType is the stored type of K and V: F32, F16, BF16 or Q8_0; default F32. Q8_0 needs a head
	// dim that is a multiple of 32.
	KVType kv.DType
	// ISA forces a path of the kernels. If it is empty, Open takes the path named by the
	// environment variable COPPICE_CPU, else the fastest one that the machine has.
	ISA ISA

	widen bool // widen quantised weights to f32 when packing, for tests
}

// WithDefaults returns c with every zero field except Pages and KVTokens set to its default,
// and with Pages, if zero, computed from KVTokens.
func (c Config) WithDefaults() Config {
	c.size().Fill(intake.Limits{MaxSlots: 64, MaxRows: 64, MaxTokens: 512, MaxInflight: 2, MaxMoves: 64})
	c.Threads = cmp.Or(c.Threads, runtime.GOMAXPROCS(0))
	return c
}

// maxMasks is the number of grammar masks that the backend keeps: one for each row in flight, and
// at least 256, so that masks which are used repeatedly need not be set again.
func (c *Config) maxMasks() int { return max(c.MaxRows*c.MaxInflight, 256) }

// size points to the fields that all backends share, for package intake to fill and validate.
func (c *Config) size() intake.Size {
	return intake.Size{
		PageTokens: &c.PageTokens, Pages: &c.Pages, KVTokens: &c.KVTokens, MaxSlots: &c.MaxSlots, MaxRows: &c.MaxRows,
		MaxTokens: &c.MaxTokens, MaxInflight: &c.MaxInflight, MaxMoves: &c.MaxMoves,
	}
}

// Validate returns an error that names every invalid field with its value, or nil. Call it on
// the result of WithDefaults.
func (c Config) Validate() error {
	errs := []error{c.size().Validate("cpu", intake.Limits{Pages: 1 << 30, MaxSlots: 1 << 16, MaxRows: 1 << 12, MaxTokens: 1 << 16, MaxInflight: 64, MaxMoves: 1 << 16})}
	if c.Threads < 1 || c.Threads > 1024 {
		errs = append(errs, fmt.Errorf("cpu: Threads is %d, want 1 to 1024", c.Threads))
	}
	if !slices.Contains(kvTypes, c.KVType) {
		errs = append(errs, fmt.Errorf("cpu: KVType is %v, want one of %v", c.KVType, kvTypes))
	}
	if isa := c.ISA; isa != "" {
		if err := isa.UnmarshalText([]byte(isa)); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
