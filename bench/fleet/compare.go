package fleet

import (
	"context"
	"fmt"

	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/router"
)

// Source says where a trace comes from: the name of a generated one, or a recording.
type Source struct {
	Name      string // for Generate
	Recording *Recording
}

// CompareConfig sizes a Compare. Zero means the default.
type CompareConfig struct {
	Base     Config    // configuration of all runs; its Workers, Policy, Staged, Rate, Clients and Seed are ignored
	Sources  []Source  // default: chat
	Workers  []int     // numbers of workers; default: 8
	Policies []Routing // default: all policies without a first stage
	// Requests is the number of requests of a run. Default: 500 for each worker (1500 with a
	// recording, whose rare long prompts decide the high percentiles), at most 12,000, but at
	// least 48 for each worker, so that large fleets are warm for most of the run.
	Requests int `min:"0" max:"1<<20"`
	// Load is the rate of arrivals divided by the fleet's Capacity. Default 0.65: the fleet is
	// busy with some slack.
	Load float64 `default:"0.65" above:"0" max:"10"`
	Seed uint64
}

// Default KV pools of the workers, in tokens. Generated prompts have 2,000 to 4,000 tokens, so a
// pool has room for some twenty prompts, and not every worker can cache every prefix. Recorded
// prompts have 12,000 tokens on average, and up to 200,000.
const (
	generatedKVTokens = 1 << 16
	recordedKVTokens  = 1 << 18
)

func (c CompareConfig) withDefaults() CompareConfig {
	if c.Sources == nil {
		c.Sources = []Source{{Name: "chat"}}
	}
	if c.Workers == nil {
		c.Workers = []int{8}
	}
	if c.Policies == nil {
		c.Policies = routings()
	}
	return bounds.Fill(c)
}

func (c *CompareConfig) validate() error {
	faults := bounds.Faults{Owner: "fleet: "}
	faults.Add(bounds.Check("fleet", c))
	for _, w := range c.Workers {
		faults.If(w < 1 || w > MaxWorkers, "%d workers, want 1 to %d", w, MaxWorkers)
	}
	faults.If(len(c.Sources)*len(c.Workers)*len(c.Policies) == 0,
		"%d traces, %d sizes, %d policies: nothing to compare", len(c.Sources), len(c.Workers), len(c.Policies))
	return faults.Err()
}

// Steps returns how often Compare calls progress: once for each capacity and once for each run.
func (c CompareConfig) Steps() int {
	c = c.withDefaults()
	return len(c.Sources) * len(c.Workers) * (1 + len(c.Policies))
}

// requests returns the number of requests of a run of trace s on this number of workers; see
// CompareConfig.Requests.
func (c *CompareConfig) requests(s *Source, workers int) int {
	if c.Requests > 0 {
		return c.Requests
	}
	each := 500
	if s.Recording != nil {
		each = 1500
	}
	return min(max(min(each*workers, 12_000), 48*workers), MaxRequests)
}

// Table holds the results of a Compare.
type Table struct {
	Worker     string      `json:"worker"`
	Device     string      `json:"device"`
	StepTokens int         `json:"step_tokens"`
	MaxRunning int         `json:"max_running"`
	EventDelay float64     `json:"event_delay_ms"`
	Predict    float64     `json:"predict_ms"`
	Gateways   int         `json:"gateways"`
	Lag        float64     `json:"lag_ms"`     // of the last gateway
	ITL        float64     `json:"itl_weight"` // weights of the policy latency: ITL and Backlog
	Backlog    float64     `json:"backlog_weight"`
	Load       float64     `json:"load"` // rate of arrivals over Capacity
	Seed       uint64      `json:"seed"`
	Fleets     []FleetRuns `json:"fleets"`
}

// FleetRuns holds the runs of one trace on a fleet of one size.
type FleetRuns struct {
	Trace    string   `json:"trace"`
	Workers  int      `json:"workers"`
	Requests int      `json:"requests"`
	KVTokens int      `json:"kv_tokens"`               // of each worker
	Capacity float64  `json:"capacity_requests_per_s"` // see Capacity
	Rate     float64  `json:"requests_per_s"`          // of arrivals
	Results  []Result `json:"policies"`
}

// Compare plays every trace on every size of fleet under every policy. All policies get
// the same requests at the same times. progress, if not nil, is called after each run
// with its name. The table is the same in every run, except for the wall time of choices
// if Base.Clock is set. Errors are those of the configuration and of Play, and a trace
// too short to measure the capacity.
func Compare(ctx context.Context, cfg CompareConfig, progress func(string)) (*Table, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if progress == nil {
		progress = func(string) {}
	}
	base := cfg.Base.WithDefaults()
	weights := base.Weights
	if weights == (router.Weights{}) {
		weights = router.DefaultWeights()
	}
	t := &Table{
		Worker: base.Kind.String(), Device: base.Device.Name, StepTokens: base.StepTokens, MaxRunning: base.MaxRunning,
		EventDelay: ms(base.EventDelay), Predict: ms(base.Predict), Gateways: base.Gateways, Lag: ms(base.Lag), ITL: weights.ITL, Backlog: weights.Backlog, Load: cfg.Load, Seed: cfg.Seed,
	}
	for _, s := range cfg.Sources {
		for _, workers := range cfg.Workers {
			runs, err := cfg.fleet(ctx, s, workers, progress)
			if err != nil {
				return nil, err
			}
			t.Fleets = append(t.Fleets, runs)
		}
	}
	return t, nil
}

// fleet measures the capacity of a fleet of this many workers for the trace of s, and plays the
// trace under all policies. progress is called after each.
func (c *CompareConfig) fleet(ctx context.Context, s Source, workers int, progress func(string)) (FleetRuns, error) {
	trace, err := s.trace(c.requests(&s, workers), workers, c.Seed)
	if err != nil {
		return FleetRuns{}, err
	}
	run := c.Base
	run.Workers, run.Seed, run.Rate, run.Clients = workers, c.Seed, 0, 0
	if run.KVTokens == 0 {
		run.KVTokens = generatedKVTokens
		if s.Recording != nil {
			run.KVTokens = recordedKVTokens
		}
	}
	name := fmt.Sprintf("%s, %d workers", trace.Name, workers)
	r := FleetRuns{Trace: trace.Name, Workers: workers, Requests: trace.Requests(), KVTokens: run.KVTokens}
	if r.Capacity, err = Capacity(ctx, run, trace); err != nil {
		return r, err
	}
	progress(name + ": capacity")
	if r.Rate = c.Load * r.Capacity; r.Rate == 0 {
		return r, fmt.Errorf("fleet: %s: %d requests are too few to measure the capacity, want 5 or more", name, trace.Requests())
	}
	run.Rate = r.Rate
	for _, policy := range c.Policies {
		run.Policy, run.Staged = policy.Router, policy.Staged
		result, err := Play(ctx, run, trace)
		if err != nil {
			return r, err
		}
		r.Results = append(r.Results, result)
		progress(name + ": " + policy.String())
	}
	return r, nil
}

func (s *Source) trace(requests, workers int, seed uint64) (*Trace, error) {
	if s.Recording != nil {
		return s.Recording.Trace(requests)
	}
	return Generate(s.Name, requests, workers, seed)
}
