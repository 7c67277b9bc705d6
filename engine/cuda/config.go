package cuda

import (
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/kv"
)

// Config sizes a backend. Driver, and Pages or KVTokens, are required; 0
// elsewhere means the default.
type Config struct {
	Driver cudrv.Driver
	Device int // of the driver

	PageTokens int // slots per page, a power of two up to 256; 16
	Pages      int // pages of the pool
	KVTokens   int // used if Pages is 0: the pool holds at least so many tokens
	MaxSlots   int // sequences with sampling state; 256
	MaxRows    int // per batch; 256
	MaxTokens  int // per batch; 8192
	// MaxInflight batches may be pending; 3: one runs, one is queued, one is planned.
	MaxInflight int
	// MaxTransfers calls of Transfer may be pending; 64.
	MaxTransfers int
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
	set(&c.MaxSlots, 256)
	set(&c.MaxRows, 256)
	set(&c.MaxTokens, 8192)
	set(&c.MaxInflight, 3)
	set(&c.MaxTransfers, 64)
	return c
}

// Validate reports every field of a config with defaults that no backend can
// have, by name and value.
func (c Config) Validate() error {
	var errs []error
	within := func(field string, v, lo, hi int) {
		if v < lo || v > hi {
			errs = append(errs, fmt.Errorf("cuda: %s is %d, want %d to %d", field, v, lo, hi))
		}
	}
	if c.Driver == nil {
		errs = append(errs, errors.New("cuda: Driver is nil"))
	}
	within("PageTokens", c.PageTokens, 1, 256)
	if c.PageTokens > 0 && c.PageTokens&(c.PageTokens-1) != 0 {
		errs = append(errs, fmt.Errorf("cuda: PageTokens is %d, want a power of two", c.PageTokens))
	}
	if c.Pages == 0 {
		errs = append(errs, errors.New("cuda: Pages and KVTokens are 0, set one of them"))
	} else {
		within("Pages", c.Pages, 1, 1<<24)
	}
	within("MaxSlots", c.MaxSlots, 1, 1<<14)
	within("MaxRows", c.MaxRows, 1, 1<<12)
	within("MaxTokens", c.MaxTokens, 1, 1<<16)
	within("MaxInflight", c.MaxInflight, 2, 64)
	within("MaxTransfers", c.MaxTransfers, 1, 1<<16)
	return errors.Join(errs...)
}
