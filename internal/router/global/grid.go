package global

import (
	"errors"
	"fmt"
	"math"
)

// ErrQuery is wrapped by all errors about a query.
var ErrQuery = errors.New("global: bad query")

// Axis cuts [Min, Max] into Resolution equal steps.
type Axis struct {
	Min, Max   float64
	Resolution int
}

// Index is the step that v is in: trunc((v − Min)/step), with step (Max − Min) over
// Resolution, in float64. What is below the axis is in the first step, what is at
// its end or above in the last. A number that is not finite is an error that wraps
// [ErrQuery].
func (a Axis) Index(v float64) (int, error) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%w: %v is not a finite number", ErrQuery, v)
	}
	step := (a.Max - a.Min) / float64(a.Resolution)
	at := math.Trunc((v - a.Min) / step)
	return int(max(0, min(at, float64(a.Resolution-1)))), nil // compared before it is an int: v may be huge
}

// Override sends requests of priorities [Min, Max], both inclusive, to one pool.
type Override struct {
	Min    int `json:"min"`
	Max    int `json:"max"`
	Target int `json:"target"`
}

// overridden is the pool after the overrides: the first that matches counts.
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

// Target is a target of so many milliseconds, for a Query.
func Target(ms float64) *float64 { return &ms }

// Query is what a pool is chosen by.
type Query struct {
	Tokens   int      // of the prompt, generated ones not counted; not negative
	TTFT     *float64 // to the first token, milliseconds; nil: Config's default, or the axis' middle
	ITL      *float64 // between tokens, likewise
	Priority *int     // nil: no override applies
}

// at is the step of a target.
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

// AggregatedPool is the pool for a request, by TTFT and ITL, and by length where
// there is an axis for it.
func (c *Config) AggregatedPool(q Query) (int, error) {
	s := c.AggregatedStrategy
	if s == nil {
		return 0, fmt.Errorf("%w: there are no aggregated pools in mode %v", ErrQuery, c.Mode)
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
