package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/coppice-llm/coppice/bench"
	"github.com/coppice-llm/coppice/bench/whatif"
	"github.com/coppice-llm/coppice/router/decisions"
)

// score scores policies on the recorded decisions of --decisions; see bench/whatif.
func (c *simFleetCmd) score(ctx context.Context) error {
	if err := c.checkScore(); err != nil {
		return err
	}
	f, err := os.Open(c.Decisions)
	if err != nil {
		return fmt.Errorf("--decisions: %w; coppice route --record FILE writes such a file", err)
	}
	defer f.Close()
	rec, err := decisions.Read(f)
	if err != nil {
		return fmt.Errorf("--decisions %s: %w; coppice route --record writes such files", c.Decisions, err)
	}
	cfg := whatif.Config{Weights: rec.Head.Weights, Seed: c.Seed}
	for _, p := range c.Policies {
		cfg.Policies = append(cfg.Policies, p.Router)
	}
	for name, value := range c.Weight {
		if err := cfg.Weights.Set(name, value); err != nil {
			return fmt.Errorf("--weight: %w", err)
		}
	}
	t, err := whatif.Score(ctx, cfg, rec)
	if err != nil {
		return err
	}
	var r bench.Report = t
	if c.Each && !c.JSON {
		r = t.Each()
	}
	return printReport(r, c.JSON, c.Markdown)
}

// checkScore refuses flags that make requests or workers, which a recording has itself.
func (c *simFleetCmd) checkScore() error {
	d := simFleetCmd{}
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"workers", len(c.Workers) != 1 || c.Workers[0] != 8}, {"traces", len(c.Traces) != 1 || c.Traces[0] != "chat"}, {"worker", c.Worker != d.Worker},
		{"requests", c.Requests != 0}, {"load", c.Load != 65}, {"profile", c.Profile != "h100"}, {"kv-tokens", c.KVTokens != 0}, {"step-tokens", c.StepTokens != 2048},
		{"event-delay", c.EventDelay != 0}, {"predict", c.Predict != 0}, {"predict-requests", c.PredictReq}, {"restart-at", c.RestartAt != 0}, {"time", c.Time},
	} {
		if f.given {
			return fmt.Errorf("--decisions has its own requests and workers: omit --%s", f.name)
		}
	}
	for _, p := range c.Policies {
		if p.Buckets > 0 {
			return errors.New("--decisions scores policies without buckets: omit buckets:… of --policies")
		}
	}
	return nil
}
