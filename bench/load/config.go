package load

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coppice-llm/coppice/internal/bounds"
)

// Config sizes one run. Exactly one of Concurrency, Arrivals and Timed must be set: it
// decides when sessions begin. Zero means the default for the other fields.
type Config struct {
	Concurrency int       `min:"0" max:"1<<16"` // closed loop with this number of concurrent sessions
	Arrivals    *Arrivals // open loop with a rate
	Timed       bool      // open loop with the times of the data set
	// MaxConcurrency limits the concurrent requests of an open loop. A request that is
	// due waits until another has ended. Its figures begin when it is sent, as in vLLM;
	// the delay is in Result.Lag. Default: no limit.
	MaxConcurrency int `min:"0"`

	Requests int           `min:"0"`                // number of requests to send. Default: the whole data set
	Duration time.Duration `min:"0s"`               // no request begins after it; those in flight are finished. Default: no limit
	Timeout  time.Duration `default:"10m" min:"0s"` // of a request. Default 10 minutes

	Warmup    int     `min:"0"` // requests before the run, one after another, not counted
	WarmupSet Dataset // their data set, so that the warm-up does not cache the run's prompts

	Percentiles []float64   // above 0, at most 100. Default 99
	Objectives  *Objectives // if set, goodput is computed
}

// WithDefaults returns a copy with the defaults in place of zeros.
func (c Config) WithDefaults() Config {
	c = bounds.Fill(c)
	if len(c.Percentiles) == 0 {
		c.Percentiles = []float64{99}
	}
	if c.Arrivals != nil {
		a := c.Arrivals.WithDefaults()
		c.Arrivals = &a
	}
	return c
}

// Validate reports all faults at once, for a run with data set d.
func (c *Config) Validate(d Dataset) error {
	faults := bounds.Faults{Owner: "load: "}
	faults.Add(bounds.Check("load", c))
	ways := 0
	for _, on := range []bool{c.Concurrency != 0, c.Arrivals != nil, c.Timed} {
		if on {
			ways++
		}
	}
	faults.If(ways != 1, "%d of Concurrency, Arrivals and Timed are set, want one", ways)
	faults.If(c.MaxConcurrency > 0 && c.Concurrency > 0, "MaxConcurrency is %d, want 0 in a closed loop", c.MaxConcurrency)
	faults.If(c.Warmup > 0 && c.WarmupSet == nil, "Warmup is %d, want a WarmupSet", c.Warmup)
	faults.If(c.Requests == 0 && c.Duration == 0 && d.Sessions() == 0, "the data set has no end: want Requests or Duration")
	for _, p := range c.Percentiles {
		faults.If(!(p > 0 && p <= 100), "a percentile is %v, want more than 0 and at most 100", p)
	}
	sorted := slices.Sorted(slices.Values(c.Percentiles))
	faults.If(len(slices.Compact(sorted)) != len(c.Percentiles), "a percentile appears twice in %v", c.Percentiles)
	if a := c.Arrivals; a != nil {
		faults.Add(a.validate(c.Duration, c.sessions(d)))
	}
	return faults.Err()
}

// sessions returns the number of sessions that an open loop plans for data set d: enough for
// Requests if that is set; else 0 if Duration is set, which means as many as arrive within
// Duration; else all sessions of d.
func (c *Config) sessions(d Dataset) int {
	switch {
	case c.Requests > 0:
		fewest, _ := d.Requests()
		return (c.Requests-1)/fewest + 1
	case c.Duration > 0:
		return 0
	}
	return d.Sessions()
}

// Objectives are upper limits for the latencies of a request (SLOs). A request that
// meets all of them counts for goodput. 0 means no limit. Source of the term: DistServe,
// Zhong et al., OSDI 2024.
type Objectives struct {
	TTFT time.Duration
	TPOT time.Duration
	ITL  time.Duration // for every single gap
	E2EL time.Duration
}

// UnmarshalText parses a list such as ttft:200ms,itl:50ms.
func (o *Objectives) UnmarshalText(text []byte) error {
	*o = Objectives{}
	for _, part := range strings.Split(string(text), ",") {
		name, limit, _ := strings.Cut(strings.TrimSpace(part), ":")
		field, known := map[string]*time.Duration{"ttft": &o.TTFT, "tpot": &o.TPOT, "itl": &o.ITL, "e2el": &o.E2EL}[name]
		d, err := time.ParseDuration(limit)
		if !known || err != nil || d <= 0 || *field != 0 {
			return fmt.Errorf("load: objective %q, want each of ttft, tpot, itl and e2el at most once, as ttft:200ms,itl:50ms", part)
		}
		*field = d
	}
	return nil
}

// String returns the list in the format of UnmarshalText.
func (o Objectives) String() string {
	var parts []string
	for _, f := range []struct {
		name  string
		limit time.Duration
	}{{"ttft", o.TTFT}, {"tpot", o.TPOT}, {"itl", o.ITL}, {"e2el", o.E2EL}} {
		if f.limit > 0 {
			parts = append(parts, f.name+":"+f.limit.String())
		}
	}
	return strings.Join(parts, ",")
}

// met reports whether s, a request that did not fail, met all objectives.
func (o *Objectives) met(s *sample) bool {
	tpot, _ := s.tpot()
	if over(s.ttft, o.TTFT) || over(tpot, o.TPOT) || over(s.e2el, o.E2EL) {
		return false
	}
	for _, gap := range s.gaps {
		if over(gap, o.ITL) {
			return false
		}
	}
	return true
}

// over reports whether d exceeds a limit; 0 is no limit.
func over(d, limit time.Duration) bool { return limit > 0 && d > limit }
