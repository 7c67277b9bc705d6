package bench

import (
	"cmp"
	"context"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// SchedConfig sizes a [PlaySched]. 0 means the default, except for Queue and Policy. Its tags state the
// defaults, the bounds, and flags of coppice bench sched.
type SchedConfig struct {
	Rows         int              `default:"256" min:"1" max:"1<<16" help:"Number of running requests, kept constant."`
	Queue        int              `placeholder:"0" min:"0" max:"1<<20" help:"Number of waiting requests, kept constant."`
	Policy       scheduler.Policy `kong:"-"`
	PromptTokens int              `default:"1024" min:"2" max:"1<<20" help:"Tokens of a prompt; half of them are one of 16 shared prefixes."`
	OutputTokens int              `default:"128" min:"1" max:"1<<20" help:"Tokens of an answer."`
	Requests     int              `placeholder:"4096" min:"1" max:"1<<24" help:"Number of requests to measure. Default: 16 per row, at least 1000."`
	PageTokens   int              `default:"16" min:"1" max:"256" pow2:"" help:"Tokens per page, a power of two."`
	Inflight     int              `default:"1" min:"1" max:"64" help:"Plans in flight."`
	Seed         uint64           `kong:"-"` // of the random prompt tokens
}

// Steps returns how often a [PlaySched] of this configuration calls progress. A few
// more calls are possible, as several requests may end in the last step.
func (c SchedConfig) Steps() int { return c.withDefaults().Requests }

// schedGroups is the number of groups of prompts; a group shares a beginning.
const schedGroups = 16

func (c SchedConfig) withDefaults() SchedConfig {
	c = bounds.Fill(c)
	c.Requests = cmp.Or(c.Requests, max(1000, 16*c.Rows))
	return c
}

// info describes the null backend. It is never the bottleneck and has twice the pages that the
// running requests need. The other half of the pages is cache, which is always full after the
// warm-up, so every admission evicts.
func (c *SchedConfig) info() engine.Info {
	pages := 2 * (c.Rows + 1) * kv.CeilPages(c.PromptTokens+c.OutputTokens, c.PageTokens)
	return engine.Info{
		Name: "null", Vocab: 1 << 30, MaxPositions: 1 << 22, PageTokens: c.PageTokens, NumPages: pages,
		MaxSlots: c.Rows, MaxRows: c.Rows, MaxTokens: 1 << 30, MaxInflight: max(2, c.Inflight),
	}
}

// NewScheduler makes a scheduler that has all pages of a device. The configuration's lease is ignored.
func NewScheduler(cfg scheduler.Config, info engine.Info) (*scheduler.Scheduler, error) {
	cfg.LeaseLowPages, cfg.LeaseBulkPages, cfg.LeaseHighPages = info.NumPages, info.NumPages, info.NumPages
	s, err := scheduler.New(cfg, info)
	if err != nil {
		return nil, err
	}
	pages := make([]kv.PageID, s.Want())
	for i := range pages {
		pages[i] = kv.PageID(i)
	}
	s.Grant(pages, 0)
	return s, nil
}

// scheduler returns the configuration that keeps all rows running. On average Rows/OutputTokens
// requests end in a step; a step has room for the prompts of four times as many requests.
func (c *SchedConfig) scheduler() scheduler.Config {
	return scheduler.Config{
		Policy: c.Policy, MaxQueued: c.Rows + c.Queue + 1, MaxInflight: c.Inflight, MaxPrefilling: c.Rows,
		StepTokens: max(8192, c.Rows+4*c.PromptTokens*kv.CeilPages(c.Rows, c.OutputTokens)),
	}
}

// SchedSummary holds the cost of planning. Only time within Next, Complete and Add
// counts, on one core of this machine.
type SchedSummary struct {
	Steps    int `json:"steps" row:"steps|%d"`
	Requests int `json:"requests" row:"requests|%d"` // ended requests
	Tokens   int `json:"tokens" row:"tokens|%d"`     // tokens in all batches, of prompts and outputs
	// NextP50 and NextP99 are times of Next, by nearest rank over all steps.
	NextP50 float64 `json:"next_ns_per_step_p50" row:"Next, a step, p50|%.0f ns"`
	NextP99 float64 `json:"next_ns_per_step_p99" row:"Next, a step, p99|%.0f ns"`
	// DecodeNextP50 is the median time of Next over the steps that only decode. With long outputs
	// most steps do. If a request ends in every step, every step admits a request: then
	// DecodeNextP50 is 0.
	DecodeNextP50  float64 `json:"decode_next_ns_p50" row:"Next, only decoding, p50|%.0f ns|omitzero"`
	CompletePerRow float64 `json:"complete_ns_per_row" row:"Complete, a row|%.1f ns"`   // mean, with publication and endings
	Add            float64 `json:"add_ns" row:"Add, a request|%.0f ns"`                 // mean
	RequestsPerS   float64 `json:"requests_per_s" row:"planning alone|%.0f requests/s"` // upper bound on throughput
	TokensPerS     float64 `json:"tokens_per_s" row:"|%.0f tokens/s"`
	// AllocsPerStep is the mean number of heap objects that Next allocates in a step
	// without admissions, by runtime.MemStats.Mallocs in a separate pass. Allocations
	// of Complete, Add and admission are not included.
	AllocsPerStep float64 `json:"allocs_per_step" row:"allocations in Next|%.2f a step"`
}

// PlaySched drives a scheduler with a backend that answers at once. Requests are admitted, decode
// and end at a steady rate, and each request that ends is replaced, so the figures include
// admission, eviction and publication. The initial running requests have outputs of all lengths
// from 1 to OutputTokens, so that endings are spread over the steps. The warm-up ends when the
// initial running requests, and the requests that waited initially, have ended (of a queue longer
// than 4*Rows only the first 4*Rows requests). progress, if not nil, is called for each measured
// request. Bad sizes and the end of ctx are errors.
func PlaySched(ctx context.Context, cfg SchedConfig, progress func()) (*SchedSummary, error) {
	cfg = cfg.withDefaults()
	if err := bounds.Check("bench", cfg); err != nil {
		return nil, err
	}
	p, err := newSchedPlay(cfg)
	if err != nil {
		return nil, err
	}
	warm := 2*cfg.Rows + min(cfg.Queue, 4*cfg.Rows)
	if err := p.play(ctx, warm); err != nil {
		return nil, err
	}
	p.reset()
	p.progress = orNothing(progress)
	clock := calibrate()
	if err := p.play(ctx, cfg.Requests); err != nil {
		return nil, err
	}
	s := p.summarise(clock)
	s.AllocsPerStep, err = p.allocations(ctx)
	return s, err
}

// Rows returns the figures, one a row.
func (s *SchedSummary) Rows() (rows [][]string, legend string) {
	return rowsOf(s), "A backend that answers at once; only time within Next, Complete and Add counts. Allocations: in steps that admit no request."
}
