package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
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
	// Batches are the numbers of rows whose decoding is measured, default 1, 64 and 256. Each row
	// has Context positions, default 1,024. Prompt is the length of the measured prompt, default
	// 4,096. Another measurement decodes SharedRows rows, default 64, that share a prefix of
	// Shared tokens, default 8,192.
	Batches    []int
	Context    int `default:"1024"`
	Prompt     int `default:"4096"`
	Shared     int `default:"8192"`
	SharedRows int `default:"64"`
	CopyBytes  int `default:"256<<20"` // size of the measured copies; default 256 MiB
	GEMM       int `default:"4096"`    // rows, columns and depth of the measured product; default 4,096
	// Steps measures steps of many shapes on a backend of the model, to fit a profile to them;
	// nil: no profile is fitted.
	Steps func(ctx context.Context, b engine.Backend) ([]sim.Sample, error)
	Log   func(line string)
}

// Tiny returns c with sizes that the interpreter runs in seconds, to try the checks without a GPU.
func (c Config) Tiny() Config {
	c.Checks, c.Batches, c.Context, c.Prompt, c.Shared, c.SharedRows = []string{"logprobs", "moves"}, []int{1, 2}, 20, 32, 16, 4
	c.Fuzz, c.CopyBytes, c.GEMM = time.Nanosecond, 1<<12, 128
	c.Model = &model.Config{Hidden: 64, Layers: 1, Heads: 4, KVHeads: 2, HeadDim: 16, FFN: 96, Vocab: 320, MaxPositions: 256, NormEps: 1e-5, RopeTheta: 10000}
	return c
}

func (c Config) withDefaults() Config {
	c = bounds.Fill(c)
	if c.Model == nil {
		c.Model = &model.Config{Architecture: "LlamaForCausalLM", Hidden: 4096, Layers: 32, Heads: 32, KVHeads: 8, HeadDim: 128, FFN: 14336,
			Vocab: 128256, MaxPositions: 16384, NormEps: 1e-5, RopeTheta: 500000}
	}
	if c.Batches == nil {
		c.Batches = []int{1, 64, 256}
	}
	if c.Log == nil {
		c.Log = func(string) {}
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
	Checks   []Check
	Ceilings Ceilings
	Speed    []Speed
	// Profile is the profile of a simulated device, fitted to Steps.
	Profile *sim.Profile   `json:",omitempty"`
	Fit     *sim.FitReport `json:",omitempty"`
	Steps   []sim.Sample   `json:",omitempty"`
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

// Run checks and measures a device. It fails if the device can't be used, if a measurement can't
// be made, or if ctx ends; then the report is nil or holds what was done before. Checks that fail
// are in the report.
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
	for _, part := range []func(context.Context, *Config, *Report) error{conformance, kernelsAgree, invariance, ceilings, speed, fit} {
		if err := errors.Join(part(ctx, &cfg, r), ctx.Err()); err != nil {
			return r, err
		}
	}
	return r, nil
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
	for _, s := range r.Speed {
		fmt.Fprintf(&b, "%-44s %10.1f tokens/s", s.Name, s.PerSec)
		if s.OfMemory > 0 {
			fmt.Fprintf(&b, ", %.0f %% of the copy", 100*s.OfMemory)
		}
		if s.OfGEMM > 0 {
			fmt.Fprintf(&b, ", %.0f %% of the product", 100*s.OfGEMM)
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
