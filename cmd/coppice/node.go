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
	Model      modelPath        `placeholder:"PATH" help:"GGUF file, Hugging Face model directory (Llama, Mistral, Qwen2, Qwen3), or hf:owner/name[:file] for a model of the hub, downloaded if missing. Default: a generated model, whose text means nothing; serve and chat first look for a model in the Hugging Face cache."`
	KVTokens   int              `name:"kv-tokens" default:"65536" min:"1" help:"Size of the KV pool in tokens. On sim and cuda the default is as many as fit into the device's memory."`
	KVType     kv.DType         `name:"kv-type" backend:"cpu" default:"f32" help:"Data type of keys and values, on cpu: f32, f16, bf16 or q8_0 (100, 50, 50 and 27 % of the memory). Answers may differ between types, but each type gives the same answers in every run."`
	PageTokens int              `name:"page-tokens" default:"16" help:"Tokens per page: a power of two, 1 to 256."`
	StepTokens int              `name:"step-tokens" default:"128" min:"1" help:"Token budget of a step. Smaller steps make output steadier beside long prompts. The default of serve is 640 (128 without --itl-target, 2048 on cuda and sim), or twice --max-running if that is more."`
	Inflight   int              `default:"1" help:"Steps in flight: 2 plans a step while the previous one runs; a stop then takes effect one step later."`
	Policy     scheduler.Policy `default:"fcfs" help:"Order of waiting requests: ${policies}. The default of serve with --api-key-file is dlpm."`
	Threads    int              `default:"0" help:"Compute threads. Default: one per processor."`
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

// generated makes the model of spec in a directory with this name, in a temporary directory.
// remove deletes the temporary directory.
func generated(spec model.Spec, name string) (dir string, remove func(), err error) {
	tmp, err := os.MkdirTemp("", "coppice-")
	if err != nil {
		return "", nil, fmt.Errorf("a directory for the generated model: %w", err)
	}
	dir, remove = filepath.Join(tmp, name), func() { os.RemoveAll(tmp) }
	if err := model.Generate(dir, spec); err != nil {
		remove()
		return "", nil, err
	}
	return dir, remove, nil
}

// or returns the path of the model, or if p is empty, of a generated model of the preset. remove
// deletes the generated model.
func (p modelPath) or(ctx context.Context, preset model.Preset) (dir string, remove func(), err error) {
	if p == "" {
		return generated(model.Spec{Preset: preset, Seed: 1}, preset.String())
	}
	dir, err = p.find(ctx)
	return dir, func() {}, err
}

// backendFlags choose the backend.
type backendFlags struct {
	Backend string `default:"cpu" enum:"${backends}" help:"Device that computes: cpu, cuda (an NVIDIA GPU), ptxvm (the CUDA kernels in an interpreter that checks every access; very slow), or sim (a simulated device, whose text means nothing)."`
}

// open opens the model at dir on the backend that b selects, and starts a node. With disableCache
// the node has no prefix cache.
func (f *nodeFlags) open(dir string, b *backendFlags, disableCache bool) (*local.Model, error) {
	return local.Open(dir, local.Options{
		Node: coppice.Config{Scheduler: scheduler.Config{Policy: f.Policy, StepTokens: f.StepTokens, MaxInflight: f.Inflight, DisableCache: disableCache}},
		Backend: func(m *model.Model, _ *coppice.Config) (engine.Backend, error) {
			o := backends.Options{Model: m, PageTokens: f.PageTokens, KVTokens: f.KVTokens, KVType: f.KVType, Threads: f.Threads,
				MaxSlots: 64, MaxRows: 64, MaxTokens: max(512, f.StepTokens), GPU: f.options()}
			if b.Backend == "cuda" && !f.sized {
				o.KVTokens = 0 // as many as fit into the free memory
			}
			return openBackend(b.Backend, o)
		},
	})
}
