package dirmem

import (
	"errors"
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/internal/mempool/blockio"
	"github.com/coppice-llm/coppice/mempool"
)

// Defaults of a [Config]. A lease lasts three rounds, so that one slow round does not lose it.
// Between two rounds, other processes may write beyond the quota.
const (
	DefaultWorkers = 4
	DefaultMaxOps  = 256
	DefaultRound   = 30 * time.Second
	DefaultHigh    = 0.90
	DefaultLow     = 0.85
)

// Config configures a store. Dir, Identity and Bytes are required.
type Config struct {
	Dir      string // created if it does not exist
	Identity mempool.Identity
	Bytes    int64         // quota of the directory; must be the same in all processes
	High     float64       // fraction of Bytes above which the keeper removes records
	Low      float64       // fraction of Bytes down to which it removes them
	Round    time.Duration // time between two listings of the directory; a lease lasts three
	Workers  int           // goroutines that read and write
	MaxOps   int           // most open operations

	// Inject plants faults in tests.
	Inject *blockio.Injector
	quiet  bool // no rounds by itself: tests call round
}

// WithDefaults returns c with defaults for the fields that are zero.
func (c Config) WithDefaults() Config {
	if c.High == 0 {
		c.High = DefaultHigh
	}
	if c.Low == 0 {
		c.Low = min(DefaultLow, c.High)
	}
	if c.Round == 0 {
		c.Round = DefaultRound
	}
	if c.Workers == 0 {
		c.Workers = DefaultWorkers
	}
	if c.MaxOps == 0 {
		c.MaxOps = DefaultMaxOps
	}
	return c
}

// Validate returns an error that names all invalid fields, or nil.
func (c *Config) Validate() error {
	errs := []error{c.Identity.Validate()}
	if c.Dir == "" {
		errs = append(errs, errors.New("dirmem: Dir is empty"))
	}
	if c.Workers < 1 || c.MaxOps < 1 || c.Round <= 0 {
		errs = append(errs, fmt.Errorf("dirmem: Workers is %d, MaxOps %d, Round %v, want more than 0", c.Workers, c.MaxOps, c.Round))
	}
	if !(0 < c.Low && c.Low <= c.High && c.High <= 1) {
		errs = append(errs, fmt.Errorf("dirmem: Low is %v, High %v, want 0 < Low <= High <= 1", c.Low, c.High))
	}
	if errs[0] == nil {
		if f := c.format(); c.Bytes < int64(f.SlotBytes()) {
			errs = append(errs, fmt.Errorf("dirmem: Bytes is %d, a record has %d", c.Bytes, f.SlotBytes()))
		}
	}
	return errors.Join(errs...)
}

func (c *Config) format() mempool.Format {
	return mempool.Format{Fingerprint: c.Identity.Fingerprint(), Layout: c.Identity.Layout}
}
