package dirmem

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/internal/blockio"
	"github.com/coppice-llm/coppice/mempool/internal/record"
)

const (
	defaultLow    = 0.85
	defaultForget = time.Minute
)

// Config configures a store. Dir, Identity and Bytes are required.
type Config struct {
	Dir      string // created if it does not exist
	Identity mempool.Identity
	Sealer   *record.Sealer // if Identity.Sealed; else nil
	Bytes    int64          // quota of the directory; all processes use the one that its IdentityFile records
	Shrink   bool           // a smaller quota than the recorded one replaces it
	High     float64        `default:"0.90" above:"0" max:"1"` // fraction of Bytes above which the keeper removes records
	Low      float64        `above:"0" max:"1"`                // fraction of Bytes down to which it removes them; default 0.85, at most High
	// Round is the time between two listings of the directory, in which other processes may
	// write beyond the quota. A lease lasts three rounds, so that one slow round does not
	// lose it.
	Round   time.Duration `default:"30s" above:"0s"`
	Workers int           `default:"4" min:"1"`   // goroutines that read and write
	MaxOps  int           `default:"256" min:"1"` // most open operations
	// Upkeep, unless nil, is called when rounds begin to fail, with the error, and with nil when
	// they succeed again. It is called from the goroutine of the rounds and must not block.
	Upkeep func(err error)

	// Inject plants faults in tests.
	Inject *blockio.Injector
	quiet  bool          // no rounds by itself: tests call round
	forget time.Duration // how long a record that this process failed to read counts as missing
}

// WithDefaults returns c with defaults for the fields that are zero.
func (c Config) WithDefaults() Config {
	c = bounds.Fill(c)
	c.Low = cmp.Or(c.Low, min(defaultLow, c.High))
	c.forget = cmp.Or(c.forget, defaultForget)
	return c
}

// Validate returns an error that names all invalid fields, or nil.
func (c *Config) Validate() error {
	errs := []error{errors.Join(c.Identity.Validate(), c.Sealer.Check(&c.Identity)), bounds.Check("dirmem", c)}
	if c.Dir == "" {
		errs = append(errs, errors.New("dirmem: Dir is empty"))
	}
	if c.Low > c.High {
		errs = append(errs, fmt.Errorf("dirmem: Low is %v, want at most High, %v", c.Low, c.High))
	}
	if errs[0] == nil {
		if f := record.FormatOf(&c.Identity, c.Sealer); c.Bytes < int64(f.SlotBytes()) {
			errs = append(errs, fmt.Errorf("dirmem: Bytes is %d, a record has %d", c.Bytes, f.SlotBytes()))
		}
	}
	return errors.Join(errs...)
}
