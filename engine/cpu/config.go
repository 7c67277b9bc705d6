package cpu

import (
	"errors"
	"fmt"
	"runtime"

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
	// MaxTransfers calls of Transfer may be pending; 64.
	MaxTransfers int
	Threads      int // goroutines that compute; GOMAXPROCS
	// ISA forces a path of the kernels. Empty: what the environment variable
	// COPPICE_CPU names (read by Open), else the fastest that the machine has.
	ISA ISA

	widen bool // quantised weights are widened to f32, for tests
}

// WithDefaults is c with every zero field but Pages and KVTokens filled in, and
// Pages set from KVTokens.
func (c Config) WithDefaults() Config {
	set := func(field *int, v int) {
		if *field == 0 {
			*field = v
		}
	}
	set(&c.PageTokens, 16)
	if c.Pages == 0 && c.KVTokens > 0 && c.PageTokens > 0 {
		c.Pages = kv.CeilPages(c.KVTokens, c.PageTokens)
	}
	set(&c.MaxSlots, 64)
	set(&c.MaxRows, 64)
	set(&c.MaxTokens, 512)
	set(&c.MaxInflight, 2)
	set(&c.MaxTransfers, 64)
	set(&c.Threads, runtime.GOMAXPROCS(0))
	return c
}

// Validate reports every field of a config with defaults that no backend can
// have, by name and value.
func (c Config) Validate() error {
	var errs []error
	within := func(field string, v, lo, hi int) {
		if v < lo || v > hi {
			errs = append(errs, fmt.Errorf("cpu: %s is %d, want %d to %d", field, v, lo, hi))
		}
	}
	within("PageTokens", c.PageTokens, 1, 256)
	if c.PageTokens > 0 && c.PageTokens&(c.PageTokens-1) != 0 {
		errs = append(errs, fmt.Errorf("cpu: PageTokens is %d, want a power of two", c.PageTokens))
	}
	if c.Pages == 0 {
		errs = append(errs, errors.New("cpu: Pages and KVTokens are 0, set one of them"))
	} else {
		within("Pages", c.Pages, 1, 1<<30)
	}
	within("MaxSlots", c.MaxSlots, 1, 1<<16)
	within("MaxRows", c.MaxRows, 1, 1<<12)
	within("MaxTokens", c.MaxTokens, 1, 1<<16)
	within("MaxInflight", c.MaxInflight, 2, 64)
	within("MaxTransfers", c.MaxTransfers, 1, 1<<16)
	within("Threads", c.Threads, 1, 1024)
	if isa := c.ISA; isa != "" {
		if err := isa.UnmarshalText([]byte(isa)); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
