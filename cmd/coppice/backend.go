package main

import (
	"errors"
	"fmt"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/backends"
	"github.com/coppice-llm/coppice/engine/cuda"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/internal/terminal"
)

// openBackend opens a backend; all commands use it. It shows the progress of loading
// weights onto a GPU. If a GPU cannot be used, the error recommends a remedy. Warnings go to o.Log,
// by default to standard error.
func openBackend(name string, o backends.Options) (engine.Backend, error) {
	if o.Log == nil {
		out := zapcore.Lock(zapcore.AddSync(terminal.Err()))
		o.Log = zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(zap.NewDevelopmentEncoderConfig()), out, zapcore.WarnLevel))
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
