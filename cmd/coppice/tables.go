package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/coppice-llm/coppice/bench"
	"github.com/coppice-llm/coppice/internal/terminal"
)

// traceTokens returns how many tokens generated traces may have: a quarter of the memory, because
// their replays need about twice as much again. 0 is no limit.
func traceTokens() int { return int(memoryBytes() / 4 / 4) }

// loadTraces generates a trace of each kind, with this many requests each, and reads the recorded
// Mooncake traces in the files mooncake. All generated traces together have at most the given
// number of tokens, if that is above 0.
func loadTraces(requests int, seed uint64, tokens int, mooncake []string) ([]bench.NamedTrace, error) {
	var traces []bench.NamedTrace
	kinds := []bench.TraceKind{bench.TraceChat, bench.TraceFewShot, bench.TraceTree, bench.TraceUnique}
	for _, kind := range kinds {
		t, err := bench.GenerateTrace(bench.TraceConfig{Kind: kind, Requests: requests, Seed: seed, MaxTokens: tokens / len(kinds)})
		if err != nil {
			return nil, err
		}
		traces = append(traces, bench.NamedTrace{Name: kind.String(), Trace: t})
	}
	for _, path := range mooncake {
		t, err := bench.OpenMooncake(path)
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
		traces = append(traces, bench.NamedTrace{Name: name, Trace: t, Scale: bench.MooncakeScale})
	}
	return traces, nil
}

// printJSON prints a value as indented JSON.
func printJSON(v any) error {
	e := json.NewEncoder(terminal.Out())
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// printReport prints a result as a text table, or as JSON or Markdown.
func printReport(r bench.Report, asJSON, asMarkdown bool) error {
	switch {
	case asJSON:
		return bench.WriteJSON(terminal.Out(), r)
	case asMarkdown:
		return bench.WriteMarkdown(terminal.Out(), r)
	}
	return bench.WriteTable(terminal.Out(), r)
}

// report calls run and shows a progress bar with this label and number of steps meanwhile; run
// calls progress after each step. Then it prints the result after the heading: as JSON (without
// the heading), as Markdown, or as a text table.
func report[R bench.Report](steps int, label, heading string, asJSON, asMarkdown bool, run func(progress func()) (R, error)) error {
	progress, finish := progressBar(steps, label)
	r, err := run(progress)
	finish()
	if err != nil {
		return err
	}
	if heading != "" && !asJSON {
		fmt.Fprintf(terminal.Out(), "%s\n\n", heading)
	}
	return printReport(r, asJSON, asMarkdown)
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
