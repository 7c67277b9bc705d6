package global

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Pools are the pools of one kind, numbered by their index in Names.
type Pools struct {
	Count int
	Names []string // Dynamo's namespaces
	// Priorities order the pools by speed: lower is faster. Empty: unknown.
	Priorities []int
}

// AggregatedStrategy is the grid that chooses an aggregated pool.
type AggregatedStrategy struct {
	TTFT, ITL Axis      // milliseconds
	ISL       *Axis     // prompt tokens; nil: the length does not matter
	Pools     [][][]int // number of a pool, by ISL step (a single one if ISL is nil), TTFT step and ITL step
	Overrides []Override
}

// Config is a parsed configuration, see [Parse]. One made by hand must pass Validate before use.
type Config struct {
	Aggregated         Pools
	AggregatedStrategy *AggregatedStrategy

	// PriorityRetry lets a request that fails before its first output move on to faster pools,
	// see Retry.
	PriorityRetry bool
	// DefaultTTFT and DefaultITL are the targets, in milliseconds, of requests that give none.
	// nil: the middle of the axis.
	DefaultTTFT, DefaultITL *float64
}

// Validate reports all faults: the numbers of pools first, then resolutions and ranges, then the
// grid. The wording follows Dynamo's.
func (c *Config) Validate() error {
	var v faults
	v.pools(&c.Aggregated)
	if a := c.AggregatedStrategy; a == nil {
		v.add("missing agg_pool_selection_strategy")
	} else {
		v.axes("ttft", a.TTFT, "itl", a.ITL)
		planes := 1
		if a.ISL != nil {
			v.axes("isl", *a.ISL)
			planes = a.ISL.Resolution
		}
		if len(a.Pools) != planes {
			v.add("agg_pool_mapping planes (%d) does not match isl_resolution (%d)", len(a.Pools), planes)
		}
		for _, plane := range a.Pools {
			v.grid(plane, a.TTFT.Resolution, a.ITL.Resolution, c.Aggregated.Count)
		}
		v.overrides(a.Overrides, c.Aggregated.Count)
	}
	v.target("default TTFT", c.DefaultTTFT)
	v.target("default ITL", c.DefaultITL)
	return errors.Join(v...)
}

// maxResolution bounds the steps of an axis: far more than any fleet has pools.
const maxResolution = 1024

// faults collects errors in order.
type faults []error

func (v *faults) add(format string, args ...any) {
	*v = append(*v, fmt.Errorf("global: "+format, args...))
}

// pools checks that p has at least one pool, and as many names and priorities as pools
// (priorities may be missing).
func (v *faults) pools(p *Pools) {
	if p.Count < 1 {
		v.add("num_agg_pools is %d, want 1 at least", p.Count)
	}
	if len(p.Names) != p.Count {
		v.add("num_agg_pools (%d) does not match agg_pool_dynamo_namespaces length (%d)", p.Count, len(p.Names))
	}
	if n := len(p.Priorities); n != 0 && n != p.Count {
		v.add("agg_pool_priorities length (%d) does not match num_agg_pools (%d)", n, p.Count)
	}
}

// axes checks axes. Its arguments alternate: a name, then its Axis. It checks all resolutions
// first, then all ranges.
func (v *faults) axes(namesAndAxes ...any) {
	for i := 0; i < len(namesAndAxes); i += 2 {
		if a := namesAndAxes[i+1].(Axis); a.Resolution < 1 || a.Resolution > maxResolution {
			v.add("%s_resolution must be positive, and at most %d: it is %d", namesAndAxes[i], maxResolution, a.Resolution)
		}
	}
	for i := 0; i < len(namesAndAxes); i += 2 {
		name, a := namesAndAxes[i], namesAndAxes[i+1].(Axis)
		step := (a.Max - a.Min) / float64(max(1, a.Resolution))
		if !(a.Min < a.Max) || !(step > 0) || math.IsInf(step, 0) {
			v.add("%s_min must be less than %s_max, both finite and their difference too: they are %v and %v", name, name, a.Min, a.Max)
		}
	}
}

// grid checks that pools, one plane of the grid, has this number of rows and columns, and that
// each element is the number of one of count pools.
func (v *faults) grid(pools [][]int, rows, columns, count int) {
	if len(pools) != rows {
		v.add("agg_pool_mapping rows (%d) does not match ttft_resolution (%d)", len(pools), rows)
	}
	for i, row := range pools {
		if len(row) != columns {
			v.add("agg_pool_mapping row %d length (%d) does not match itl_resolution (%d)", i, len(row), columns)
		}
		for _, pool := range row {
			if pool < 0 || pool >= count {
				v.add("Invalid agg pool index %d in mapping (must be 0 to %d)", pool, count-1)
			}
		}
	}
}

// overrides checks the ranges of all overrides, and that each target is the number of one of
// count pools.
func (v *faults) overrides(all []Override, count int) {
	for i, o := range all {
		if o.Min > o.Max {
			v.add("priority_overrides[%d]: min (%d) is more than max (%d)", i, o.Min, o.Max)
		}
		if o.Target < 0 || o.Target >= count {
			v.add("priority_overrides[%d]: target %d is out of range (must be 0 to %d)", i, o.Target, count-1)
		}
	}
}

func (v *faults) target(name string, t *float64) {
	if t != nil && (math.IsNaN(*t) || math.IsInf(*t, 0)) {
		v.add("%s is %v, want a finite number", name, *t)
	}
}

// Retry returns the pools that a request may try, in this order: pool, which was chosen
// for it, and under PriorityRetry all pools that are strictly faster, from slow to fast;
// equally fast ones by number. Use the later ones only while none of the request's output has
// been sent.
func (c *Config) Retry(pool int) []int {
	all, speeds := []int{pool}, c.Aggregated.Priorities
	if !c.PriorityRetry || pool < 0 || pool >= len(speeds) {
		return all
	}
	for i, priority := range speeds {
		if priority < speeds[pool] {
			all = append(all, i)
		}
	}
	slices.SortStableFunc(all[1:], func(a, b int) int { return cmp.Compare(speeds[b], speeds[a]) })
	return all
}

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
