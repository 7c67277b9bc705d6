package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/coppice-llm/coppice/bench"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/scheduler"
)

// servingCmd is coppice bench serving; see bench.CompareServing.
type servingCmd struct {
	Policies   []string            `placeholder:"NAME" help:"Policies to compare, with optional settings: lpm:aging=64:oldest-every=16. Default: all except priority, because no load has priorities."`
	Loads      []bench.ServingLoad `placeholder:"NAME" help:"Loads: chat, fewshot, tree, unique, mixed, tenants. Default: all."`
	Levels     []string            `placeholder:"NAME" help:"Levels of load: low, saturating, overload, or percent of the capacity. Default: the three names."`
	Requests   int                 `default:"3000" min:"1" help:"Requests per run."`
	Seed       uint64              `default:"7" help:"Seed of the loads: the same seed gives the same table on every machine."`
	Profile    string              `default:"h200" placeholder:"NAME" help:"Simulated device: h200, h100, a100, cpu2, or a JSON file of coppice calibrate."`
	KVTokens   int                 `name:"kv-tokens" placeholder:"200000" min:"1" help:"Size of the KV pool in tokens. Default: 200000, and 600000 for the load mixed."`
	PageTokens int                 `name:"page-tokens" default:"16" min:"1" help:"Tokens per page, a power of two."`
	StepTokens int                 `name:"step-tokens" default:"2048" min:"1" help:"Tokens per step."`
	MaxRunning int                 `name:"max-running" default:"256" min:"1" help:"Most running requests."`
	Inflight   int                 `default:"1" min:"1" help:"Plans in flight."`
	tableFlags
}

// Run is called by kong.
func (c *servingCmd) Run(ctx context.Context) error {
	profile, err := openProfile(c.Profile)
	if err != nil {
		return err
	}
	cfg := bench.CompareServingConfig{Loads: c.Loads, Base: bench.ServingConfig{
		Profile: profile, KVTokens: c.KVTokens, PageTokens: c.PageTokens, Requests: c.Requests, Seed: c.Seed,
		Scheduler: scheduler.Config{StepTokens: c.StepTokens, MaxRunning: c.MaxRunning, MaxInflight: c.Inflight},
	}}
	for _, text := range c.Policies {
		v, err := variant(text, cfg.Base.Scheduler)
		if err != nil {
			return err
		}
		cfg.Variants = append(cfg.Variants, v)
	}
	for _, text := range c.Levels {
		l, err := level(text)
		if err != nil {
			return err
		}
		cfg.Levels = append(cfg.Levels, l)
	}
	return report(cfg.Steps(), "runs", "", c.JSON, c.Markdown, func(progress func()) (*bench.ServingTable, error) {
		return bench.CompareServing(ctx, cfg, progress)
	})
}

// openProfile returns a built-in profile by name, or reads one from a file. A name with a
// path separator, or one that ends in .json, is a file.
func openProfile(name string) (sim.Profile, error) {
	if filepath.Ext(name) != ".json" && filepath.Base(name) == name {
		p, err := sim.ProfileByName(name)
		if err != nil {
			return p, fmt.Errorf("--profile: %w, or a file such as ./profile.json", err)
		}
		return p, nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return sim.Profile{}, fmt.Errorf("--profile: %w", err)
	}
	p, err := sim.ParseProfile(text)
	if err == nil && p == (sim.Profile{}) {
		err = errors.New("it is empty, want all fields")
	}
	if err != nil {
		return p, fmt.Errorf("--profile %s: %w", name, err)
	}
	return p, nil
}

// variant parses a policy with optional settings, such as lpm:aging=64. Settings not in text are
// those of base.
func variant(text string, base scheduler.Config) (bench.ServingVariant, error) {
	v := bench.ServingVariant{Name: text, Scheduler: base}
	name, rest, more := strings.Cut(text, ":")
	if err := v.Scheduler.Policy.UnmarshalText([]byte(name)); err != nil {
		return v, fmt.Errorf("--policies: %w", err)
	}
	for more {
		var setting string
		setting, rest, more = strings.Cut(rest, ":")
		key, value, _ := strings.Cut(setting, "=")
		s := &v.Scheduler
		field, known := map[string]*int{
			"aging": &s.Aging, "oldest-every": &s.OldestEvery, "quantum": &s.Quantum, "step-tokens": &s.StepTokens, "chunk-tokens": &s.ChunkTokens,
			"attention-tokens": &s.AttentionTokens, "max-prefilling": &s.MaxPrefilling, "max-bypass": &s.MaxBypass,
			"share-tokens": &s.ShareTokens, "max-running": &s.MaxRunning, "inflight": &s.MaxInflight,
		}[key]
		n, err := strconv.Atoi(value)
		if !known || err != nil || n == 0 {
			return v, fmt.Errorf("--policies: %q in %q, want one of aging, oldest-every, quantum, step-tokens, chunk-tokens, attention-tokens, "+
				"max-prefilling, max-bypass, share-tokens, max-running and inflight, as aging=64", setting, text)
		}
		*field = n
	}
	return v, nil
}

// level parses the name of a level, or a percentage of the capacity.
func level(text string) (bench.ServingLevel, error) {
	for _, l := range bench.ServingLevels() {
		if l.Name == text {
			return l, nil
		}
	}
	percent, err := strconv.ParseFloat(text, 64)
	if err != nil || !(percent > 0 && percent <= 1000) {
		return bench.ServingLevel{}, fmt.Errorf("--levels: %q, want low, saturating, overload, or percent above 0 and at most 1000", text)
	}
	return bench.ServingLevel{Name: text + " %", Share: percent / 100}, nil
}

// schedCmd is coppice bench sched; see bench.PlaySched.
type schedCmd struct {
	bench.SchedConfig
	Policy scheduler.Policy `default:"lpm" help:"Order of waiting requests: ${policies}."`
	Seed   uint64           `default:"7" help:"Seed of the prompts."`
	JSON   bool             `name:"json" help:"Print one JSON object instead of the table."`
}

// Run is called by kong.
func (c *schedCmd) Run(ctx context.Context) error {
	cfg := c.SchedConfig
	cfg.Policy, cfg.Seed = c.Policy, c.Seed
	heading := fmt.Sprintf("%d running and %d waiting requests of %d + %d tokens under %v, pages of %d tokens, %d plans at a time",
		c.Rows, c.Queue, c.PromptTokens, c.OutputTokens, c.Policy, c.PageTokens, c.Inflight)
	return report(cfg.Steps(), "requests", heading, c.JSON, false, func(progress func()) (*bench.SchedSummary, error) {
		return bench.PlaySched(ctx, cfg, progress)
	})
}
