package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/bench"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/backends"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/local"
	"github.com/coppice-llm/coppice/scheduler"
)

// benchTiersCmd is coppice bench tiers; see bench.PlayTiers.
type benchTiersCmd struct {
	engineFlags
	KVType     kv.DType `name:"kv-type" default:"f32" help:"Data type of keys and values: f32, f16, bf16 or q8_0."`
	PageTokens int      `name:"page-tokens" default:"16" help:"Tokens per page: a power of two, 1 to 256."`
	bench.TiersConfig
	Seed uint64 `default:"1" help:"Seed of the questions."`
	JSON bool   `name:"json" help:"Print a JSON array instead of the table."`
}

// Run is called by kong.
func (c *benchTiersCmd) Run(ctx context.Context) error {
	dir, remove, err := c.model(ctx)
	if err != nil {
		return err
	}
	defer remove()
	cfg := c.TiersConfig
	cfg.Open = func(tokens int, tiers coppice.Tiers) (*coppice.Node, error) { return c.open(dir, tokens, tiers) }
	cfg.Seed = c.Seed
	progress, finish := progressBar(cfg.TierSteps(c.PageTokens), "requests")
	runs, err := bench.PlayTiers(ctx, cfg, progress)
	finish()
	if err != nil {
		return err
	}
	err = printReport(runs, c.JSON, false)
	for i := range runs {
		if r := &runs[i]; !r.Identical || r.LeakedPages != 0 {
			err = errors.Join(err, fmt.Errorf("working set %dx, %s: same bits: %v, leaked pages: %d", r.WorkingSet, r.Config, r.Identical, r.LeakedPages))
		}
	}
	return err
}

// model returns the path of the given model, or of a generated one with room for the prompts. remove
// deletes the latter.
func (c *benchTiersCmd) model(ctx context.Context) (dir string, remove func(), err error) {
	if c.Model != "" {
		return c.Model.or(ctx, c.Preset)
	}
	return generated(model.Spec{Preset: c.Preset, Seed: 1, Positions: c.Positions()}, c.Preset.String())
}

// open starts a node with the cpu backend and the model in dir. tokens is the size of the device's
// pool.
func (c *benchTiersCmd) open(dir string, tokens int, tiers coppice.Tiers) (*coppice.Node, error) {
	m, err := local.Open(dir, local.Options{
		Node: coppice.Config{Tiers: tiers, Scheduler: scheduler.Config{StepTokens: 512}},
		Backend: func(m *model.Model, _ *coppice.Config) (engine.Backend, error) {
			return openBackend("cpu", backends.Options{
				Model: m, PageTokens: c.PageTokens, KVTokens: tokens, KVType: c.KVType, Threads: c.Threads, MaxTokens: 512,
			})
		},
	})
	if err != nil {
		return nil, err
	}
	return m.Node, nil
}
