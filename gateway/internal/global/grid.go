package global

import (
	"errors"
	"fmt"
	"math"
)

// ErrQuery is wrapped by all errors about a query.
var ErrQuery = errors.New("global: bad query")

// Axis divides [Min, Max] into Resolution equal steps.
type Axis struct {
	Min, Max   float64
	Resolution int
}

// Index returns the step that contains v: trunc((v − Min)/step), where step is (Max −
// Min)/Resolution, in float64. Values below the axis are in the first step, values at its end or
// above in the last. A value that is not finite gives an error that wraps [ErrQuery].
func (a Axis) Index(v float64) (int, error) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%w: %v is not a finite number", ErrQuery, v)
	}
	step := (a.Max - a.Min) / float64(a.Resolution)
	at := math.Trunc((v - a.Min) / step)
	return int(max(0, min(at, float64(a.Resolution-1)))), nil // clamp before the conversion: v may be huge
}

// Override sends requests of priorities [Min, Max], both inclusive, to one pool.
type Override struct {
	Min    int `json:"min"`
	Max    int `json:"max"`
	Target int `json:"target"`
}

// overridden returns the Target of the first override that contains the priority, or pool if
// none does or priority is nil.
func overridden(pool int, overrides []Override, priority *int) int {
	if priority == nil {
		return pool
	}
	for _, o := range overrides {
		if o.Min <= *priority && *priority <= o.Max {
			return o.Target
		}
	}
	return pool
}

// Query is the input of the choice of a pool.
type Query struct {
	Tokens   int      // prompt tokens, without output; not negative
	TTFT     *float64 // target in milliseconds; nil: Config's default, or the middle of the axis
	ITL      *float64 // likewise, between tokens
	Priority *int     // nil: no override applies
}

// at returns the step of a target on the axis. Without a target it takes fallback, and without
// that the middle of the axis. An error mentions name.
func (a Axis) at(name string, target, fallback *float64) (int, error) {
	v := (a.Min + a.Max) / 2
	switch {
	case target != nil:
		v = *target
	case fallback != nil:
		v = *fallback
	}
	i, err := a.Index(v)
	if err != nil {
		return 0, fmt.Errorf("%s target: %w", name, err)
	}
	return i, nil
}

// AggregatedPool returns the number of the pool for a request. TTFT and ITL targets choose it,
// and the prompt length too if there is an ISL axis; then the overrides apply. The error wraps
// [ErrQuery]: a negative or not finite number, or a configuration without a grid.
func (c *Config) AggregatedPool(q Query) (int, error) {
	s := c.AggregatedStrategy
	if s == nil {
		return 0, fmt.Errorf("%w: there are no aggregated pools", ErrQuery)
	}
	if q.Tokens < 0 {
		return 0, fmt.Errorf("%w: Tokens is %d, want 0 or more", ErrQuery, q.Tokens)
	}
	plane := 0
	if s.ISL != nil {
		var err error
		if plane, err = s.ISL.Index(float64(q.Tokens)); err != nil {
			return 0, err
		}
	}
	row, err := s.TTFT.at("TTFT", q.TTFT, c.DefaultTTFT)
	if err != nil {
		return 0, err
	}
	column, err := s.ITL.at("ITL", q.ITL, c.DefaultITL)
	if err != nil {
		return 0, err
	}
	return overridden(s.Pools[plane][row][column], s.Overrides, q.Priority), nil
}
