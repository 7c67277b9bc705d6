package main

import (
	"context"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/cpuid/v2"

	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/engine/cuda"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv/system"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/internal/web"
)

// doctorWait bounds the time that doctor waits for file systems and drivers, of which some never
// answer. sizeWait bounds the time to add up the sizes of files, and is shorter, so that what was
// counted by then is reported.
const (
	doctorWait = 3 * time.Second
	sizeWait   = 2 * time.Second
)

// doctorFacts are what doctor found. They are plain values: judge reads nothing else.
type doctorFacts struct {
	Version, Go, Target string // Target is system/architecture
	System              systemFacts
	CPU                 cpuFacts
	Memory              memory
	Load                loadFacts
	GPU                 gpuFacts
	Dirs                []dirFacts
	Files               filesFacts
	Clock               clockFacts
	Ports               []portFacts
}

// systemFacts describe the operating system; unknown parts are empty.
type systemFacts struct{ Name, Kernel, Container string }

// cpuFacts describe the processor and the paths of kernels that it can run.
type cpuFacts struct {
	Brand    string
	Arch     string   // GOARCH
	Cores    int      // physical; 0 if unknown
	Usable   int      // logical processors on which this process may run
	Threads  int      // compute threads that serve starts: fewer, with a quota of a control group
	Features []string // those that the kernels use or could use

	Forced string    // value of COPPICE_CPU
	ISAs   []cpu.ISA // paths that it can run, slowest first
	Tests  []error   // result of the self-test of each of ISAs
}

// loadFacts describe what serve would load without --model.
type loadFacts struct {
	Silent      bool   // the cache did not answer in time
	Model       string // "" if the cache has no model that serve takes
	WeightBytes int64
	KVBytes     int64 // of the whole pool
	KVTokens    int
}

// gpuFacts describe the NVIDIA driver and its devices.
type gpuFacts struct {
	Silent  bool   // the driver did not answer in time
	Kernel  string // version of the kernel's part of the driver, "" without one
	Err     error  // why there is no usable driver
	CUDA    int    // newest that the driver supports: 13000 for 13.0
	Devices []gpuDevice
}

// gpuDevice is a GPU; Err says why the kernels can't run on it.
type gpuDevice struct {
	Name  string
	Bytes int64
	Err   error
}

// dirFacts describe a directory that the program writes to.
type dirFacts struct {
	Check, Path string
	Use         dirUse
	Want        int64 // bytes that it should be able to hold; 0: no certain number

	Silent  bool  // its file system did not answer in time
	Missing bool  // it does not exist; Write and Free are those of the closest directory above it
	Err     error // it can't be read, or made
	Write   error // it can't be written to
	Bytes   int64 // of its files
	Partial bool  // Bytes are those that could be counted
	Free    int64 // bytes; -1 if unknown
}

// dirUse is the purpose of a directory.
type dirUse int

const (
	forModels dirUse = iota
	forTemp
	forTier
)

// filesFacts describe the limit on open files; zero limits mean unknown.
type filesFacts struct {
	Limit, Hard uint64
	Conns       int // --max-conns
}

// spareFiles are the files that a server has open beside its connections: 10 at the start, and
// those of models, tiers, events, logs and probes.
const spareFiles = 64

// need returns the number of open files that the server needs with all its connections.
func (f filesFacts) need() uint64 { return uint64(f.Conns) + web.SpareConns + spareFiles }

// clockFacts describe the clocks.
type clockFacts struct {
	Now  time.Time
	Step time.Duration // the smallest that the monotonic clock makes; 0 if it stands still
	Sync string        // "yes", "no" or "unknown"
}

// portFacts say whether an address that a command listens on by default is free.
type portFacts struct {
	Command string
	Level   severity // of the finding, if it is not free
	Addr    string
	Err     error  // of listening there
	Holder  string // the process that listens there, as "nginx (process 12)"; "" if unknown
}

// look gathers the facts. It takes at most a little more than doctorWait: what can hang runs in
// goroutines of its own, which are abandoned then.
func (c *doctorCmd) look(ctx context.Context) *doctorFacts {
	ctx, cancel := context.WithTimeout(ctx, doctorWait)
	defer cancel()
	load := begin(ctx, c.lookAtLoad, loadFacts{Silent: true})
	gpu := begin(ctx, lookAtGPU, gpuFacts{Silent: true})
	var dirs []func() dirFacts
	for _, d := range c.dirs() {
		silent := d
		silent.Silent = true
		dirs = append(dirs, begin(ctx, func() dirFacts { return lookAtDir(d) }, silent))
	}
	f := &doctorFacts{
		Version: version(), Go: runtime.Version(), Target: runtime.GOOS + "/" + runtime.GOARCH,
		System: lookAtSystem(os.DirFS("/")), CPU: lookAtCPU(), Memory: readMemory(),
		Files: lookAtFiles(c.MaxConns), Clock: lookAtClock(),
		Ports: []portFacts{lookAtPort(ctx, "serve", c.Addr, fails), lookAtPort(ctx, "route", routeAddr, warns)},
	}
	for _, d := range dirs {
		f.Dirs = append(f.Dirs, d())
	}
	f.Load, f.GPU = load(), gpu()
	return f
}

// routeAddr is the default of route's --addr.
const routeAddr = "127.0.0.1:8000"

// begin calls f in a goroutine. The function that it returns waits for f's result, and returns late
// in its place once ctx has ended.
func begin[T any](ctx context.Context, f func() T, late T) func() T {
	done := make(chan T, 1)
	go func() { done <- f() }()
	return func() T {
		select {
		case v := <-done:
			return v
		case <-ctx.Done():
		}
		select {
		case v := <-done: // both were ready
			return v
		default:
			return late
		}
	}
}

// dirs lists the directories to look at.
func (c *doctorCmd) dirs() []dirFacts {
	hub := dirFacts{Check: "models", Use: forModels}
	_, hub.Path, hub.Err = hubDirs()
	dirs := []dirFacts{hub, {Check: "temp", Use: forTemp, Path: os.TempDir(), Want: tempBytes}}
	for _, tier := range []struct {
		check string
		sizedDir
	}{{"kv-disk", c.KVDisk}, {"kv-share", c.KVShare}} {
		if tier.dir != "" {
			dirs = append(dirs, dirFacts{Check: tier.check, Use: forTier, Path: tier.dir, Want: int64(tier.size)})
		}
	}
	return dirs
}

// tempBytes is the room that commands need for temporary files: the largest generated model takes
// 1 MB by default, and tokenizers that routers get from workers some more.
const tempBytes = 64 << 20

// lookAtLoad finds the model that serve would take, and its KV pool.
func (c *doctorCmd) lookAtLoad() loadFacts {
	f := loadFacts{KVTokens: c.KVTokens}
	if m := cachedModel(); m != nil {
		f.Model, f.WeightBytes = m.Ref.String(), m.Bytes
		f.KVBytes = int64(c.KVTokens) * int64(c.KVType.Size(model.Inspect(m.Path).KVValues))
	}
	return f
}

// lookAtCPU describes the processor and tests each path that it can run.
func lookAtCPU() cpuFacts {
	f := cpuFacts{Brand: strings.TrimSpace(cpuid.CPU.BrandName), Arch: runtime.GOARCH, Cores: cpuid.CPU.PhysicalCores, Usable: runtime.NumCPU(),
		Threads: runtime.GOMAXPROCS(0), Forced: os.Getenv(cpu.ISAVariable), ISAs: cpu.ISAs()}
	for _, feature := range []struct {
		id   cpuid.FeatureID
		name string
	}{
		{cpuid.AVX2, "AVX2"}, {cpuid.FMA3, "FMA"}, {cpuid.F16C, "F16C"}, {cpuid.BMI2, "BMI2"}, {cpuid.AVXVNNI, "AVX-VNNI"},
		{cpuid.AVX512F, "AVX512F"}, {cpuid.AVX512BW, "AVX512BW"}, {cpuid.AVX512DQ, "AVX512DQ"}, {cpuid.AVX512VL, "AVX512VL"}, {cpuid.AVX512VNNI, "AVX512-VNNI"},
		{cpuid.ASIMD, "ASIMD"}, {cpuid.ASIMDDP, "ASIMDDP"}, {cpuid.SVE, "SVE"},
	} {
		if cpuid.CPU.Supports(feature.id) {
			f.Features = append(f.Features, feature.name)
		}
	}
	if f.Arch == "arm64" && f.Brand == "" {
		f.lookAtARM(os.DirFS("/"))
	}
	for _, isa := range f.ISAs {
		f.Tests = append(f.Tests, cpu.SelfTest(isa))
	}
	return f
}

// lookAtGPU opens the driver of this machine and lists its devices. It opens no device.
func lookAtGPU() gpuFacts {
	f := gpuFacts{Kernel: nvidiaVersion(os.DirFS("/"))}
	driver, err := system.Open()
	if f.Err = err; err == nil {
		f.list(driver)
	}
	return f
}

// list fills in what an open driver says.
func (f *gpuFacts) list(driver cudrv.Driver) {
	n := 0
	if f.CUDA, f.Err = driver.Version(); f.Err == nil {
		n, f.Err = driver.Devices()
	}
	for i := range n {
		f.Devices = append(f.Devices, lookAtDevice(driver, i))
	}
}

// lookAtDevice describes a GPU; a usual model has heads of 128.
func lookAtDevice(driver cudrv.Driver, i int) gpuDevice {
	p, err := driver.Properties(i)
	if err == nil {
		err = cuda.Usable(driver, i, 128)
	}
	return gpuDevice{Name: p.Name, Bytes: int64(p.MemoryBytes), Err: err}
}

// nvidiaVersion returns the version of the kernel's part of NVIDIA's driver, such as "580.65.06"; ""
// without one.
func nvidiaVersion(root fs.FS) string {
	data, err := fs.ReadFile(root, "proc/driver/nvidia/version")
	if err != nil {
		return ""
	}
	words := strings.Fields(string(data)) // NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul …
	at := slices.IndexFunc(words, func(w string) bool { return w[0] >= '0' && w[0] <= '9' && strings.Contains(w, ".") })
	if at < 0 {
		return "of unknown version"
	}
	return words[at]
}

// errIn returns the text of an error, without a path of the file system at its beginning, which the
// line of a finding has already.
func errIn(err error) string {
	if at, is := err.(*fs.PathError); is {
		err = at.Err
	}
	return withoutName(err)
}
