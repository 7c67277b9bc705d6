package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/alecthomas/kong"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/cmd/internal/speak"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/backends"
	"github.com/coppice-llm/coppice/engine/cuda"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/random"
	"github.com/coppice-llm/coppice/internal/terminal"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/local"
	"github.com/coppice-llm/coppice/scheduler"
)

// nodeFlags are the flags common to all commands that run a model.
type nodeFlags struct {
	Model       modelPath           `placeholder:"PATH" help:"GGUF file, Hugging Face model directory (Llama, Mistral, Qwen2, Qwen3), or hf:owner/name[:file] for a model of the hub, downloaded if missing. Default: a small model of this program that speaks like Newton's Opticks and knows nothing; serve and chat first look for a model in the Hugging Face cache. On sim and ptxvm: one with random weights."`
	KVTokens    int                 `name:"kv-tokens" default:"65536" min:"1" help:"Size of the KV pool in tokens. On sim and cuda the default is as many as fit into the device's memory."`
	KVType      kv.DType            `name:"kv-type" backend:"cpu" default:"f32" help:"Data type of keys and values, on cpu: f32, f16, bf16 or q8_0 (100, 50, 50 and 27 % of the memory). Answers may differ between types, but each type gives the same answers in every run."`
	PageTokens  int                 `name:"page-tokens" default:"16" help:"Tokens per page: a power of two, 1 to 256."`
	StepTokens  int                 `name:"step-tokens" default:"128" min:"1" help:"Token budget of a step. Smaller steps make output steadier beside long prompts. The default of serve is 640 (128 without --itl-target, 2048 on cuda and sim), or twice --max-running if that is more."`
	Inflight    int                 `default:"1" help:"Steps in flight: 2 plans a step while the previous one runs; a stop then takes effect one step later."`
	Policy      scheduler.Policy    `default:"fcfs" help:"Order of waiting requests: ${policies}. The default of serve with --api-key-file is dlpm."`
	Speculate   scheduler.Speculate `default:"auto" help:"Guesses at its next tokens that an output verifies in a step: off, auto (as many as give more tokens a second) or a number. The tokens are the same with all values, see docs/speculation.md."`
	Threads     int                 `default:"0" help:"Compute threads. Default: one per processor."`
	BF16Weights bool                `name:"gpu-bf16-weights" backend:"cuda,ptxvm" help:"With --backend cuda or ptxvm: round all weight matrices to bf16. Otherwise those of type Q8_0, Q4_K and Q6_K stay quantised on the device, where they take less memory. Answers are the same."`
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

// modelDir returns the path of the given model, or of one in a temporary directory: the speaking
// model, or for a backend that computes no real text or is slow a generated one. remove deletes
// the directory.
func (f *nodeFlags) modelDir(ctx context.Context, backend string) (dir string, remove func(), err error) {
	if f.speaks(backend) {
		return speak.Write()
	}
	return f.Model.or(ctx, random.Demo)
}

// speaks reports whether the speaking model is used: no other is given, and the backend computes.
func (f *nodeFlags) speaks(backend string) bool {
	return f.Model == "" && (backend == "cpu" || backend == "cuda")
}

// generated makes the model of spec in a directory with this name, in a temporary directory.
// remove deletes the temporary directory.
func generated(spec random.Spec, name string) (dir string, remove func(), err error) {
	tmp, err := os.MkdirTemp("", "coppice-")
	if err != nil {
		return "", nil, fmt.Errorf("a directory for the generated model: %w", err)
	}
	dir, remove = filepath.Join(tmp, name), func() { os.RemoveAll(tmp) }
	if err := random.Generate(dir, spec); err != nil {
		remove()
		return "", nil, err
	}
	return dir, remove, nil
}

// or returns the path of the model, or if p is empty, of a generated model of the preset. remove
// deletes the generated model.
func (p modelPath) or(ctx context.Context, preset random.Preset) (dir string, remove func(), err error) {
	if p == "" {
		return generated(random.Spec{Preset: preset, Seed: 1}, preset.String())
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
	cfg := f.scheduler()
	cfg.DisableCache = disableCache
	return local.Open(dir, local.Options{
		Node:    coppice.Config{Scheduler: cfg},
		Backend: func(m *model.Model, _ *coppice.Config) (engine.Backend, error) { return f.backend(m, b) },
	})
}

// scheduler returns the scheduler's configuration.
func (f *nodeFlags) scheduler() scheduler.Config {
	return scheduler.Config{Policy: f.Policy, StepTokens: f.StepTokens, MaxInflight: f.Inflight, Speculate: f.Speculate}
}

// backend opens the backend that b selects.
func (f *nodeFlags) backend(m *model.Model, b *backendFlags) (engine.Backend, error) {
	o := backends.Options{Model: m, PageTokens: f.PageTokens, KVTokens: f.KVTokens, KVType: f.KVType, Threads: f.Threads,
		MaxSlots: 64, MaxRows: 64, MaxTokens: max(512, f.StepTokens), GPU: f.gpu()}
	if b.Backend == "cuda" && !f.sized {
		o.KVTokens = 0 // as many as fit into the free memory
	}
	return openBackend(b.Backend, o)
}

// openBackend opens a backend; all commands use it. It shows the progress of loading
// weights onto a GPU. If a GPU cannot be used, the error recommends a remedy. Warnings go to o.Log,
// by default to standard error.
func openBackend(name string, o backends.Options) (engine.Backend, error) {
	if o.Log == nil {
		out := zapcore.Lock(zapcore.AddSync(terminal.Err()))
		o.Log = nodeLog(zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(zap.NewDevelopmentEncoderConfig()), out, zapcore.WarnLevel)))
	}
	finish := func() {}
	if name == "cuda" {
		o.GPU.Progress, finish = bytesBar("weights")
	}
	b, err := backends.Open(name, o)
	finish()
	return b, withRemedy(err, "cpu")
}

// withRemedy adds the remedy, if one is known, to an error. without is the command's backend that
// needs no GPU.
func withRemedy(err error, without string) error {
	if remedy := remedy(err, without); remedy != "" {
		return fmt.Errorf("%w\n%s", err, remedy)
	}
	return err
}

// remedy returns advice for an error of the GPU; "" if there is none.
func remedy(err error, without string) string {
	switch {
	case errors.Is(err, cudrv.ErrUnavailable):
		return "Install NVIDIA's driver, 580 or later, or compute with --backend " + without + "."
	case errors.Is(err, cudrv.ErrNoDevice):
		return "nvidia-smi lists the GPUs that the driver has; --gpu takes their number, and CUDA_VISIBLE_DEVICES may hide some. --backend " + without + " needs none."
	case errors.Is(err, cuda.ErrOld):
		return "Update NVIDIA's driver to 580 or later, take another GPU by --gpu, or compute with --backend " + without + "."
	case !errors.Is(err, cuda.ErrMemory) && !errors.Is(err, cudrv.ErrMemory):
	case without == "ptxvm": // gpucheck, which sets all sizes itself
		return "End what else uses the GPU (nvidia-smi lists it), or raise --gpu-memory."
	default:
		return "End what else uses the GPU (nvidia-smi lists it), raise --gpu-memory, lower --kv-tokens, --step-tokens or the --max-running of serve, or take a smaller model."
	}
	return ""
}

// gpuFlags select the GPU and its memory, for --backend cuda.
type gpuFlags struct {
	GPU       int     `name:"gpu" backend:"cuda" default:"0" help:"With --backend cuda: number of the GPU, in the driver's order."`
	GPUMemory float64 `name:"gpu-memory" backend:"cuda" default:"0.9" above:"0" max:"1" help:"With --backend cuda: share of the GPU's memory that may be in use. The KV pool takes the rest after weights and buffers, unless --kv-tokens sets its size."`
}

// options returns the flags as options of the backend.
func (f *gpuFlags) options() backends.GPU {
	return backends.GPU{Device: f.GPU, Memory: f.GPUMemory}
}

// gpu returns all options of a GPU.
func (f *nodeFlags) gpu() backends.GPU {
	g := f.options()
	g.BF16Weights = f.BF16Weights
	return g
}
