package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/alecthomas/kong"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/backends"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/local"
	"github.com/coppice-llm/coppice/scheduler"
)

// nodeFlags are the flags common to all commands that run a model.
type nodeFlags struct {
	Model      modelPath        `placeholder:"PATH" help:"GGUF file or Hugging Face model directory (Llama, Mistral, Qwen2, Qwen3), or hf:owner/name[:file] for one of the hub, pulled if need be. Default: a generated one, whose text means nothing; serve and chat look for one in the cache first."`
	KVTokens   int              `name:"kv-tokens" default:"65536" min:"1" help:"Size of the KV pool, in tokens. Where not given, sim and cuda take what fits their memory."`
	KVType     kvType           `name:"kv-type" default:"f32" help:"What keys and values are stored as, on cpu: f32, f16, bf16 or q8_0 (half, half and 27 % of the memory of f32; answers may differ from those of f32, but are the same in every run)."`
	PageTokens int              `name:"page-tokens" default:"16" help:"Tokens per page: a power of two, 1 to 256."`
	StepTokens int              `name:"step-tokens" default:"128" min:"1" help:"Token budget of a step; smaller means steadier output beside long prompts. Where not given, serve takes 640 (128 without --itl-target) or twice --max-running if that is more, and 2048 on cuda and sim."`
	Inflight   int              `default:"1" help:"Steps out at a time: 2 plans the next one while one runs; a stop is then seen a step late."`
	Policy     scheduler.Policy `default:"fcfs" help:"Order of waiting requests: fcfs, lpm (longest cached prefix), dfs-weight (depth first, fullest subtree), lof (longest output limit), hrrn (longest wait for its length), random, priority or dlpm (lpm with fair shares of tenants; serve takes it by default where --api-key-file names tenants)."`
	Threads    int              `default:"0" help:"Threads that compute. Default: all processors."`
	gpuFlags

	sized bool // --kv-tokens was given
}

// AfterApply is called by kong after it has set the flags.
func (f *nodeFlags) AfterApply(ctx *kong.Context) error {
	for _, p := range ctx.Path {
		f.sized = f.sized || p.Flag != nil && p.Flag.Name == "kv-tokens"
	}
	return nil
}

// modelDir returns the path of the given model, or of a generated one in a temporary
// directory. remove deletes the latter.
func (f *nodeFlags) modelDir(ctx context.Context) (dir string, remove func(), err error) {
	return f.Model.or(ctx, model.Demo)
}

// generated makes a model in a temporary directory. remove deletes the directory.
func generated(preset model.Preset, name string) (dir string, remove func(), err error) {
	tmp, err := os.MkdirTemp("", "coppice-")
	if err != nil {
		return "", nil, fmt.Errorf("a place for the generated model: %w", err)
	}
	dir, remove = filepath.Join(tmp, name), func() { os.RemoveAll(tmp) }
	if err := model.Generate(dir, model.Spec{Preset: preset, Seed: 1}); err != nil {
		remove()
		return "", nil, err
	}
	return dir, remove, nil
}

// or returns the path of the model, or of a generated one if none is given.
func (p modelPath) or(ctx context.Context, preset model.Preset) (dir string, remove func(), err error) {
	if p == "" {
		return generated(preset, preset.String())
	}
	dir, err = p.find(ctx)
	return dir, func() {}, err
}

// backendFlags choose the backend.
type backendFlags struct {
	Backend backendName `default:"cpu" help:"What computes: cpu, cuda (an NVIDIA GPU), ptxvm (the CUDA kernels, executed by an interpreter that checks every access: far too slow for anything but seeing that they compute the same with and without a cache), or sim (a simulated device, whose text means nothing)."`
}

// open opens the model at dir.
func (f *nodeFlags) open(dir string, b *backendFlags, disableCache bool) (*local.Model, error) {
	return local.Open(dir, local.Options{
		Node: coppice.Config{Scheduler: scheduler.Config{Policy: f.Policy, StepTokens: f.StepTokens, MaxInflight: f.Inflight, DisableCache: disableCache}},
		Backend: func(m *model.Model, _ *coppice.Config) (engine.Backend, error) {
			o := backends.Options{Model: m, PageTokens: f.PageTokens, KVTokens: f.KVTokens, KVType: kv.DType(f.KVType), Threads: f.Threads,
				MaxSlots: 64, MaxRows: 64, MaxTokens: max(512, f.StepTokens), GPU: f.options()}
			if b.Backend == "cuda" && !f.sized {
				o.KVTokens = 0 // as many as fit into the free memory
			}
			return openBackend(b.Backend, o)
		},
	})
}
