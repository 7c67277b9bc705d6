// Package backends opens a backend by its name: it owns the list of backends and their
// common options. It never runs one. Open may be called
// from any goroutine.
//
//	backend, err := backends.Open("cpu", backends.Options{Model: m, KVTokens: 1 << 16})
//
// A new backend needs one entry in the list, see CONTRIBUTING.md.
package backends

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/engine/cuda"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv/system"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv/vm"
	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/kv"
)

// Options configures a backend; 0 selects the backend's default. A backend ignores the options
// that it does not use.
type Options struct {
	// Model has the weights, and may be closed after Open. Only sim works without one; it takes
	// just the vocabulary.
	Model *model.Model

	PageTokens int   // tokens per page
	KVTokens   int   // minimum size of the pool in tokens; default of sim and cuda: what fits the device
	KVBytes    int64 // size of the pool in bytes, rounded down to whole pages; has precedence over KVTokens

	// KVType is the type of stored keys and values; cpu only. Default: kv.F32.
	KVType kv.DType

	MaxSlots    int // slots are in [0, MaxSlots)
	MaxRows     int // rows per batch
	MaxTokens   int // tokens per batch
	MaxInflight int // batches in flight
	Threads     int // compute threads; cpu only
	// Log receives warnings: of Open on cpu, of graphs and of memory on cuda. Default: nothing is logged.
	Log *slog.Logger

	Sim Simulation // sim only
	GPU GPU        // cuda, and BF16Weights also on ptxvm
}

// GPU has the options of a GPU.
type GPU struct {
	Driver   cudrv.Driver // nil: this machine's driver, see cudrv/system
	Device   int          // index in the driver's numbering
	Memory   float64      // fraction of the device's memory that may be used; default 0.9
	Progress func(done, total int)

	BF16Weights bool // round all weights to bf16, see cuda.Config
}

// Simulation has the options of a simulated device, see sim.Config.
type Simulation struct {
	Profile  sim.Profile
	Sanitize sim.Mode
	Logits   bool
	Faults   sim.Faults
}

// backend is an entry of the list.
type backend struct {
	name string
	// kvBytes returns the bytes of one token's keys and values over all layers.
	kvBytes func(*Options) int
	open    func(*Options) (engine.Backend, error)
}

// list has the backends by ascending names.
var list = []backend{
	{"cpu", func(o *Options) int { return modelKV(o.Model, o.KVType) }, openCPU},
	{"cuda", cudaKV, openCUDA},
	{"ptxvm", cudaKV, openInterpreter},
	{"sim", func(o *Options) int { return o.Sim.Profile.KVTokenBytes() }, openSim},
}

// Names returns the names of all backends, ascending: cpu (this machine's processors), cuda (an
// NVIDIA GPU, whose pool without KVTokens and KVBytes fills the memory that is left), ptxvm (the
// CUDA kernels in an interpreter that checks every memory access, far too slow to serve) and sim (a
// simulated device in real time, for load tests, whose text is meaningless).
func Names() []string {
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].name
	}
	return names
}

// ErrUnknown is wrapped by the error of Open for an unknown name.
var ErrUnknown = errors.New("backends: no such backend")

// ErrMemory is wrapped by the error of Open if KVBytes is less than a page.
var ErrMemory = errors.New("backends: KVBytes are less than a page takes")

// Open opens the named backend. It returns ErrUnknown for an unknown name, an error if the backend
// needs a Model and o has none, ErrMemory if o.KVBytes is less than a page, or the backend's own
// error.
func Open(name string, o Options) (engine.Backend, error) {
	at := slices.IndexFunc(list, func(b backend) bool { return b.name == name })
	if at < 0 {
		return nil, fmt.Errorf("%w: %q, want one of %s", ErrUnknown, name, strings.Join(Names(), ", "))
	}
	if o.Model == nil && name != "sim" {
		return nil, fmt.Errorf("backends: %s has no Model", name)
	}
	if o.KVBytes > 0 {
		pageTokens := cmp.Or(max(o.PageTokens, 0), 16)
		page := list[at].kvBytes(&o) * pageTokens
		o.KVTokens = int(o.KVBytes/int64(max(page, 1))) * pageTokens
		if o.KVTokens == 0 {
			return nil, fmt.Errorf("%w: a page of %d tokens takes %d bytes", ErrMemory, pageTokens, page)
		}
	}
	return list[at].open(&o)
}

func cudaKV(o *Options) int { return modelKV(o.Model, kv.BF16) }

func modelKV(m *model.Model, d kv.DType) int {
	c := m.Config()
	return 2 * c.Layers * c.KVHeads * d.Size(c.HeadDim)
}

func openCPU(o *Options) (engine.Backend, error) {
	return backendOf(cpu.Open(o.Model, cpu.Config{
		PageTokens: o.PageTokens, KVTokens: o.KVTokens, MaxSlots: o.MaxSlots, MaxRows: o.MaxRows,
		MaxTokens: o.MaxTokens, MaxInflight: o.MaxInflight, Threads: o.Threads, KVType: o.KVType, Log: o.Log,
	}))
}

func openCUDA(o *Options) (engine.Backend, error) {
	driver := o.GPU.Driver
	if driver == nil {
		var err error
		if driver, err = system.Open(); err != nil {
			return nil, err
		}
	}
	return backendOf(cuda.Open(o.Model, cuda.Config{
		Driver: driver, Device: o.GPU.Device, MemoryFraction: o.GPU.Memory, Progress: o.GPU.Progress, Log: o.Log, BF16Weights: o.GPU.BF16Weights,
		PageTokens: o.PageTokens, KVTokens: o.KVTokens, MaxSlots: o.MaxSlots, MaxRows: o.MaxRows, MaxTokens: o.MaxTokens, MaxInflight: o.MaxInflight,
	}))
}

func openInterpreter(o *Options) (engine.Backend, error) {
	o.GPU = GPU{Driver: vm.New(ptxvm.Config{}), BF16Weights: o.GPU.BF16Weights}
	return openCUDA(o)
}

func openSim(o *Options) (engine.Backend, error) {
	cfg := sim.Config{
		Profile: o.Sim.Profile, PageTokens: o.PageTokens, MaxSlots: o.MaxSlots, MaxRows: o.MaxRows,
		MaxTokens: o.MaxTokens, MaxInflight: o.MaxInflight, Sanitize: o.Sim.Sanitize, Logits: o.Sim.Logits, Faults: o.Sim.Faults,
	}
	if o.KVTokens > 0 {
		cfg.Pages = kv.CeilPages(o.KVTokens, max(cfg.WithDefaults().PageTokens, 1))
	}
	if o.Model != nil {
		cfg.Vocab = o.Model.Config().Vocab
	}
	return backendOf(sim.Open(cfg))
}

// backendOf keeps a nil pointer from becoming an interface that is not nil.
func backendOf[B engine.Backend](b B, err error) (engine.Backend, error) {
	if err != nil {
		return nil, err
	}
	return b, nil
}
