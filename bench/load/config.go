package load

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Config is one run. Exactly one of Concurrency, Arrivals and Timed says when
// sessions begin; zeros elsewhere are the defaults.
type Config struct {
	Concurrency int       // closed loop: so many sessions at a time
	Arrivals    *Arrivals // open loop by a rate
	Timed       bool      // open loop by the data set's own times
	// MaxConcurrency is how many requests may be out at a time in an open loop. A
	// request that is due waits for another to end, and its figures begin when it is
	// sent, as in vLLM; how late that was is in Result.Lag. Default: any number.
	MaxConcurrency int

	Requests int           // how many are sent. Default: all of the data set
	Duration time.Duration // no request begins after it; what is out then is waited for. Default: no limit
	Timeout  time.Duration // of a request. Default 10 minutes

	Warmup    int     // requests before the run, one after another, that are not counted
	WarmupSet Dataset // what they are, so that the run's own prompts are not cached by them

	Percentiles []float64   // above 0, at most 100. Default 99
	Objectives  *Objectives // goodput is counted if they are there
}

// MaxConcurrency is the most sessions that a closed loop has at a time.
const MaxConcurrency = 1 << 16

// WithDefaults fills zeros in.
func (c Config) WithDefaults() Config {
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Minute
	}
	if len(c.Percentiles) == 0 {
		c.Percentiles = []float64{99}
	}
	if c.Arrivals != nil {
		a := c.Arrivals.WithDefaults()
		c.Arrivals = &a
	}
	return c
}

// Validate reports all that is wrong at once, d being what is played.
func (c *Config) Validate(d Dataset) error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf("load: "+format, args...)) }
	ways := 0
	for _, on := range []bool{c.Concurrency != 0, c.Arrivals != nil, c.Timed} {
		if on {
			ways++
		}
	}
	if ways != 1 {
		fail("%d of Concurrency, Arrivals and Timed are set, want one", ways)
	}
	if c.Concurrency < 0 || c.Concurrency > MaxConcurrency {
		fail("Concurrency is %d, want 1 to %d", c.Concurrency, MaxConcurrency)
	}
	if c.MaxConcurrency < 0 || c.MaxConcurrency > 0 && c.Concurrency > 0 {
		fail("MaxConcurrency is %d, want at least 1, and an open loop", c.MaxConcurrency)
	}
	if c.Requests < 0 || c.Duration < 0 || c.Timeout < 0 || c.Warmup < 0 {
		fail("Requests is %d, Duration %v, Timeout %v, Warmup %d, want none below 0", c.Requests, c.Duration, c.Timeout, c.Warmup)
	}
	if c.Warmup > 0 && c.WarmupSet == nil {
		fail("Warmup is %d, want a WarmupSet", c.Warmup)
	}
	if c.Requests == 0 && c.Duration == 0 && d.Sessions() == 0 {
		fail("the data set has no end: want Requests or Duration")
	}
	for _, p := range c.Percentiles {
		if !(p > 0 && p <= 100) {
			fail("a percentile is %v, want more than 0 and at most 100", p)
		}
	}
	if sorted := slices.Sorted(slices.Values(c.Percentiles)); len(slices.Compact(sorted)) != len(c.Percentiles) {
		fail("a percentile comes twice in %v", c.Percentiles)
	}
	if a := c.Arrivals; a != nil {
		errs = append(errs, a.validate(c.Duration, c.sessions(d)))
	}
	return errors.Join(errs...)
}

// sessions is how many an open loop plans, 0 for as many as Duration has room for.
func (c *Config) sessions(d Dataset) int {
	switch {
	case c.Requests > 0:
		return (c.Requests-1)/d.Turns() + 1
	case c.Duration > 0:
		return 0
	}
	return d.Sessions()
}
