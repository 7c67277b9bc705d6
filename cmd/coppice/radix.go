package main

import (
	"context"
	"fmt"
	"os"

	"github.com/coppice-llm/coppice/bench"
	"github.com/coppice-llm/coppice/radixcache"
)

type radixCmd struct {
	Trace          string            `type:"path" placeholder:"FILE" xor:"kind,requests,seed" help:"Prefix trace to replay. Default: a generated one."`
	Kind           *bench.TraceKind  `placeholder:"chat" xor:"kind" help:"Trace to generate: chat, fewshot, tree or unique. Default: chat."`
	Requests       *int              `placeholder:"10000" xor:"requests" help:"Requests to generate. Default: 10000."`
	Seed           *uint64           `placeholder:"7" xor:"seed" help:"Of the generated trace: the same seed gives the same one on every machine. Default: 7."`
	PageTokens     int               `name:"page-tokens" default:"16" min:"1" help:"Tokens per page: 1 to 32768."`
	BlockTokens    int               `name:"block-tokens" default:"0" help:"Tokens per event block, a multiple of a page; nobody listens here. Default: the cache's own."`
	CapacityTokens int               `name:"capacity-tokens" default:"0" help:"Tokens that the cache may hold. Default: all."`
	Policy         radixcache.Policy `default:"lru" help:"Which leaf is evicted first: ${evictions}."`
	Trim           bool              `help:"Evict the last pages of a leaf before the whole of it, and join what was split, as a server does. Default: whole leaves, as the published sums have it."`
	Passes         int               `default:"5" min:"1" help:"Timed replays, whose medians are shown."`
	JSON           bool              `name:"json" help:"Print one JSON object instead of the table."`
}

// Help is printed by kong under the summary.
func (*radixCmd) Help() string {
	return `Each request of a trace is matched, gets room by eviction, and is inserted.

Examples:
  coppice bench radix
  coppice bench radix --json
  coppice bench radix --kind tree --page-tokens 1
  coppice bench radix --capacity-tokens 500000   # a cache too small for the working set
  coppice bench radix --capacity-tokens 500000 --policy cost-aware --trim
  coppice bench radix --trace chat.pfxt`
}

// Run is called by kong.
func (c *radixCmd) Run(ctx context.Context) error {
	cfg := bench.RadixConfig{PageTokens: c.PageTokens, BlockTokens: c.BlockTokens, CapacityTokens: c.CapacityTokens, Policy: c.Policy, Trim: c.Trim, Passes: c.Passes}
	trace, source, err := c.load()
	if err != nil {
		return err
	}
	progress, finish := progressBar(cfg.Steps(), "replays")
	s, err := bench.PlayRadix(ctx, trace, cfg, progress)
	finish()
	if err != nil {
		return err
	}
	if c.JSON {
		return s.WriteJSON(os.Stdout)
	}
	fmt.Printf("%s, pages of %d tokens, %s\n\n", source, c.PageTokens, c.capacity())
	return s.WriteTable(os.Stdout)
}

// load reads the trace that was asked for, or makes it, and says which it is.
func (c *radixCmd) load() (t *bench.Trace, source string, err error) {
	if c.Trace != "" {
		t, err = bench.OpenTrace(c.Trace)
		return t, "trace " + c.Trace, err
	}
	// Pointers, as only kong knows which flags were given, and --trace excludes them.
	cfg := bench.TraceConfig{Kind: bench.TraceChat, Requests: 10000, Seed: 7}
	if c.Kind != nil {
		cfg.Kind = *c.Kind
	}
	if c.Requests != nil {
		cfg.Requests = *c.Requests
	}
	if c.Seed != nil {
		cfg.Seed = *c.Seed
	}
	t, err = bench.GenerateTrace(cfg)
	return t, fmt.Sprintf("generated trace %v, seed %d", cfg.Kind, cfg.Seed), err
}

func (c *radixCmd) capacity() string {
	if c.CapacityTokens == 0 {
		return "room for all"
	}
	return fmt.Sprintf("room for %d tokens", c.CapacityTokens)
}
