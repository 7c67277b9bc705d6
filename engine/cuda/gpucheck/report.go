package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/internal/bounds"
)

// Config selects the checks and their sizes; 0 means the default. Driver is required.
type Config struct {
	Driver cudrv.Driver
	Device int
	// MemoryFraction is the largest fraction of the device's memory that may be in use; default
	// 0.9.
	MemoryFraction float64
	// Fuzz is the time for comparing bits over random batches; default one minute. At least one
	// trial runs.
	Fuzz time.Duration `default:"1m"`
	// Checks names the checks of the conformance suite; nil: all.
	Checks []string
	// Model is the shape whose speed is measured; default: Llama-3.1-8B.
	Model *model.Config
	// Batches are the numbers of rows whose decoding is measured, default 1, 8, 64, 65, 128 and 256.
	// Each row has Context positions, default 1,024. Long are more contexts, for one row and for 64,
	// default 32,768 and 131,072. Prompt is the length of the measured prompt, default 4,096; another
	// one has an eighth of it, and another 64 tokens after each of Long. Another measurement decodes
	// SharedRows rows, default 64, that share a prefix of Shared tokens, default 8,192.
	Batches    []int
	Context    int `default:"1024"`
	Long       []int
	Prompt     int `default:"4096"`
	Shared     int `default:"8192"`
	SharedRows int `default:"64"`
	CopyBytes  int `default:"256<<20"` // size of the measured copies; default 256 MiB
	GEMM       int `default:"4096"`    // rows, columns and depth of the measured product; default 4,096
	Repeats    int `default:"20"`      // launches of a kernel that is measured alone, after one to warm up; default 20
	// Steps measures steps of many shapes on a backend of the model, to fit a profile to them;
	// nil: no profile is fitted.
	Steps func(ctx context.Context, b engine.Backend) ([]sim.Sample, error)
	// More has parts that run after those of this package.
	More []Part
	// Only names the parts to run; nil: all.
	Only []string
	// Save is called before the first part and after each part with the report so far, to keep it in
	// case that the process or the machine does not get to the end.
	Save func(r *Report) error
	Log  func(line string)
}

// Part is one part of the check. The next part runs also if it fails.
type Part struct {
	Name string
	Run  func(ctx context.Context) error
}

// Tiny returns c with sizes that the interpreter runs in seconds, to try the checks without a GPU.
func (c Config) Tiny() Config {
	c.Checks, c.Batches, c.Long, c.Context, c.Prompt, c.Shared, c.SharedRows = []string{"logprobs", "moves"}, []int{1, 2}, []int{150}, 20, 32, 16, 4
	c.Fuzz, c.CopyBytes, c.GEMM, c.Repeats = time.Nanosecond, 1<<12, 128, 1
	c.Model = &model.Config{Hidden: 64, Layers: 1, Heads: 4, KVHeads: 2, HeadDim: 16, FFN: 96, Vocab: 320, MaxPositions: 256, NormEps: 1e-5, RopeTheta: 10000}
	return c
}

func (c Config) withDefaults() Config {
	c = bounds.Fill(c)
	if c.Model == nil {
		c.Model = &model.Config{Architecture: "LlamaForCausalLM", Hidden: 4096, Layers: 32, Heads: 32, KVHeads: 8, HeadDim: 128, FFN: 14336,
			Vocab: 128256, MaxPositions: 132 << 10, NormEps: 1e-5, RopeTheta: 500000}
	}
	if c.Batches == nil {
		c.Batches = []int{1, 8, 64, 65, 128, 256}
	}
	if c.Long == nil {
		c.Long = []int{32 << 10, 128 << 10}
	}
	if c.Log == nil {
		c.Log = func(string) {}
	}
	if c.Save == nil {
		c.Save = func(*Report) error { return nil }
	}
	return c
}

// Report has the results. The file of --json is its JSON.
type Report struct {
	Date     time.Time
	Commit   string
	Driver   string
	CUDA     int
	Device   cudrv.Properties
	Parts    []PartResult // the parts that have ended, in order
	Complete bool         // all parts have ended
	Warnings []string     `json:",omitempty"` // of the backend: graphs that the driver did not make, lack of memory
	Checks   []Check
	Ceilings Ceilings
	Kernels  []Kernel
	Speed    []Speed
	// Profile is the profile of a simulated device, fitted to Steps.
	Profile *sim.Profile   `json:",omitempty"`
	Fit     *sim.FitReport `json:",omitempty"`
	Steps   []sim.Sample   `json:",omitempty"`
}

// PartResult tells how a part ended.
type PartResult struct {
	Name    string
	Seconds float64
	Error   string `json:",omitempty"` // why the part could not be done; checks that fail are in Checks
}

// Check is the result of one check.
type Check struct {
	Name   string
	OK     bool
	Detail string `json:",omitempty"`
}

// Ceilings are the highest measured rates of the device. A rate is 0 if the device's clock
// measures no time, as in the interpreter.
type Ceilings struct {
	CopyBytesPerSecond   float64 // device memory, read and written
	ToDevice, ToHost     float64 // bytes per second, with pinned memory
	LaunchSeconds        float64 // from one small kernel to the next
	ProductFlopsPerSec   float64 // of gemm128
	PagesToHost, ToPages float64 // bytes per second, by moves of the backend
}

// Speed is one measurement.
type Speed struct {
	Name     string
	Tokens   int
	Seconds  float64
	PerSec   float64 `json:"tokens_per_second"`
	Expected float64 `json:",omitempty"` // seconds by the cost model of package kernels, if it knows the device
	OfMemory float64 `json:",omitempty"` // bandwidth of loading weights and KV, as a share of the copy's
	OfGEMM   float64 `json:",omitempty"` // share of the measured product's rate
	Note     string  `json:",omitempty"`
}

// Failed returns the number of checks that did not pass.
func (r *Report) Failed() int {
	n := 0
	for _, c := range r.Checks {
		if !c.OK {
			n++
		}
	}
	return n
}

func (r *Report) check(cfg *Config, name string, err error, detail string) {
	c := Check{Name: name, OK: err == nil, Detail: detail}
	line := "ok    " + name
	if err != nil {
		c.Detail = err.Error()
		line = "FAIL  " + name
	}
	if c.Detail != "" {
		line += ": " + c.Detail
	}
	r.Checks = append(r.Checks, c)
	cfg.Log(line)
}

// Run checks and measures a device, part after part. A part that fails, or that panics, does not keep
// the next one from running. Run returns the errors of all parts; checks that fail are in the report. The report
// is nil if the driver does not know the device. If ctx ends, the rest is left out.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	if cfg.Driver == nil {
		return nil, errors.New("gpucheck: Driver is nil")
	}
	cfg = cfg.withDefaults()
	r := &Report{Date: time.Now().UTC(), Commit: commit(), Driver: cfg.Driver.Name()}
	var err error
	if r.CUDA, err = cfg.Driver.Version(); err != nil {
		return nil, err
	}
	if r.Device, err = cfg.Driver.Properties(cfg.Device); err != nil {
		return nil, err
	}
	all := append(parts(&cfg, r), cfg.More...)
	for _, name := range cfg.Only {
		if !slices.ContainsFunc(all, func(p Part) bool { return p.Name == name }) {
			return nil, fmt.Errorf("gpucheck: there is no part %q, want some of %s", name, strings.Join(names(all), ", "))
		}
	}
	err = cfg.Save(r)
	for _, p := range all {
		if cfg.Only != nil && !slices.Contains(cfg.Only, p.Name) {
			continue
		}
		if ctx.Err() != nil {
			return r, errors.Join(err, ctx.Err())
		}
		err = errors.Join(err, r.run(ctx, &cfg, p))
	}
	r.Complete = true
	return r, errors.Join(err, cfg.Save(r))
}

// names returns the names of the parts, in their order.
func names(all []Part) (list []string) {
	for _, p := range all {
		list = append(list, p.Name)
	}
	return list
}

// parts lists the parts of this package. What costs least and tells most comes first.
func parts(cfg *Config, r *Report) (all []Part) {
	for _, p := range []struct {
		name string
		run  func(context.Context, *Config, *Report) error
	}{
		{"driver", driverSuite}, {"conformance", conformance}, {"kernels", kernelsAgree}, {"bits", invariance}, {"bits at size", bitsAtSize}, {"ceilings", ceilings}, {"kernels alone", kernelsAlone}, {"speed", speed},
		{"quantised", quantised}, {"profile", fit},
	} {
		all = append(all, Part{p.name, func(ctx context.Context) error { return p.run(ctx, cfg, r) }})
	}
	return all
}

// run runs one part, notes how it ended, and saves the report.
func (r *Report) run(ctx context.Context, cfg *Config, p Part) error {
	start := time.Now()
	err := guarded(ctx, p)
	result := PartResult{Name: p.Name, Seconds: time.Since(start).Seconds()}
	if err != nil {
		err = fmt.Errorf("gpucheck: %s: %w", p.Name, err)
		result.Error = err.Error()
		cfg.Log("ERROR " + result.Error)
	}
	r.Parts = append(r.Parts, result)
	err = errors.Join(err, cfg.Save(r))
	cfg.Log(fmt.Sprintf("part %d, %s, has ended after %.1f s", len(r.Parts), p.Name, result.Seconds))
	return err
}

// guarded runs a part and returns a panic as an error: the next part may still tell something.
func guarded(ctx context.Context, p Part) (err error) {
	defer func() {
		if x := recover(); x != nil {
			err = fmt.Errorf("panic: %v\n%s", x, debug.Stack())
		}
	}()
	return p.Run(ctx)
}

func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}

// String returns the report as text.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, compute capability %d.%d, %.1f GiB; %s, CUDA %d.%d\n", r.Device.Name, r.Device.Major, r.Device.Minor,
		float64(r.Device.MemoryBytes)/(1<<30), r.Driver, r.CUDA/1000, r.CUDA%1000/10)
	if !r.Complete {
		fmt.Fprintf(&b, "INCOMPLETE: %d parts have ended\n", len(r.Parts))
	}
	for _, p := range r.Parts {
		if p.Error != "" {
			fmt.Fprintf(&b, "  NOT DONE %s\n", p.Error)
		}
	}
	if d := &r.Device; d.ClockKHz > 0 {
		fmt.Fprintf(&b, "%d multiprocessors at up to %d MHz, memory at up to %d MHz on %d bits, %d MiB of L2\n", d.Multiprocessors, d.ClockKHz/1000, d.MemoryClockKHz/1000, d.BusBits, d.L2Bytes>>20)
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(&b, "  WARNING %s\n", w)
	}
	fmt.Fprintf(&b, "%d checks, %d failed\n", len(r.Checks), r.Failed())
	for _, c := range r.Checks {
		if !c.OK {
			fmt.Fprintf(&b, "  FAIL %s: %s\n", c.Name, c.Detail)
		}
	}
	c := &r.Ceilings
	fmt.Fprintf(&b, "copy %.0f GB/s, to the device %.1f, to the host %.1f; pages to the host %.1f, back %.1f\n", c.CopyBytesPerSecond/1e9, c.ToDevice/1e9, c.ToHost/1e9,
		c.PagesToHost/1e9, c.ToPages/1e9)
	fmt.Fprintf(&b, "product %.1f Tflop/s, launch %.2f µs\n", c.ProductFlopsPerSec/1e12, c.LaunchSeconds*1e6)
	for _, k := range r.Kernels {
		fmt.Fprintf(&b, "%-56s %10.1f µs, %.0f %% of the copy", k.Name, 1e6*k.Seconds, 100*k.OfMemory)
		if k.Expected > 0 {
			fmt.Fprintf(&b, ", %.0f %% of the peak, %.0f %% of the model's rate", 100*k.OfPeak, 100*k.Expected/max(k.Seconds, 1e-9))
		}
		b.WriteByte('\n')
	}
	for _, s := range r.Speed {
		fmt.Fprintf(&b, "%-44s %10.1f tokens/s", s.Name, s.PerSec)
		if s.OfMemory > 0 {
			fmt.Fprintf(&b, ", %.0f %% of the copy", 100*s.OfMemory)
		}
		if s.OfGEMM > 0 {
			fmt.Fprintf(&b, ", %.0f %% of the product", 100*s.OfGEMM)
		}
		if s.Expected > 0 && s.Seconds > 0 {
			fmt.Fprintf(&b, ", %.0f %% of the model's rate", 100*s.Expected/s.Seconds)
		}
		if s.Note != "" {
			fmt.Fprintf(&b, " (%s)", s.Note)
		}
		b.WriteByte('\n')
	}
	if r.Fit != nil {
		fmt.Fprintf(&b, "a profile of it: mean error %.1f %% of the %d steps fitted to, %.1f %% of the %d held out\n", 100*r.Fit.TrainMAPE, r.Fit.Train, 100*r.Fit.HeldOutMAPE, r.Fit.HeldOut)
	}
	return b.String()
}

// rate returns n per second; 0 if no time passed, as in the interpreter.
func rate(n, seconds float64) float64 {
	if seconds <= 0 || math.IsInf(n/seconds, 0) {
		return 0
	}
	return n / seconds
}
