// Package backends opens a backend by its name: it owns the list of those that there are,
// and what they have in common to be asked for. It never runs one. Open may be called
// from any goroutine.
//
//	backend, err := backends.Open("cpu", backends.Options{Model: m, KVTokens: 1 << 16})
//
// A backend comes in by a line of the list, see CONTRIBUTING.md.
package backends

import (
	"errors"
	"fmt"
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

// Options say what a backend is to be like; 0 is its own default. What a backend has no
// use for, it ignores.
type Options struct {
	// Model has the weights, and may be closed after Open. sim takes its vocabulary,
	// and does without.
	Model *model.Model

	PageTokens int   // slots per page
	KVTokens   int   // the pool holds at least so many tokens; sim's and cuda's default is what fits the device
	KVBytes    int64 // or so many bytes, in whole pages; goes before KVTokens

	// KVType is what keys and values are stored as; of cpu. Default: kv.F32.
	KVType kv.DType

	MaxSlots    int // sequences with sampling state
	MaxRows     int // per batch
	MaxTokens   int // per batch
	MaxInflight int // batches that may be pending
	Threads     int // that compute; of cpu

	Sim Simulation // of sim
	GPU GPU        // of cuda
}

// GPU is what only a GPU has.
type GPU struct {
	Driver   cudrv.Driver // nil: this machine's, see cudrv/system
	Device   int          // of those that the driver counts
	Memory   float64      // fraction of the device's that may be used; 0.9
	Progress func(done, total int)
}

// Simulation is what only a simulated device has, see sim.Config.
type Simulation struct {
	Profile  sim.Profile
	Sanitize sim.Mode
	Logits   bool
	Faults   sim.Faults
}

// backend is one of the list.
type backend struct {
	name  string
	about string
	// kvBytes is the memory of one token's keys and values over all layers.
	kvBytes func(*Options) int
	open    func(*Options) (engine.Backend, error)
}

var list = []backend{
	{"cpu", "this machine's processors", cpuKV, openCPU},
	{"cuda", "an NVIDIA GPU; without KVTokens and KVBytes its pool is what memory is left for", cudaKV, openCUDA},
	{"ptxvm", "the CUDA kernels in an interpreter that checks every access, far too slow for anything but that", cudaKV, openInterpreter},
	{"sim", "a simulated device in real time, whose text means nothing, to test load", simKV, openSim},
}

// Names are the backends that there are, ascending.
func Names() []string {
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].name
	}
	slices.Sort(names)
	return names
}

// About says in a few words what a backend computes on; "" for a name that is none.
func About(name string) string {
	if b := find(name); b != nil {
		return b.about
	}
	return ""
}

// ErrUnknown is wrapped by the error of Open for a name that is none.
var ErrUnknown = errors.New("backends: no such backend")

// ErrMemory is wrapped by the error of Open where KVBytes are less than a page.
var ErrMemory = errors.New("backends: KVBytes are less than a page takes")

// Open opens the backend of that name. What else fails is the backend's to say.
func Open(name string, o Options) (engine.Backend, error) {
	b := find(name)
	if b == nil {
		return nil, fmt.Errorf("%w: %q, want one of %s", ErrUnknown, name, strings.Join(Names(), ", "))
	}
	if o.Model == nil && name != "sim" {
		return nil, fmt.Errorf("backends: %s has no Model", name)
	}
	if o.KVBytes > 0 {
		page, pageTokens := int64(0), max(o.PageTokens, 1)
		if o.PageTokens == 0 {
			pageTokens = 16
		}
		page = int64(b.kvBytes(&o)) * int64(pageTokens)
		o.KVTokens = int(o.KVBytes/max(page, 1)) * pageTokens
		if o.KVTokens == 0 {
			return nil, fmt.Errorf("%w: a page of %d tokens takes %d bytes", ErrMemory, pageTokens, page)
		}
	}
	return b.open(&o)
}

func find(name string) *backend {
	for i := range list {
		if list[i].name == name {
			return &list[i]
		}
	}
	return nil
}

func cpuKV(o *Options) int { return modelKV(o.Model, o.KVType) }

func cudaKV(o *Options) int { return modelKV(o.Model, kv.BF16) }

func modelKV(m *model.Model, d kv.DType) int {
	c := m.Config()
	return 2 * c.Layers * c.KVHeads * d.Size(c.HeadDim)
}

func openCPU(o *Options) (engine.Backend, error) {
	return backendOf(cpu.Open(o.Model, cpu.Config{
		PageTokens: o.PageTokens, KVTokens: o.KVTokens, MaxSlots: o.MaxSlots, MaxRows: o.MaxRows,
		MaxTokens: o.MaxTokens, MaxInflight: o.MaxInflight, Threads: o.Threads, KVType: o.KVType,
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
		Driver: driver, Device: o.GPU.Device, MemoryFraction: o.GPU.Memory, Progress: o.GPU.Progress,
		PageTokens: o.PageTokens, KVTokens: o.KVTokens, MaxSlots: o.MaxSlots, MaxRows: o.MaxRows, MaxTokens: o.MaxTokens, MaxInflight: o.MaxInflight,
	}))
}

func openInterpreter(o *Options) (engine.Backend, error) {
	return backendOf(cuda.Open(o.Model, cuda.Config{
		Driver: vm.New(ptxvm.Config{}), PageTokens: o.PageTokens, KVTokens: o.KVTokens, MaxSlots: o.MaxSlots, MaxRows: o.MaxRows,
		MaxTokens: o.MaxTokens, MaxInflight: o.MaxInflight,
	}))
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

func simKV(o *Options) int { return o.Sim.Profile.KVTokenBytes() }

// backendOf keeps a nil pointer from becoming an interface that is not nil.
func backendOf[B engine.Backend](b B, err error) (engine.Backend, error) {
	if err != nil {
		return nil, err
	}
	return b, nil
}
