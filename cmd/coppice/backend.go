package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/backends"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/engine/cuda"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/kv"
)

// openBackend opens a backend; all commands use it. It shows the progress of loading
// weights onto a GPU. If a GPU cannot be used, the error recommends a remedy.
func openBackend(name backendName, o backends.Options) (engine.Backend, error) {
	finish := func() {}
	if name == "cuda" {
		o.GPU.Progress, finish = bytesBar("weights")
	}
	b, err := backends.Open(string(name), o)
	finish()
	return b, withRemedy(err)
}

// withRemedy adds the remedy, if one is known, to an error.
func withRemedy(err error) error {
	if remedy := remedy(err); remedy != "" {
		return fmt.Errorf("%w\n%s", err, remedy)
	}
	return err
}

// remedy returns advice for an error of the GPU; "" if there is none.
func remedy(err error) string {
	switch {
	case errors.Is(err, cudrv.ErrUnavailable):
		return "Install NVIDIA's driver, 580 or later, or compute with --backend cpu."
	case errors.Is(err, cudrv.ErrNoDevice):
		return "nvidia-smi lists the GPUs that the driver has; --gpu takes their number, and CUDA_VISIBLE_DEVICES may hide some. --backend cpu needs none."
	case errors.Is(err, cuda.ErrOld):
		return "Update NVIDIA's driver to 580 or later, take another GPU by --gpu, or compute with --backend cpu."
	case errors.Is(err, cuda.ErrMemory), errors.Is(err, cudrv.ErrMemory):
		return "End what else uses the GPU (nvidia-smi lists it), raise --gpu-memory, lower --kv-tokens, --max-running or --step-tokens, or take a smaller model."
	}
	return ""
}

// gpuFlags select the GPU and its memory, for --backend cuda.
type gpuFlags struct {
	GPU       int     `name:"gpu" default:"0" help:"With --backend cuda: number of the GPU, in the driver's order."`
	GPUMemory float64 `name:"gpu-memory" default:"0.9" help:"With --backend cuda: share of the GPU's memory that may be in use. The KV pool takes the rest after weights and buffers, unless --kv-tokens sets its size."`
}

// options returns the flags as options of the backend.
func (f *gpuFlags) options() backends.GPU {
	return backends.GPU{Device: f.GPU, Memory: f.GPUMemory}
}

// openCPU opens the cpu backend for commands that measure it.
func openCPU(m *model.Model, o backends.Options) (*cpu.Backend, error) {
	o.Model = m
	b, err := openBackend("cpu", o)
	if err != nil {
		return nil, err
	}
	return b.(*cpu.Backend), nil
}

// backendName is one of backends.Names.
type backendName string

// UnmarshalText accepts the names of backends; the error lists them.
func (b *backendName) UnmarshalText(text []byte) error {
	if !slices.Contains(backends.Names(), string(text)) {
		return fmt.Errorf("%q is not a backend; want one of %s", text, strings.Join(backends.Names(), ", "))
	}
	*b = backendName(text)
	return nil
}

// kvType is the data type in which the cpu backend stores keys and values.
type kvType kv.DType

func (k kvType) String() string { return kv.DType(k).String() }

// UnmarshalText accepts the names of types; the error lists them.
func (k *kvType) UnmarshalText(text []byte) error {
	var d kv.DType
	if err := d.UnmarshalText(text); err != nil || !slices.Contains(cpu.KVTypes(), d) {
		return fmt.Errorf("%q is not a data type of keys and values; want one of %v", text, cpu.KVTypes())
	}
	*k = kvType(d)
	return nil
}
