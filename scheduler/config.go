package scheduler

import (
	"errors"
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/radixcache"
)

// Config sets limits and policy. The zero value serves.
type Config struct {
	// Policy orders the waiting requests. Default FCFS.
	Policy Policy
	// MaxQueued bounds the waiting requests; Add refuses beyond it. Default 1024.
	MaxQueued int
	// MaxRunning bounds the admitted requests. Default and maximum: the
	// backend's slots and rows.
	MaxRunning int
	// StepTokens is the token budget of a step, decode rows first. It bounds the
	// inter-token latency that a long prompt can cause. Default 256, at most the
	// backend's MaxTokens.
	StepTokens int
	// DefaultMaxTokens is the output limit of requests that set none. Default 256.
	DefaultMaxTokens int
	// ShareTokens: a waiting request whose prompt shares at least so many more
	// tokens with a prompt that is being computed than with the cache waits for
	// them instead of computing them too. Default 32.
	ShareTokens int
	// MaxBypass bounds starvation under LPM: a request that so many later ones
	// have overtaken is next. Default 64.
	MaxBypass int

	// DisableCache computes every prompt whole and stores nothing.
	DisableCache bool
	// BlockTokens is the block size of cache events. Default 16, or a page if
	// that is larger.
	BlockTokens int
	// Events turns the journal of cache events, and the hashing for it, on.
	Events bool

	// LeaseLowPages, LeaseBulkPages and LeaseHighPages steer the lease: with
	// fewer idle pages than Low it asks the pool for Bulk more; idle pages above
	// High go back. Defaults 1/16, 1/8 and 1/2 of the pool.
	LeaseLowPages, LeaseBulkPages, LeaseHighPages int
}

// WithDefaults fills what is zero, for a backend described by info.
func (c Config) WithDefaults(info engine.Info) Config {
	set := func(field *int, value int) {
		if *field == 0 {
			*field = max(value, 1)
		}
	}
	set(&c.MaxQueued, 1024)
	set(&c.MaxRunning, min(info.MaxSlots, info.MaxRows))
	set(&c.StepTokens, min(256, info.MaxTokens))
	set(&c.DefaultMaxTokens, 256)
	set(&c.ShareTokens, 32)
	set(&c.MaxBypass, 64)
	set(&c.BlockTokens, max(16, info.PageTokens))
	set(&c.LeaseLowPages, info.NumPages/16)
	set(&c.LeaseBulkPages, info.NumPages/8)
	set(&c.LeaseHighPages, info.NumPages/2)
	return c
}

// Validate reports all faults at once, by field and value. It expects defaults
// to be filled in.
func (c Config) Validate(info engine.Info) error {
	var errs []error
	within := func(field string, v, lo, hi int) {
		if v < lo || v > hi {
			errs = append(errs, fmt.Errorf("scheduler: %s is %d, want %d to %d", field, v, lo, hi))
		}
	}
	const many = 1 << 30
	if !slices.Contains(policies, c.Policy) {
		errs = append(errs, fmt.Errorf("scheduler: Policy is %d, want one of %v", c.Policy, policies))
	}
	within("MaxQueued", c.MaxQueued, 1, many)
	within("MaxRunning", c.MaxRunning, 1, min(info.MaxSlots, info.MaxRows))
	within("StepTokens", c.StepTokens, 1, info.MaxTokens)
	within("DefaultMaxTokens", c.DefaultMaxTokens, 1, many)
	within("ShareTokens", c.ShareTokens, 1, many)
	within("MaxBypass", c.MaxBypass, 1, many)
	within("LeaseLowPages", c.LeaseLowPages, 1, info.NumPages)
	within("LeaseBulkPages", c.LeaseBulkPages, 1, info.NumPages)
	within("LeaseHighPages", c.LeaseHighPages, c.LeaseLowPages, info.NumPages)
	if err := c.cache(info).Validate(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (c Config) cache(info engine.Info) radixcache.Config {
	return radixcache.Config{PageTokens: info.PageTokens, BlockTokens: c.BlockTokens, Events: c.Events}
}

// Policy orders the waiting requests.
type Policy uint8

const (
	// FCFS serves in order of arrival.
	FCFS Policy = iota
	// LPM serves the longest cached prefix first (SGLang's lpm), so that what is
	// cached is used before it is evicted; MaxBypass bounds the waiting.
	LPM
)

var (
	policies    = []Policy{FCFS, LPM}
	policyNames = []string{"fcfs", "lpm"}
)

func (p Policy) String() string {
	if int(p) < len(policyNames) {
		return policyNames[p]
	}
	return fmt.Sprintf("policy(%d)", uint8(p))
}

// UnmarshalText reads a policy's name.
func (p *Policy) UnmarshalText(text []byte) error {
	i := slices.Index(policyNames, string(text))
	if i < 0 {
		return fmt.Errorf("scheduler: unknown policy %q, want one of %v", text, policyNames)
	}
	*p = policies[i]
	return nil
}
