package main

import (
	"context"
	"fmt"

	"github.com/coppice-llm/coppice/gateway/sizing"
)

// benchFleetCmd is coppice bench fleet; see gateway/sizing.
type benchFleetCmd struct {
	sizing.Config
	tableFlags
}

// Run is called by kong.
func (c *benchFleetCmd) Run(ctx context.Context) error {
	heading := fmt.Sprintf("%d workers, %d sessions of %d tokens in blocks of %d, %g choices/s", c.Workers, c.Sessions, c.Tokens, c.BlockTokens, c.Rate)
	return report(c.Steps(), "parts", heading, c.JSON, c.Markdown, func(progress func()) (*sizing.Figures, error) {
		return sizing.Play(ctx, c.Config, processorTime, progress)
	})
}
