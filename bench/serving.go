package bench

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// ServingConfig sizes one run of a simulated server. Load and either Rate or Clients
// must be set; zero means the default for the other fields.
type ServingConfig struct {
	Profile sim.Profile // the device. Default h200
	// KVTokens is the size of the KV pool. Default 200,000: a quarter of the room
	// beside the weights on an H200, so that a run of 3,000 requests presses on it as
	// hours of traffic would on all of it. Default 600,000 under ServeMixed, since one of
	// its prompts of 100,000 tokens would take half of 200,000.
	KVTokens   int
	PageTokens int `default:"16" min:"1"` // default 16
	// Scheduler holds the policy and the limits. Default StepTokens 2048, MaxRunning
	// 256, MaxInflight 1, MaxQueued Requests. The lease is always the whole pool.
	Scheduler scheduler.Config

	Load     ServingLoad
	Rate     float64 `min:"0"`                            // requests per second, open loop: arrivals do not wait for answers
	Clients  int     `min:"0"`                            // closed loop, instead of Rate: each client sends its next request after an answer
	Requests int     `default:"3000" min:"1" max:"1<<20"` // default 3000
	Seed     uint64
}

// ServingResult holds the latencies that the callers of a run saw, and its costs. All
// but WallSeconds is the same in every run and on every machine.
type ServingResult struct {
	Policy           string          `json:"policy"`
	Requests         int             `json:"requests"`
	RequestsPerS     float64         `json:"requests_per_s"` // from the first arrival to the last ending
	OutputPerS       float64         `json:"output_tokens_per_s"`
	TTFTp50          float64         `json:"ttft_ms_p50"` // from arrival to the first token
	TTFTp99          float64         `json:"ttft_ms_p99"`
	ITLp50           float64         `json:"itl_ms_p50"` // between two tokens of one answer
	ITLp99           float64         `json:"itl_ms_p99"`
	HitRate          float64         `json:"hit_rate"` // share of prompt tokens found in the cache at first admission
	PromptTokens     int             `json:"prompt_tokens"`
	CachedTokens     int             `json:"cached_tokens"`
	OutputTokens     int             `json:"output_tokens"`
	ComputedTokens   int             `json:"computed_tokens"`   // prompt tokens computed, counted by the backend
	RecomputedTokens int             `json:"recomputed_tokens"` // the part of ComputedTokens computed again after preemptions
	Preemptions      int             `json:"preemptions"`
	Jain             float64         `json:"jain"`                   // see fairness
	ContendedTokens  int             `json:"contended_tokens"`       // served while several tenants were backlogged; Jain means little if few
	ServedDifference int             `json:"max_served_tokens_diff"` // see fairness
	Steps            int             `json:"steps"`
	VirtualSeconds   float64         `json:"virtual_s"`
	WallSeconds      float64         `json:"wall_s"` // real time of the simulation
	Tenants          []TenantResult  `json:"tenants"`
	ends             []time.Duration // virtual time of the ending, by request
	ended            int
	bound            servedBound
}

// TenantResult is one tenant's part of a run.
type TenantResult struct {
	Tenant   string  `json:"tenant"`
	Requests int     `json:"requests"`
	TTFTp50  float64 `json:"ttft_ms_p50"`
	TTFTp99  float64 `json:"ttft_ms_p99"`
}

// servedBound holds the terms P, R and O of the fairness bound at scheduler.DLPM: the
// longest un-cached prompt, the most running requests of one tenant, and the longest
// output. Prompt and output are in tokens.
type servedBound struct{ uncached, running, output int }

func (c ServingConfig) withDefaults() ServingConfig {
	if c.Profile == (sim.Profile{}) {
		c.Profile = BuiltIn("h200")
	}
	if c.KVTokens == 0 {
		c.KVTokens = 200_000
		if c.Load == ServeMixed {
			c.KVTokens *= 3
		}
	}
	c = bounds.Fill(c)
	s := &c.Scheduler
	s.StepTokens = cmp.Or(s.StepTokens, 2048)
	s.MaxRunning = cmp.Or(s.MaxRunning, 256)
	s.MaxInflight = cmp.Or(s.MaxInflight, 1)
	s.MaxQueued = cmp.Or(s.MaxQueued, max(c.Requests, 1))
	return c
}

// BuiltIn returns a profile of package sim by its name. It panics if there is none.
func BuiltIn(name string) sim.Profile {
	p, err := sim.ProfileByName(name)
	if err != nil {
		panic(fmt.Sprintf("bench: the profile %s: %v", name, err))
	}
	return p
}

// validate reports all faults at once, by field and value. The scheduler and the
// backend validate their own configurations.
func (c ServingConfig) validate() error {
	faults := bounds.Faults{Owner: "bench: "}
	faults.Add(bounds.Check("bench", c))
	faults.If(c.KVTokens < c.PageTokens, "KVTokens is %d in pages of %d, want at least one page", c.KVTokens, c.PageTokens)
	faults.If((c.Clients > 0) == (c.Rate != 0), "Rate is %v and Clients is %d, want one of them above 0", c.Rate, c.Clients)
	return faults.Err()
}

// backend returns the configuration of the simulated device.
func (c *ServingConfig) backend(clock *sim.Clock) sim.Config {
	return sim.Config{
		Profile: c.Profile, PageTokens: c.PageTokens, Pages: kv.FloorPages(c.KVTokens, c.PageTokens),
		MaxSlots: c.Scheduler.MaxRunning, MaxRows: c.Scheduler.MaxRunning, MaxTokens: c.Scheduler.StepTokens,
		MaxInflight: max(2, c.Scheduler.MaxInflight), Vocab: servingVocabulary, Sanitize: sim.Off, Clock: clock, Seed: c.Seed,
	}
}

// serve simulates a server: the production scheduler, a backend whose steps take the
// time that the profile predicts, and virtual time, in which everything but the steps
// and the profile's host time is free. It checks every token of every answer. Errors
// are wrong answers and the end of ctx. cfg must be valid, with defaults. serve only reads
// trace, so runs can share it.
//
// Cost: some tenths of a second for 3,000 requests.
func serve(ctx context.Context, cfg ServingConfig, trace *servingTrace) (ServingResult, error) {
	start := time.Now()
	p, err := newServingPlay(cfg, trace)
	if err != nil {
		return ServingResult{}, err
	}
	defer p.backend.Close()
	if err := p.run(ctx); err != nil {
		return ServingResult{}, fmt.Errorf("bench: load %v under %v: %w", cfg.Load, cfg.Scheduler.Policy, err)
	}
	r := p.summarise()
	r.WallSeconds = time.Since(start).Seconds()
	return r, nil
}
