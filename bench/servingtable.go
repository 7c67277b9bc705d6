package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/scheduler"
)

// ServingVariant is a scheduler configuration to compare, with a name for the table.
type ServingVariant struct {
	Name      string
	Scheduler scheduler.Config // zero fields are those of CompareServingConfig.Base's defaults
}

// ServingLevel is a level of load: the rate of arrivals over the capacity.
type ServingLevel struct {
	Name  string
	Share float64 // in (0, 100]; above 1 is overload
}

// ServingLevels returns the default levels: a quiet server (0.3), one with little slack
// (0.95), and an overloaded one (1.3).
func ServingLevels() []ServingLevel {
	return []ServingLevel{{"low", 0.3}, {"saturating", 0.95}, {"overload", 1.3}}
}

// CompareServingConfig sizes a [CompareServing]. Nil and zero mean the defaults.
type CompareServingConfig struct {
	Base     ServingConfig    // of all runs; Load, Rate, Clients and the policy are ignored
	Variants []ServingVariant // default: every policy that does not preempt, as no load has priorities
	Loads    []ServingLoad    // default: all
	Levels   []ServingLevel   // default: [ServingLevels]
}

func (c CompareServingConfig) withDefaults() CompareServingConfig {
	if c.Variants == nil {
		for _, p := range scheduler.Policies() {
			if !p.Preempts() {
				s := c.Base.Scheduler
				s.Policy = p
				c.Variants = append(c.Variants, ServingVariant{p.String(), s})
			}
		}
	}
	if c.Loads == nil {
		c.Loads = ServingLoads()
	}
	if c.Levels == nil {
		c.Levels = ServingLevels()
	}
	return c
}

func (c CompareServingConfig) validate() error {
	faults := bounds.Faults{Owner: "bench: "}
	for _, l := range c.Levels {
		faults.If(!(l.Share > 0 && l.Share <= 100), "level %s has a share of %v, want above 0 and at most 100", l.Name, l.Share)
	}
	faults.If(len(c.Variants)*len(c.Loads)*len(c.Levels) == 0,
		"%d policies, %d loads, %d levels: nothing to compare", len(c.Variants), len(c.Loads), len(c.Levels))
	return faults.Err()
}

// Steps returns how often a [CompareServing] calls progress: once for the capacity of
// each load, and once for each run.
func (c CompareServingConfig) Steps() int {
	c = c.withDefaults()
	return len(c.Loads) * (1 + len(c.Levels)*len(c.Variants))
}

// ServingTable holds the results of every variant under every load and level.
type ServingTable struct {
	Profile     string         `json:"profile"`
	StepTokens  int            `json:"step_tokens"`
	MaxRunning  int            `json:"max_running"`
	MaxInflight int            `json:"max_inflight"`
	PageTokens  int            `json:"page_tokens"`
	Requests    int            `json:"requests"`
	Seed        uint64         `json:"seed"`
	Loads       []ServingCells `json:"loads"`
}

// ServingCells are the runs of one load.
type ServingCells struct {
	Load     string        `json:"load"`
	KVTokens int           `json:"kv_tokens"`
	Capacity float64       `json:"capacity_requests_per_s"` // see CompareServing
	Levels   []ServingRuns `json:"levels"`
}

// ServingRuns are the runs of one load at one rate.
type ServingRuns struct {
	Level   string          `json:"level"`
	Rate    float64         `json:"requests_per_s"` // of arrivals
	Results []ServingResult `json:"policies"`       // in the order of CompareServingConfig.Variants
}

// CompareServing simulates every variant under every load and level. The level is relative to the
// capacity of a load, which is a rate of requests: FCFS serves a closed loop of MaxRunning
// clients, and the rate is measured between the time when a quarter of the requests have ended and
// the time when nine tenths have. The runs are independent and use all processors. progress, if
// not nil, is called after each run, one call at a time. The table is the same in every run.
// Errors are those of the configuration, wrong answers and the end of ctx.
func CompareServing(ctx context.Context, cfg CompareServingConfig, progress func()) (*ServingTable, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	var jobs []job
	table := &ServingTable{Loads: make([]ServingCells, len(cfg.Loads))}
	bases := make([]ServingConfig, len(cfg.Loads))
	traces := make([]*servingTrace, len(cfg.Loads))
	for i, load := range cfg.Loads {
		base := cfg.Base
		base.Load, base.Rate, base.Clients = load, 1, 0
		base = base.withDefaults()
		if err := base.validate(); err != nil {
			return nil, err
		}
		bases[i] = base
		table.describe(&base)
		jobs = append(jobs, func(ctx context.Context) (err error) {
			if traces[i], err = newServingTrace(ctx, load, base.Requests, base.Seed); err != nil {
				return err
			}
			cells := &table.Loads[i]
			cells.Load, cells.KVTokens = load.String(), base.KVTokens
			cells.Capacity, err = servingCapacity(ctx, base, traces[i])
			return err
		})
	}
	if err := inParallel(ctx, progress, jobs); err != nil {
		return nil, err
	}
	jobs = nil
	for i := range cfg.Loads {
		cells := &table.Loads[i]
		for _, l := range cfg.Levels {
			cells.Levels = append(cells.Levels, ServingRuns{Level: l.Name, Rate: l.Share * cells.Capacity, Results: make([]ServingResult, len(cfg.Variants))})
		}
		for j := range cells.Levels {
			runs := &cells.Levels[j]
			for k, v := range cfg.Variants {
				jobs = append(jobs, func(ctx context.Context) (err error) {
					run := bases[i]
					run.Rate, run.Scheduler = runs.Rate, bases[i].with(v.Scheduler)
					runs.Results[k], err = serve(ctx, run, traces[i])
					runs.Results[k].Policy = v.Name
					return err
				})
			}
		}
	}
	return table, inParallel(ctx, progress, jobs)
}

// with returns s, a variant's scheduler configuration, with its zero fields set to the defaults of
// c.
func (c ServingConfig) with(s scheduler.Config) scheduler.Config {
	c.Scheduler = s
	return c.withDefaults().Scheduler
}

// describe sets the sizes that all runs share.
func (table *ServingTable) describe(c *ServingConfig) {
	table.Profile, table.Requests, table.Seed, table.PageTokens = c.Profile.Name, c.Requests, c.Seed, c.PageTokens
	table.StepTokens, table.MaxRunning, table.MaxInflight = c.Scheduler.StepTokens, c.Scheduler.MaxRunning, c.Scheduler.MaxInflight
}

// servingCapacity returns the capacity of the load trace in requests per second; see
// CompareServing. It replaces the policy, rate and clients of cfg.
func servingCapacity(ctx context.Context, cfg ServingConfig, trace *servingTrace) (float64, error) {
	cfg.Rate, cfg.Clients = 0, cfg.Scheduler.MaxRunning
	cfg.Scheduler.Policy = scheduler.FCFS
	r, err := serve(ctx, cfg, trace)
	if err != nil {
		return 0, err
	}
	ends := slices.Sorted(slices.Values(r.ends))
	n := len(ends)
	lo, hi := n/4, n*9/10
	if hi <= lo || ends[hi] == ends[lo] {
		return r.RequestsPerS, nil // too few requests for a middle part
	}
	// The middle part excludes the cold cache at the beginning and idle clients at the
	// end. But if short requests overtake long prompts, which then end last, the rate
	// of the middle is far too high: use the whole run.
	middle := float64(hi-lo) / (ends[hi] - ends[lo]).Seconds()
	if middle > 2*r.RequestsPerS {
		return r.RequestsPerS, nil
	}
	return middle, nil
}

// Rows returns a header and a row for each load, level and policy. Load and level are
// in their first row only.
func (table *ServingTable) Rows() (_ [][]string, legend string) {
	rows := [][]string{{"load", "level", "policy", "req/s", "out tok/s", "TTFT p50", "TTFT p99", "ITL p50", "ITL p99", "hit rate", "computed", "preempt.", "Jain", "max diff.", "steps"}}
	for _, c := range table.Loads {
		load := c.Load
		for _, l := range c.Levels {
			level := fmt.Sprintf("%s (%.3g/s)", l.Level, l.Rate)
			for _, r := range l.Results {
				rows = append(rows, []string{
					load, level, r.Policy, fmt.Sprintf("%.2f", r.RequestsPerS), fmt.Sprintf("%.0f", r.OutputPerS),
					Milliseconds(r.TTFTp50), Milliseconds(r.TTFTp99), Milliseconds(r.ITLp50), Milliseconds(r.ITLp99),
					fmt.Sprintf("%.2f %%", 100*r.HitRate), fmt.Sprint(r.ComputedTokens), fmt.Sprint(r.Preemptions),
					r.jain(), fmt.Sprint(r.ServedDifference), fmt.Sprint(r.Steps),
				})
				load, level = "", ""
			}
		}
	}
	return rows, table.legend()
}

// jain formats the index; a dash if less than 1 % of the tokens were contended.
func (r *ServingResult) jain() string {
	if 100*r.ContendedTokens < r.ComputedTokens+r.OutputTokens {
		return "–"
	}
	return fmt.Sprintf("%.3f", r.Jain)
}

// Milliseconds formats a duration given in ms: "12.3 ms", or "1.23 s" from one second.
func Milliseconds(ms float64) string {
	if ms >= 1000 {
		return fmt.Sprintf("%.2f s", ms/1000)
	}
	return fmt.Sprintf("%.1f ms", ms)
}

// legend explains the columns and gives the sizes of the runs.
func (table *ServingTable) legend() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Simulated device %s, %d requests per run, seed %d, pages of %d tokens, steps of %d tokens, at most %d running\n", table.Profile, table.Requests, table.Seed, table.PageTokens, table.StepTokens, table.MaxRunning)
	fmt.Fprintf(&b, "requests, %d plans out at a time. Virtual time. level: the rate of arrivals, in parentheses in requests/s.\n", table.MaxInflight)
	b.WriteString("req/s and out tok/s: served, over the whole run. TTFT: from arrival to the first token. ITL: between two tokens of\n")
	b.WriteString("one answer. hit rate: prompt tokens from the cache, at first admission. computed: prompt tokens that were not.\n")
	b.WriteString("Jain: Jain's index of the shares of tenants that waited, 1 means equal; – if less than 1 % of the tokens were served while\n")
	b.WriteString("several waited. max diff.: largest difference in served tokens between two tenants that waited the whole time.\n")
	for _, c := range table.Loads {
		fmt.Fprintf(&b, "\n%s: room for %d tokens; the capacity is %.2f requests/s.", c.Load, c.KVTokens, c.Capacity)
	}
	return b.String()
}
