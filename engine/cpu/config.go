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

// Config sizes a backend. Pages or KVTokens is required; 0 elsewhere means the
// default.
type Config struct {
	PageTokens int // slots per page, a power of two up to 256; 16
	Pages      int // pages of the pool
	KVTokens   int // used if Pages is 0: the pool holds at least so many tokens
	MaxSlots   int // sequences with sampling state; 64
	MaxRows    int // per batch; 64
	MaxTokens  int // per batch; 512, some tenths of a second of the demo model
	// MaxInflight batches may be pending; 2: one runs while the next is planned.
	MaxInflight int
	// MaxMoves may be pending; 64.
	MaxMoves int
	Threads  int // goroutines that compute; GOMAXPROCS
	// KVType is what K and V are rounded to in pages: F32, F16, BF16 or Q8_0, whose heads
	// are of a multiple of 32. Default: F32.
	KVType kv.DType
	// ISA forces a path of the kernels. Empty: what the environment variable
	// COPPICE_CPU names (read by Open), else the fastest that the machine has.
	ISA ISA

	widen bool // quantised weights are widened to f32, for tests
}

// WithDefaults is c with every zero field but Pages and KVTokens filled in, and
// Pages set from KVTokens.
func (c Config) WithDefaults() Config {
	c.size().Fill(intake.Limits{MaxSlots: 64, MaxRows: 64, MaxTokens: 512, MaxInflight: 2, MaxMoves: 64})
	c.Threads = cmp.Or(c.Threads, runtime.GOMAXPROCS(0))
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
