package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/coppice-llm/coppice/bench"
	"github.com/coppice-llm/coppice/internal/terminal"
	"github.com/coppice-llm/coppice/radixcache"
)

// traceTokens returns how many tokens generated traces may have: a quarter of the memory, because
// their replays need about twice as much again. 0 is no limit.
func traceTokens() int { return int(memoryBytes() / 4 / 4) }

// tracesFlags select the traces of commands that compare caches.
type tracesFlags struct {
	Requests   int      `default:"10000" help:"Requests of each generated trace."`
	Seed       uint64   `default:"7" help:"Seed of the generated traces: the same seed gives the same traces on every machine."`
	PageTokens int      `name:"page-tokens" default:"16" min:"1" help:"Tokens per page. More than 16 hides sharing in Mooncake's traces."`
	Mooncake   []string `type:"path" placeholder:"FILE" help:"Recorded trace of the Mooncake project, in JSON lines. Repeat the flag for several."`
}

// load generates a trace of each kind and reads the recorded ones. All generated traces together have at
// most the given number of tokens, if that is above 0.
func (c *tracesFlags) load(tokens int) ([]bench.NamedTrace, error) {
	var traces []bench.NamedTrace
	kinds := []bench.TraceKind{bench.TraceChat, bench.TraceFewShot, bench.TraceTree, bench.TraceUnique}
	for _, kind := range kinds {
		t, err := bench.GenerateTrace(bench.TraceConfig{Kind: kind, Requests: c.Requests, Seed: c.Seed, MaxTokens: tokens / len(kinds)})
		if err != nil {
			return nil, err
		}
		traces = append(traces, bench.NamedTrace{Name: kind.String(), Trace: t})
	}
	recorded, err := c.recorded()
	return append(traces, recorded...), err
}

// recorded reads the recorded traces.
func (c *tracesFlags) recorded() (traces []bench.NamedTrace, err error) {
	for _, path := range c.Mooncake {
		t, err := bench.OpenMooncake(path)
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
		traces = append(traces, bench.NamedTrace{Name: name, Trace: t, Scale: bench.MooncakeScale})
	}
	return traces, nil
}

// traceFlags select the trace to replay.
type traceFlags struct {
	Trace    string          `type:"path" placeholder:"FILE" xor:"kind,requests,seed" help:"Prefix trace to replay. Default: a generated one."`
	Kind     bench.TraceKind `placeholder:"chat" xor:"kind" help:"Trace to generate: chat, fewshot, tree or unique. Default: chat."`
	Requests int             `placeholder:"10000" xor:"requests" min:"1" help:"Requests to generate. Default: 10000."`
	Seed     *uint64         `placeholder:"7" xor:"seed" help:"Seed of the generated trace: the same seed gives the same trace on every machine. Default: 7."`
}

// load reads or generates the trace; source describes it.
func (c *traceFlags) load() (t *bench.Trace, source string, err error) {
	if c.Trace != "" {
		t, err = bench.OpenTrace(c.Trace)
		return t, "trace " + c.Trace, err
	}
	// The flags have no defaults because --trace excludes them: a default value would count as
	// given.
	cfg := bench.TraceConfig{Kind: c.Kind, Requests: cmp.Or(c.Requests, 10000), Seed: 7, MaxTokens: traceTokens()}
	if c.Seed != nil {
		cfg.Seed = *c.Seed
	}
	t, err = bench.GenerateTrace(cfg)
	return t, fmt.Sprintf("generated trace %v, seed %d", cfg.Kind, cfg.Seed), err
}

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

// indexCmd is coppice bench index; see bench.PlayIndex.
type indexCmd struct {
	traceFlags
	bench.IndexConfig
	JSON bool `name:"json" help:"Print one JSON object instead of the table."`
}

// Run is called by kong.
func (c *indexCmd) Run(ctx context.Context) error {
	trace, source, err := c.load()
	if err != nil {
		return err
	}
	heading := fmt.Sprintf("%s, blocks of %d tokens, %d workers, %v index, threads: %d", source, c.BlockTokens, c.Workers, c.IndexConfig.Kind, c.Threads)
	return report(c.Steps(), "replays", heading, c.JSON, false, func(progress func()) (*bench.IndexSummary, error) {
		return bench.PlayIndex(ctx, trace, c.IndexConfig, progress)
	})
}

// policiesCmd is coppice bench policies; see bench.ComparePolicies.
type policiesCmd struct {
	tracesFlags
	Agents bool      `help:"Compare on traces of agents in a closed loop instead of the four generated ones. Policies learn from the seed and are scored on the next one; the capacities are 10, 30 and 120 percent of what the sessions that run need."`
	Policy []string  `placeholder:"NAME" help:"Policies to compare. Default: all but priority, which no trace has."`
	Room   []float64 `default:"5,10,25,50" above:"0" max:"100" help:"Capacities, in percent of the working set."`
	tableFlags
}

// Run is called by kong.
func (c *policiesCmd) Run(ctx context.Context) error {
	if len(c.Room) == 0 {
		return errors.New("--room is empty, want percentages")
	}
	cfg := bench.PolicyConfig{PageTokens: c.PageTokens, Policies: c.Policy}
	for _, percent := range c.Room {
		cfg.Shares = append(cfg.Shares, percent/100)
	}
	traces, err := c.traces()
	if err != nil {
		return err
	}
	return report(cfg.Steps(traces), "replays", "", c.JSON, c.Markdown, func(progress func()) (*bench.PolicyTable, error) {
		return bench.ComparePolicies(ctx, traces, cfg, progress)
	})
}

// traces returns the traces to compare on.
func (c *policiesCmd) traces() ([]bench.NamedTrace, error) {
	if !c.Agents {
		return c.tracesFlags.load(traceTokens())
	}
	traces, err := bench.Agents(c.Requests, c.Seed)
	if err != nil {
		return nil, err
	}
	recorded, err := c.recorded()
	return append(traces, recorded...), err
}

// curveCmd is coppice bench curve; see bench.CompareCurve.
type curveCmd struct {
	tracesFlags
	Samples int       `default:"16384" min:"1" help:"Number of blocks that the live curve tracks, about 130 bytes each."`
	Room    float64   `default:"10" above:"0" max:"100" help:"Capacity of the cache with the live curve, in percent of the working set."`
	Sizes   []float64 `default:"0.25,0.5,1,2,4,8" help:"Capacities to predict, as multiples of that capacity."`
	tableFlags
}

// Run is called by kong.
func (c *curveCmd) Run(ctx context.Context) error {
	if len(c.Sizes) == 0 {
		return errors.New("--sizes is empty, want multiples of the capacity")
	}
	traces, err := c.tracesFlags.load(traceTokens())
	if err != nil {
		return err
	}
	cfg := bench.CurveConfig{PageTokens: c.PageTokens, Samples: c.Samples, BaseShare: c.Room / 100, Factors: c.Sizes}
	return report(cfg.Steps(len(traces)), "replays", "", c.JSON, c.Markdown, func(progress func()) (*bench.CurveTable, error) {
		return bench.CompareCurve(ctx, traces, cfg, progress)
	})
}

// analyzeCmd holds the commands of coppice analyze.
type analyzeCmd struct {
	Trace analyzeTraceCmd `cmd:"" help:"Analyse a trace of prompts: lengths, reuse of prefixes, and suggested settings."`
}

// analyzeTraceCmd is coppice analyze trace; see bench.Analyze.
type analyzeTraceCmd struct {
	File string `arg:"" type:"path" help:"Prefix trace, or a recorded trace of the Mooncake project in JSON lines."`
	bench.AnalyzeConfig
	JSON bool `name:"json" help:"Print one JSON object instead of the tables."`
}

// Run is called by kong.
func (c *analyzeTraceCmd) Run() error {
	s, err := bench.OpenSequences(c.File)
	if err != nil {
		return err
	}
	a, err := bench.Analyze(s, c.AnalyzeConfig)
	if err != nil {
		return err
	}
	if c.JSON {
		return bench.WriteJSON(terminal.Out(), a)
	}
	return a.WriteTable(terminal.Out())
}
