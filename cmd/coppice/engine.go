package main

import (
	"cmp"
	"context"
	"runtime"

	"github.com/coppice-llm/coppice/bench"
	"github.com/coppice-llm/coppice/engine/backends"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/kv"
)

// engineFlags choose the model and the threads of commands that use an engine alone.
type engineFlags struct {
	Model   modelPath    `placeholder:"PATH" help:"GGUF file, Hugging Face model directory, or hf:owner/name[:file]. Default: a generated model of --preset."`
	Preset  model.Preset `default:"tiny" help:"Generated model: nano, demo, tiny (13M parameters), small (100M) or half (450M)."`
	Threads int          `default:"0" min:"0" help:"Compute threads. Default: one per processor."`
}

// openModel returns the model, generated if none is given, and a function that closes it.
func (f *engineFlags) openModel(ctx context.Context) (*model.Model, func(), error) {
	dir, remove, err := f.Model.or(ctx, f.Preset)
	if err != nil {
		return nil, nil, err
	}
	m, err := model.Open(dir)
	if err != nil {
		remove()
		return nil, nil, err
	}
	return m, func() { m.Close(); remove() }, nil
}

// threads returns the number of compute threads.
func (f *engineFlags) threads() int { return cmp.Or(f.Threads, runtime.GOMAXPROCS(0)) }

// engineCmd is coppice bench engine; see bench.PlayEngine.
type engineCmd struct {
	engineFlags
	PromptTokens int      `name:"prompt-tokens" default:"512" min:"1" help:"Tokens of the prompt."`
	OutputTokens int      `name:"output-tokens" default:"64" min:"1" help:"Tokens that each sequence decodes."`
	KVType       kv.DType `name:"kv-type" default:"f32" help:"Data type of keys and values: f32, f16, bf16 or q8_0."`
	JSON         bool     `name:"json" help:"Print one JSON object instead of the table."`
}

// Run is called by kong.
func (c *engineCmd) Run(ctx context.Context) error {
	m, done, err := c.openModel(ctx)
	if err != nil {
		return err
	}
	defer done()
	threads := c.threads()
	backend, err := openCPU(m, backends.Options{
		KVTokens: max(c.PromptTokens, 16*(64+c.OutputTokens)), MaxTokens: max(c.PromptTokens, 512), MaxRows: 16, MaxSlots: 16, Threads: threads, KVType: c.KVType,
	})
	if err != nil {
		return err
	}
	defer backend.Close()
	ceilings := cpu.MeasureCeilings(threads)
	work := backend.Work()
	cfg := bench.EngineConfig{
		PromptTokens: c.PromptTokens, OutputTokens: c.OutputTokens,
		LinearParams: work.LayerParams, HeadParams: work.HeadParams, WeightBytes: work.WeightBytes,
		CeilingGFlops: ceilings.GFlops, CeilingGBs: ceilings.GBs, ISA: ceilings.ISA, Threads: threads,
	}
	return report(cfg.Steps(), "runs", "", c.JSON, false, func(progress func()) (*bench.EngineSummary, error) {
		return bench.PlayEngine(ctx, backend, cfg, progress)
	})
}
