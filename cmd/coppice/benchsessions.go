package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/bench"
)

// benchSessionsCmd is coppice bench sessions; see bench.PlaySessions.
type benchSessionsCmd struct {
	benchNodeFlags
	bench.SessionsConfig
	Seed uint64 `default:"1" help:"Seed of the tokens."`
	tableFlags
}

// Run is called by kong.
func (c *benchSessionsCmd) Run(ctx context.Context) error {
	dir, remove, err := c.model(ctx, c.Positions())
	if err != nil {
		return err
	}
	defer remove()
	cfg := c.SessionsConfig
	cfg.Open = func(tokens int, tiers coppice.Tiers) (*coppice.Node, error) { return c.open(dir, tokens, tiers) }
	cfg.Seed = c.Seed
	progress, finish := progressBar(cfg.SessionSteps(), "turns")
	figures, err := bench.PlaySessions(ctx, cfg, progress)
	finish()
	if err != nil {
		return err
	}
	err = printReport(figures, c.JSON, c.Markdown)
	if p := figures.Parks; p != nil && !p.Identical {
		err = errors.Join(err, errors.New("a resumed session has other logit bits"))
	}
	if n := figures.LeakedPages(); n != 0 {
		err = errors.Join(err, fmt.Errorf("%d pages leaked", n))
	}
	return err
}
