package dispatch

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/gateway/internal/global"
	"github.com/coppice-llm/coppice/gateway/internal/residency"
	"github.com/coppice-llm/coppice/router"
)

// Config configures how a [Dispatcher] chooses.
type Config struct {
	Router router.Config    // with defaults filled in
	Index  residency.Config // bounds of the index
	// GuessTTL is how long a prompt counts as cached where it was sent, for workers without
	// events.
	GuessTTL time.Duration
	// Pools chooses the pool of a request by its length and targets; nil: no such pools.
	Pools *global.Config
	// Buckets is an alternative to Pools: all workers are divided into this many pools. Stage
	// says how the pool of a request is chosen.
	Buckets int
	Stage   router.Staging
	Log     *zap.Logger // default: none
	Record  bool        // Ask.Seen is wanted
}

// ValidatePools reports all faults of Pools and Buckets.
func (c *Config) ValidatePools() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("gateway: "+format, args...)) }
	if c.Buckets < 0 || c.Buckets > router.MaxBuckets {
		bad("Buckets is %d, want 1 to %d, or 0 for none", c.Buckets, router.MaxBuckets)
	}
	p := c.Pools
	if p == nil {
		return errors.Join(errs...)
	}
	if c.Buckets != 0 {
		bad("both Pools and Buckets are given: workers are in one pool each, want one of the two")
	}
	errs = append(errs, p.Validate())
	for i, name := range p.Aggregated.Names {
		if err := card.CheckPool(name); err != nil {
			bad("pool %d: %w", i, err)
		}
		if slices.Index(p.Aggregated.Names, name) < i {
			bad("pool %d is called %.100q as another one is, want a name for each", i, name)
		}
	}
	return errors.Join(errs...)
}
