package main

import (
	"context"
	"fmt"

	"github.com/coppice-llm/coppice/bench"
	"github.com/coppice-llm/coppice/radixcache"
)

// radixCmd is coppice bench radix; see bench.PlayRadix.
type radixCmd struct {
	traceFlags     `embed:""`
	PageTokens     int               `name:"page-tokens" default:"16" min:"1" help:"Tokens per page: 1 to 32768."`
	BlockTokens    int               `name:"block-tokens" default:"0" help:"Tokens per event block, a multiple of a page. The events are made and discarded. Default: the cache's own."`
	CapacityTokens int               `name:"capacity-tokens" default:"0" help:"Capacity of the cache, in tokens. Default: the whole trace fits."`
	Policy         radixcache.Policy `default:"lru" help:"Eviction policy: ${evictions}."`
	Trim           bool              `help:"Evict page by page from a leaf's end, and join split nodes, as a server does. Default: whole leaves, as for the published checksums."`
	Passes         int               `default:"5" min:"1" help:"Number of timed replays; the report shows medians."`
	JSON           bool              `name:"json" help:"Print one JSON object instead of the table."`
}

// Run is called by kong.
func (c *radixCmd) Run(ctx context.Context) error {
	cfg := bench.RadixConfig{PageTokens: c.PageTokens, BlockTokens: c.BlockTokens, CapacityTokens: c.CapacityTokens, Policy: c.Policy, Trim: c.Trim, Passes: c.Passes}
	trace, source, err := c.load()
	if err != nil {
		return err
	}
	heading := fmt.Sprintf("%s, pages of %d tokens, %s", source, c.PageTokens, c.capacity())
	return report(cfg.Steps(), "replays", heading, c.JSON, false, func(progress func()) (*bench.RadixSummary, error) {
		return bench.PlayRadix(ctx, trace, cfg, progress)
	})
}

func (c *radixCmd) capacity() string {
	if c.CapacityTokens == 0 {
		return "room for all"
	}
	return fmt.Sprintf("room for %d tokens", c.CapacityTokens)
}
