package main

import (
	"github.com/coppice-llm/coppice/bench"
	"github.com/coppice-llm/coppice/internal/terminal"
)

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
