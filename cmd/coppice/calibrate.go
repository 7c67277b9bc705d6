package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coppice-llm/coppice/bench"
	"github.com/coppice-llm/coppice/engine/backends"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/internal/terminal"
)

// calibrateCmd is coppice calibrate; see bench.MeasureSteps and sim.Fit.
type calibrateCmd struct {
	engineFlags
	bench.CalibrateConfig
	Out  string `type:"path" placeholder:"FILE" help:"Write the profile to this file, as JSON."`
	CSV  string `name:"csv" type:"path" placeholder:"FILE" help:"Write the steps to this file, measured and predicted."`
	JSON bool   `name:"json" help:"Print one JSON object with profile and errors instead of text."`
}

// Run is called by kong.
func (c *calibrateCmd) Run(ctx context.Context) error {
	if err := c.validate(); err != nil {
		return err
	}
	m, backend, done, err := c.openCPU(ctx, backends.Options{KVTokens: c.KVTokens(), MaxTokens: max(512, c.NewTokens), MaxRows: 16, MaxSlots: 16})
	if err != nil {
		return err
	}
	defer done()
	base, err := calibrationBase(m, backend, c.threads())
	if err != nil {
		return err
	}
	samples, err := bench.MeasureSteps(ctx, backend, c.CalibrateConfig, stepsBar())
	if err != nil {
		return err
	}
	profile, report, err := fitCached(base, samples)
	if err != nil {
		return err
	}
	profile.Source = fmt.Sprintf("coppice calibrate: %d steps fitted, error %.1f %%; %d held out, error %.1f %%. Bandwidth and arithmetic measured, on %s; mem is that of cpu2 or twice what the model and its longest sequence need, PCIe and host terms are those of cpu2.",
		report.Train, 100*report.TrainMAPE, report.HeldOut, 100*report.HeldOutMAPE, profile.Device.Name)
	return c.write(samples, &profile, &report)
}

// validate returns an error if an output file cannot be written.
func (c *calibrateCmd) validate() error {
	return errors.Join(canWrite("--out", c.Out), canWrite("--csv", c.CSV))
}

// canWrite returns an error if file can't be written because its directory is missing, so that a
// command fails before it measures anything. flag names the flag in the error. An empty file name
// is valid.
func canWrite(flag, file string) error {
	if file == "" {
		return nil
	}
	if _, err := os.Stat(filepath.Dir(file)); err != nil {
		return fmt.Errorf("%s: %w; make the directory first", flag, err)
	}
	return nil
}

// calibrationBase returns the profile cpu2 with the dimensions of the model m and of its backend,
// and with the bandwidth and arithmetic that it measures on this machine with this many threads.
func calibrationBase(m *model.Model, backend *cpu.Backend, threads int) (sim.Profile, error) {
	p, err := sim.ProfileByName("cpu2")
	if err != nil {
		return p, err
	}
	ceilings := cpu.MeasureCeilings("", threads)
	if ceilings.GBs <= 0 || ceilings.GFlops <= 0 {
		return p, fmt.Errorf("measured %.3g GB/s of memory bandwidth and %.3g GFLOP/s, want both above 0; the measurement needs 256 MB of free memory", ceilings.GBs, ceilings.GFlops)
	}
	cfg, work := m.Config(), backend.Work()
	params := int64(work.LayerParams + work.HeadParams)
	p.Model = sim.Model{
		Name: "model " + m.ID(), Params: params, LinearParams: int64(work.LayerParams), Layers: cfg.Layers, Hidden: cfg.Hidden,
		Heads: cfg.Heads, KVHeads: cfg.KVHeads, HeadDim: cfg.HeadDim, Vocab: cfg.Vocab, MaxPositions: cfg.MaxPositions,
		WeightBytes: float64(work.WeightBytes) / float64(params), KVBytes: 4,
	}
	p.Name = "calibrated"
	p.Device.Name = fmt.Sprintf("%d threads, %s", threads, ceilings.ISA)
	p.Device.BW, p.Device.Flops = ceilings.GBs*1e9, ceilings.GFlops*1e9
	info := backend.Info()
	kvBytes := int64(info.PageBytes / info.PageTokens * max(info.MaxPositions, info.NumPages*info.PageTokens))
	p.Device.Mem = max(p.Device.Mem, 2*(int64(work.WeightBytes)+kvBytes))
	return p, nil
}

// fitCached fits the profile base to the samples by sim.Fit, with a bandwidth that may exceed that
// of memory. A small model or its KV lies in the CPU caches and is read faster than memory, but
// the fitted shares of the bandwidth cannot exceed 1. So while a share is at its bound, fitCached
// raises the bandwidth of base fourfold, up to 64 times that of memory, and fits again. It stops
// when a fit does not reduce the error on the fitted steps by a tenth.
func fitCached(base sim.Profile, samples []sim.Sample) (sim.Profile, sim.FitReport, error) {
	const most = 64 // bandwidth of the first-level caches of all cores, over that of memory
	name, memory := base.Device.Name, base.Device.BW
	best, report, err := sim.Fit(base, samples)
	for err == nil && base.Device.BW < most*memory && slices.ContainsFunc(report.AtBound, readsMemory) {
		base.Device.BW *= 4
		base.Device.Name = fmt.Sprintf("%s, caches of %.0f times the memory's bandwidth", name, base.Device.BW/memory)
		p, r, faster := sim.Fit(base, samples)
		if faster != nil || r.TrainMAPE > 0.9*report.TrainMAPE {
			break
		}
		best, report = p, r
	}
	return best, report, err
}

// readsMemory reports whether a fitted figure is a share of the bandwidth on which the
// time of a step depends much.
func readsMemory(figure string) bool { return figure == "e_w" || figure == "e_k" || figure == "e_d" }

// write prints the fitted profile and its errors, and writes the files given by flags.
func (c *calibrateCmd) write(samples []sim.Sample, p *sim.Profile, r *sim.FitReport) error {
	if c.CSV != "" {
		var text bytes.Buffer
		if err := bench.WriteStepsCSV(&text, samples, p); err != nil {
			return err
		}
		if err := os.WriteFile(c.CSV, text.Bytes(), 0o644); err != nil {
			return fmt.Errorf("--csv: %w", err)
		}
	}
	if c.Out != "" {
		if err := writeJSON(c.Out, p); err != nil {
			return fmt.Errorf("--out: %w", err)
		}
	}
	if c.JSON {
		return printJSON(map[string]any{"profile": p, "fit": r})
	}
	e := &p.Eff
	out := terminal.Out()
	fmt.Fprintf(out, "%s: %.1f GB/s, %.1f GFLOP/s\n", p.Device.Name, p.Device.BW/1e9, p.Device.Flops/1e9)
	fmt.Fprintf(out, "weights %.3g and decode KV %.3g of the bandwidth, products %.3g (half of it at %.3g tokens) and attention %.3g of the arithmetic,\n",
		e.Weights, e.KVRow, e.Flops, e.NHalf, e.Attend)
	fmt.Fprintf(out, "KV of prompts %.3g and logits %.3g of the bandwidth, %.3g µs a row, %.3g µs a step\n",
		e.KVTile, e.Sample, 1e6*e.Row, 1e6*e.Step)
	fmt.Fprintf(out, "mean error: %.1f %% of the %d steps fitted to, %.1f %% of the %d held out\n",
		100*r.TrainMAPE, r.Train, 100*r.HeldOutMAPE, r.HeldOut)
	fmt.Fprintf(out, "worst: %.0f %%, %.3g ms measured, %.3g ms predicted:",
		100*r.WorstError, float64(r.Worst.Nanos)/1e6, float64(r.WorstNanos)/1e6)
	for _, s := range r.Worst.Shapes {
		fmt.Fprintf(out, " %d rows of %d tokens after %d", s.Rows, s.New, s.Cached)
	}
	fmt.Fprintln(out)
	if len(r.AtBound) > 0 {
		fmt.Fprintf(out, "at the limit of what a profile can express: %s\n", strings.Join(r.AtBound, ", "))
	}
	if len(r.Undetermined) > 0 {
		fmt.Fprintf(out, "not determined by any step: %s\n", strings.Join(r.Undetermined, ", "))
	}
	return nil
}
