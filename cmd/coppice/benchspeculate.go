package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/bench/speculate"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/local"
	"github.com/coppice-llm/coppice/scheduler"
)

// benchSpeculateCmd is coppice bench speculate; see speculate.Compare.
type benchSpeculateCmd struct {
	nodeFlags
	backendFlags
	Loads        []string `default:"rewrite,records,calls,chat,streams" help:"Loads: rewrite (a source file of 150 lines again, with a small change), records (CSV to JSON lines), calls (calls of tools, under a JSON schema), chat (answers to questions), streams (16 of all of these at a time), or files of tasks that end in .jsonl."`
	Runs         int      `default:"3" min:"1" help:"Runs of each load with drafts off and as many with drafts on, in turns; figures are medians."`
	Tasks        int      `default:"0" min:"0" help:"Play only this many tasks of each load. 0: all."`
	OutputTokens int      `name:"output-tokens" default:"0" min:"0" help:"Cut each output after this many tokens. 0: none."`
	Free         bool     `help:"Let the model answer as it wants, at temperature 0, at most as long as the output in the load. Default: the model is made to sample that output."`
	tableFlags
}

// Run is called by kong.
func (c *benchSpeculateCmd) Run(ctx context.Context) error {
	var loads []*speculate.Load
	for _, name := range c.Loads {
		l, err := speculate.Open(name)
		if err != nil {
			return fmt.Errorf("--loads: %w", err)
		}
		loads = append(loads, l)
	}
	dir, remove, err := c.modelDir(ctx, c.Backend)
	if err != nil {
		return err
	}
	defer remove()
	cfg := speculate.Config{Runs: c.Runs, Tasks: c.Tasks, OutputTokens: c.OutputTokens, Free: c.Free, Processor: processorTime}
	cfg.Open = func(drafts bool, around func(engine.Backend) engine.Backend) (*coppice.Node, error) {
		return c.open(dir, drafts, around)
	}
	steps := 0
	for _, l := range loads {
		steps += cfg.Steps(l)
	}
	progress, finish := progressBar(steps, "tasks")
	var table speculate.Table
	var differs error
	for _, l := range loads {
		comparison, err := speculate.Compare(ctx, l, cfg, progress)
		if comparison == nil {
			finish()
			return err
		}
		table, differs = append(table, comparison), errors.Join(differs, err)
	}
	finish()
	return errors.Join(printReport(table, c.JSON, c.Markdown), differs)
}

// open starts a node on around(backend) with the model in dir.
func (c *benchSpeculateCmd) open(dir string, drafts bool, around func(engine.Backend) engine.Backend) (*coppice.Node, error) {
	cfg := c.scheduler()
	switch {
	case !drafts:
		cfg.Speculate = scheduler.SpeculateOff
	case cfg.Speculate == scheduler.SpeculateOff: // the flag's default
		cfg.Speculate = scheduler.SpeculateAuto
	}
	m, err := local.Open(dir, local.Options{
		Node: coppice.Config{Scheduler: cfg},
		Backend: func(m *model.Model, _ *coppice.Config) (engine.Backend, error) {
			b, err := c.backend(m, &c.backendFlags)
			if err != nil {
				return nil, err
			}
			return around(b), nil
		},
	})
	if err != nil {
		return nil, err
	}
	return m.Node, nil
}
