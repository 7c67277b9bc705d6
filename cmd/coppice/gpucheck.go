package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/coppice-llm/coppice/bench"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv/system"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv/vm"
	"github.com/coppice-llm/coppice/engine/cuda/gpucheck"
	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
	"github.com/coppice-llm/coppice/engine/model/random"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/internal/terminal"
)

// gpucheckCmd is coppice gpucheck.
type gpucheckCmd struct {
	gpuFlags
	Backend string        `enum:"cuda,ptxvm" default:"cuda" help:"cuda (a GPU), or ptxvm: a dry run in the interpreter, with tiny sizes and meaningless figures."`
	Fuzz    time.Duration `default:"1m" help:"Duration of the comparison of bits over random batches."`
	Parts   []string      `placeholder:"PART,..." help:"Run these parts only: driver, conformance, kernels, bits, bits at size, ceilings, kernels alone, speed, profile, conversations."`
	Profile string        `type:"path" placeholder:"FILE" help:"Write a profile of a simulated device with this GPU's step times, for serve --profile and bench serving."`
	JSON    string        `name:"json" type:"path" placeholder:"FILE" help:"Also write the report to this file, as JSON, after every part: what is done stays if the rest does not get done."`
	Text    string        `type:"path" placeholder:"FILE" help:"Also write the report to this file, as text, after every part."`
}

// Run is called by kong.
func (c *gpucheckCmd) Run(ctx context.Context) error {
	say := func(line string) { fmt.Fprintln(terminal.Out(), line) }
	cfg := gpucheck.Config{Device: c.GPU, MemoryFraction: c.GPUMemory, Fuzz: c.Fuzz, Only: c.Parts, Log: say}
	steps := bench.CalibrateConfig{NewTokens: 2048, ContextTokens: 4096, Rows: 64}
	err := errors.Join(canWrite("--json", c.JSON), canWrite("--text", c.Text), canWrite("--profile", c.Profile))
	if err != nil {
		return err
	}
	if c.Backend == "ptxvm" {
		cfg.Driver = vm.New(ptxvm.Config{MemoryBytes: 64 << 20})
		cfg = cfg.Tiny()
		steps = bench.CalibrateConfig{NewTokens: 16, ContextTokens: 128, Rows: 4, Rounds: 1}
	} else if cfg.Driver, err = system.Open(); err != nil {
		return withRemedy(err, "ptxvm")
	}
	cfg.Steps = func(ctx context.Context, b engine.Backend) ([]sim.Sample, error) {
		return bench.MeasureSteps(ctx, b, steps, stepsBar())
	}
	all := gpuReport{}
	cfg.More = []gpucheck.Part{{Name: "conversations", Run: func(ctx context.Context) (err error) {
		all.Chat, err = c.chat(ctx)
		return err
	}}}
	cfg.Save = func(r *gpucheck.Report) error {
		all.Report = r
		return c.save(&all)
	}
	report, err := gpucheck.Run(ctx, cfg)
	if report != nil {
		text, failed := all.text()
		fmt.Fprintf(terminal.Out(), "\n%s", text)
		err = errors.Join(err, failed)
		if c.Profile != "" && report.Profile != nil {
			err = errors.Join(err, writeJSON(c.Profile, report.Profile))
		}
		if n := report.Failed(); n > 0 {
			err = errors.Join(err, fmt.Errorf("%d checks failed", n))
		}
	}
	return withRemedy(err, "ptxvm")
}

// gpuReport is the content of the report file.
type gpuReport struct {
	*gpucheck.Report
	Chat *bench.Comparison `json:",omitempty"`
}

// text returns the report as text.
func (r *gpuReport) text() (string, error) {
	var b strings.Builder
	b.WriteString(r.String())
	if r.Chat == nil {
		return b.String(), nil
	}
	b.WriteString("\nConversations, with the cache on and off:\n")
	err := bench.WriteTable(&b, r.Chat)
	return b.String(), err
}

// save writes the report so far to the files that the flags name. A reader finds the last report or
// this one, never half of it.
func (c *gpucheckCmd) save(r *gpuReport) error {
	text, err := r.text()
	if err != nil {
		return err
	}
	if c.JSON != "" {
		err = replaced(c.JSON, func(file string) error { return writeJSON(file, r) })
	}
	if c.Text != "" {
		err = errors.Join(err, replaced(c.Text, func(file string) error { return os.WriteFile(file, []byte(text), 0o644) }))
	}
	return err
}

// replaced replaces a file by the one that write writes beside it.
func replaced(file string, write func(file string) error) error {
	if err := write(file + ".new"); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// chat plays conversations with the cache on and off, as bench chat does.
func (c *gpucheckCmd) chat(ctx context.Context) (*bench.Comparison, error) {
	play := benchChatCmd{nodeFlags: nodeFlags{KVTokens: 65536, PageTokens: 16, StepTokens: 2048, Inflight: 2, gpuFlags: c.gpuFlags},
		backendFlags: backendFlags{Backend: c.Backend}}
	cfg := bench.ChatConfig{Requests: 200, Turns: 4, SystemPrompts: 6, SystemBytes: 480, OutputTokens: 16, Clients: 8, Seed: 1}
	preset := random.Demo
	if c.Backend == "ptxvm" {
		cfg.Requests, cfg.Turns, cfg.SystemPrompts, cfg.SystemBytes, cfg.OutputTokens, cfg.Clients = 2, 2, 1, 40, 2, 1
		play.KVTokens, play.StepTokens, preset = 1024, 128, random.Nano
	}
	dir, remove, err := generated(random.Spec{Preset: preset, Seed: 1}, preset.String())
	if err != nil {
		return nil, err
	}
	defer remove()
	load, err := bench.NewChat(cfg)
	if err != nil {
		return nil, err
	}
	return play.compare(ctx, load, dir)
}
