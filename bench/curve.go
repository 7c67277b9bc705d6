package bench

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/radixcache/missratio"
)

// CurveConfig sizes a [CompareCurve]. The zero value works.
type CurveConfig struct {
	PageTokens int       // tokens per page. Default radixcache's
	Samples    int       // of the live curve. Default missratio.DefaultSamples
	BaseShare  float64   `default:"0.1" above:"0" max:"1"` // capacity of the predicting cache, as a share of the working set in (0, 1]. Default 0.1
	Factors    []float64 // capacities to predict, as multiples of the base capacity, above 0. Default 0.25, 0.5, 1, 2, 4, 8
}

func (c CurveConfig) withDefaults() CurveConfig {
	c = bounds.Fill(c)
	c.PageTokens = c.radix(0).cache().PageTokens
	c.Samples = cmp.Or(c.Samples, missratio.DefaultSamples)
	if c.Factors == nil {
		c.Factors = []float64{0.25, 0.5, 1, 2, 4, 8}
	}
	return c
}

// radix returns the configuration of a replay at a capacity: LRU, and leaves are
// evicted from their ends (Trim), as a node's cache does.
func (c CurveConfig) radix(capacityTokens int) RadixConfig {
	return RadixConfig{PageTokens: c.PageTokens, Policy: radixcache.LRU, Trim: true, CapacityTokens: capacityTokens}
}

// live returns the configuration of the predicting cache, with a live curve.
func (c CurveConfig) live() radixcache.Config {
	cfg := c.radix(0).cache()
	cfg.Curve = missratio.New(c.Samples)
	return cfg
}

// validate reports all faults at once, by field and value.
func (c CurveConfig) validate(traces []NamedTrace) error {
	faults := bounds.Faults{Owner: "bench: "}
	faults.Add(c.live().Validate(), bounds.Check("bench", c))
	faults.If(c.Samples < missratio.MinSamples || c.Samples > missratio.MaxSamples, "Samples is %d, want %d to %d", c.Samples, missratio.MinSamples, missratio.MaxSamples)
	for _, f := range c.Factors {
		faults.If(!(f > 0 && f <= 1e6), "Factors has %v, want multiples of the capacity above 0, at most 1e6", f)
	}
	faults.If(len(c.Factors)*len(traces) == 0, "%d traces at %d capacities: nothing to compare", len(traces), len(c.Factors))
	faults.Add(validateScales(traces))
	return faults.Err()
}

// Steps returns how often a [CompareCurve] of this many traces calls progress: for the
// page numbers, the prediction and each simulated capacity of each trace.
func (c CurveConfig) Steps(traces int) int {
	return traces * (2 + len(c.withDefaults().Factors))
}

// CurveTable compares the hit rates that one cache's live curve predicts for other
// capacities with those of simulated caches of these capacities.
type CurveTable struct {
	PageTokens int          `json:"page_tokens"`
	Samples    int          `json:"samples"`
	Traces     []CurveTrace `json:"traces"`
}

// CurveTrace is one trace. All token counts are tokens of the trace, each of which
// stands for Scale served tokens.
type CurveTrace struct {
	TraceSizes
	BaseTokens int          `json:"base_tokens"` // capacity of the predicting cache
	Points     []CurvePoint `json:"points"`
}

// CurvePoint is one capacity. Rates are hit rates by tokens.
type CurvePoint struct {
	Factor         float64 `json:"factor"`          // of BaseTokens, as asked for
	CapacityTokens int     `json:"capacity_tokens"` // whole pages, and at least the longest request
	Simulated      float64 `json:"simulated"`       // hit rate of a cache of this capacity
	Curve          float64 `json:"curve"`           // hit rate that the cache of BaseTokens predicts
	Difference     float64 `json:"difference"`      // Curve - Simulated, in percentage points
}

// CompareCurve compares predicted with simulated hit rates. It replays every trace on a cache of
// the base capacity that has a live curve, and reads the predicted hit rates at all capacities
// from the curve. Then it replays the trace on a cache of each of these capacities, without a
// curve. All caches evict by LRU. Capacities are relative to the working set, the distinct whole
// pages of a trace. The replays are independent and use all processors. progress, if not nil, is
// called after each replay, one call at a time. Bad sizes and the end of ctx are errors. The
// figures are the same in every run on machines of the same byte order.
func CompareCurve(ctx context.Context, traces []NamedTrace, cfg CurveConfig, progress func()) (*CurveTable, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(traces); err != nil {
		return nil, err
	}
	var jobs []job
	table := &CurveTable{PageTokens: cfg.PageTokens, Samples: cfg.Samples, Traces: make([]CurveTrace, len(traces))}
	for i, t := range traces {
		jobs = append(jobs, func(context.Context) (err error) {
			table.Traces[i], err = cfg.layOut(t)
			return inTrace(t, err)
		})
	}
	if err := inParallel(ctx, progress, jobs); err != nil {
		return nil, err
	}
	jobs = nil
	for i, t := range traces {
		of := &table.Traces[i]
		jobs = append(jobs, func(ctx context.Context) error { return inTrace(t, cfg.predict(ctx, t.Trace, of)) })
		for j := range of.Points {
			jobs = append(jobs, func(ctx context.Context) error { return inTrace(t, cfg.simulate(ctx, t.Trace, &of.Points[j])) })
		}
	}
	if err := inParallel(ctx, progress, jobs); err != nil {
		return nil, err
	}
	for _, t := range table.Traces {
		for j := range t.Points {
			p := &t.Points[j]
			p.Difference = 100 * (p.Curve - p.Simulated)
		}
	}
	return table, nil
}

// layOut returns a trace's part of the table, before anything is replayed.
func (c CurveConfig) layOut(t NamedTrace) (CurveTrace, error) {
	paged, err := newPageTrace(t.Trace, c.PageTokens)
	if err != nil {
		return CurveTrace{}, err
	}
	out := CurveTrace{TraceSizes: t.sizes(paged, c.PageTokens), BaseTokens: paged.capacity(c.BaseShare, c.PageTokens)}
	for _, f := range c.Factors {
		out.Points = append(out.Points, CurvePoint{Factor: f, CapacityTokens: paged.capacity(f*c.BaseShare, c.PageTokens)})
	}
	return out, nil
}

// predict replays t on the predicting cache and fills in the field Curve of each point in of.
func (c CurveConfig) predict(ctx context.Context, t *Trace, of *CurveTrace) error {
	cfg := c.radix(of.BaseTokens)
	r, err := newReplayer(t, cfg)
	if err != nil {
		return err
	}
	if r.cache, err = radixcache.New(c.live()); err != nil {
		return err
	}
	p := &radixPlay{ctx: ctx, trace: t, cfg: cfg}
	err = p.run(r, func(i int, r *replayer) { r.cache.Observe(radixcache.Key{Tokens: t.Request(i)}) })
	if err != nil {
		return err
	}
	var sizes []int
	for i := range of.Points { // by index: other jobs write other fields of the points meanwhile
		sizes = append(sizes, of.Points[i].CapacityTokens)
	}
	for i, rate := range r.cache.HitRates(sizes, nil) {
		of.Points[i].Curve = rate
	}
	return nil
}

// simulate replays t on a cache of the capacity of the point at, and fills in its field Simulated.
func (c CurveConfig) simulate(ctx context.Context, t *Trace, at *CurvePoint) error {
	matched, err := replayPolicy(ctx, NamedTrace{Trace: t}, c.radix(at.CapacityTokens))
	at.Simulated = float64(matched) / float64(max(1, t.Tokens()))
	return err
}

// Rows returns a header and a row for each trace and capacity. The name of a trace is
// in its first row only.
func (table *CurveTable) Rows() (_ [][]string, legend string) {
	rows := [][]string{{"trace", "size", "tokens", "simulated", "curve", "difference"}}
	for _, t := range table.Traces {
		name := t.Name
		for _, p := range t.Points {
			rows = append(rows, []string{
				name, fmt.Sprintf("%gx", p.Factor), fmt.Sprint(p.CapacityTokens),
				fmt.Sprintf("%.2f %%", 100*p.Simulated), fmt.Sprintf("%.2f %%", 100*p.Curve), fmt.Sprintf("%+.2f", p.Difference),
			})
			name = ""
		}
	}
	return rows, table.legend()
}

// worst returns the largest absolute difference of the table, in percentage points.
func (table *CurveTable) worst() float64 {
	worst := 0.0
	for _, t := range table.Traces {
		for _, p := range t.Points {
			worst = max(worst, math.Abs(p.Difference))
		}
	}
	return worst
}

// legend explains the columns and gives the sizes of the traces.
func (table *CurveTable) legend() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Pages of %d tokens, LRU. size: of the cache, as a multiple of the predicting one, and in tokens, at\n", table.PageTokens)
	b.WriteString("least the longest request. simulated: hit rate by tokens of a cache of this size. curve: the hit rate\n")
	fmt.Fprintf(&b, "that the cache of size 1x predicted with a live curve of %d samples. difference: in points, the\n", table.Samples)
	fmt.Fprintf(&b, "largest %.2f.\n", table.worst())
	for _, t := range table.Traces {
		fmt.Fprintf(&b, "\n%v; 1x is %d.", &t.TraceSizes, t.BaseTokens)
	}
	return b.String()
}
