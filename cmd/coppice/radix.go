package main

import (
	"context"
	"fmt"

	"github.com/coppice-llm/coppice/bench"
	"github.com/coppice-llm/coppice/radixcache"
)

// radixCmd is coppice bench radix; see bench.PlayRadix.
type radixCmd struct {
	traceFlags
	bench.RadixConfig
	Policy radixcache.Policy `default:"lru" help:"Eviction policy: ${evictions}."`
	JSON   bool              `name:"json" help:"Print one JSON object instead of the table."`
}

// Run is called by kong.
func (c *radixCmd) Run(ctx context.Context) error {
	c.RadixConfig.Policy = c.Policy
	trace, source, err := c.load()
	if err != nil {
		return err
	}
	heading := fmt.Sprintf("%s, pages of %d tokens, %s", source, c.PageTokens, c.capacity())
	return report(c.Steps(), "replays", heading, c.JSON, false, func(progress func()) (*bench.RadixSummary, error) {
		return bench.PlayRadix(ctx, trace, c.RadixConfig, progress)
	})
}

func (c *radixCmd) capacity() string {
	if c.CapacityTokens == 0 {
		return "room for all"
	}
	return fmt.Sprintf("room for %d tokens", c.CapacityTokens)
}
