package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coppice-llm/coppice/bench"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/gguf"
	"github.com/coppice-llm/coppice/engine/model/random"
	"github.com/coppice-llm/coppice/internal/terminal"
)

// engineReport is printed by coppice bench engine --report: a machine, and the speed of each path of kernels
// on it.
type engineReport struct {
	Build   build         `json:"coppice"`
	Machine engineMachine `json:"machine"`
	Model   string        `json:"model"`
	Load    engineLoad    `json:"load"`
	Paths   []enginePath  `json:"paths"`
	Rates   []engineRates `json:"rates"`
}

// engineMachine describes the machine; unknown parts are empty.
type engineMachine struct {
	System      string   `json:"system"`
	Kernel      string   `json:"kernel"`
	Container   string   `json:"container,omitempty"`
	Processor   string   `json:"processor"`
	Cores       int      `json:"cores"`
	Processors  int      `json:"processors"` // logical ones that this process may use
	Threads     int      `json:"threads"`
	Features    []string `json:"features"`
	MemoryBytes int64    `json:"memory_bytes"`
}

// engineLoad is the work that was measured.
type engineLoad struct {
	PromptTokens int    `json:"prompt_tokens"`
	OutputTokens int    `json:"output_tokens"`
	KVType       string `json:"kv_type"`
}

// enginePath is a path of kernels, and its limits on this machine.
type enginePath struct {
	Path          cpu.ISA `json:"path"`
	Fault         string  `json:"fault,omitempty"`          // of its self-test
	CeilingGFlops float64 `json:"ceiling_gflops,omitempty"` // both are 0 for a path that is not measured
	CeilingGBs    float64 `json:"ceiling_gbs,omitempty"`
}

// engineRates are the figures of a path with weights of one type.
type engineRates struct {
	Weights      string  `json:"weights"`
	Path         string  `json:"path"`
	PrefillTokS  float64 `json:"prefill_tok_s"`
	DecodeTokS1  float64 `json:"decode_tok_s_b1"`
	DecodeTokS4  float64 `json:"decode_tok_s_b4"`
	DecodeTokS16 float64 `json:"decode_tok_s_b16"`
	GemmGFlops   float64 `json:"gemm_gflops"`
	StreamGBs    float64 `json:"stream_gbs"`
}

// Rows returns a row for each path and type of weights.
func (r *engineReport) Rows() (rows [][]string, legend string) {
	rows = [][]string{{"weights", "path", "prefill", "decode 1", "batch 4", "batch 16", "GFLOP/s", "GB/s"}}
	for _, s := range r.Rates {
		rows = append(rows, []string{s.Weights, s.Path, fmt.Sprintf("%.0f", s.PrefillTokS), fmt.Sprintf("%.1f", s.DecodeTokS1),
			fmt.Sprintf("%.1f", s.DecodeTokS4), fmt.Sprintf("%.1f", s.DecodeTokS16), fmt.Sprintf("%.1f", s.GemmGFlops), fmt.Sprintf("%.1f", s.StreamGBs)})
	}
	return rows, fmt.Sprintf("Tokens per second of %s, %s: a prompt of %d tokens, then %d decoded in batches of 1, 4 and 16, over KV of %s; medians of three.\n"+
		"GFLOP/s are those of the prompt's products, GB/s the weights that decoding reads at batch 1.",
		r.Model, counted(r.Machine.Threads, "thread"), r.Load.PromptTokens, r.Load.OutputTokens, r.Load.KVType)
}

// measured returns the paths to measure: those that pass their self-test, and only the one that COPPICE_CPU
// names, if it names one. Beside others the portable path is left out: it takes longer than all of them.
func (f *cpuFacts) measured() (all []cpu.ISA, err error) {
	for i, isa := range f.ISAs {
		if f.Tests[i] == nil && (f.Forced == "" || string(isa) == f.Forced) {
			all = append(all, isa)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no path of kernels to measure: coppice doctor says why")
	}
	if len(all) > 1 && all[0] == cpu.Portable {
		all = all[1:]
	}
	return all, nil
}

// reportWeights names the weights to measure: those of a file, or of a model generated with a type.
type reportWeights struct {
	name string
	path string
	typ  gguf.Type
}

// reported returns the models to measure, and the words for all of them.
func (c *engineCmd) reported(ctx context.Context) (all []reportWeights, about string, err error) {
	if c.Model != "" {
		path, _, err := c.Model.or(ctx, "")
		if err != nil {
			return nil, "", err
		}
		s := model.Inspect(path)
		return []reportWeights{{name: s.Weights, path: path}}, string(c.Model), s.Err
	}
	types := c.Weights
	if len(types) == 0 {
		types = gguf.Types()
	}
	for _, t := range types {
		all = append(all, reportWeights{name: t.String(), typ: t})
	}
	return all, "a generated model, " + c.reportPreset().String(), nil
}

// reportPreset is the generated model that report measures. The weights of smaller ones than small stay in the
// caches of many processors.
func (c *engineCmd) reportPreset() random.Preset { return cmp.Or(c.Preset, random.Small) }

// report measures each path of kernels with each type of weights, and prints what it is told about the machine.
func (c *engineCmd) report(ctx context.Context) error {
	models, about, err := c.reported(ctx)
	if err != nil {
		return err
	}
	facts := &doctorFacts{System: lookAtSystem(os.DirFS("/")), CPU: lookAtCPU(), Memory: readMemory()}
	paths, err := facts.CPU.measured()
	if err != nil {
		return err
	}
	threads := c.threads()
	facts.CPU.Threads = threads
	r := &engineReport{Build: builtFrom(), Model: about, Load: engineLoad{c.PromptTokens, c.OutputTokens, c.KVType.String()},
		Machine: engineMachine{facts.System.Name, facts.System.Kernel, facts.System.Container, facts.CPU.Brand, facts.CPU.Cores, facts.CPU.Usable, threads, facts.CPU.Features, facts.Memory.most()}}
	ceilings := map[cpu.ISA]cpu.Ceilings{}
	for i, isa := range facts.CPU.ISAs {
		path := enginePath{Path: isa}
		if fault := facts.CPU.Tests[i]; fault != nil {
			path.Fault = firstOf(fault, 3)
		}
		if slices.Contains(paths, isa) {
			ceilings[isa] = cpu.MeasureCeilings(isa, threads)
			path.CeilingGFlops, path.CeilingGBs = ceilings[isa].GFlops, ceilings[isa].GBs
		}
		r.Paths = append(r.Paths, path)
	}
	progress, finish := progressBar(len(models)*len(paths)*bench.EngineConfig{}.Steps(), "runs")
	for _, m := range models {
		rates, err := c.rates(ctx, m, paths, ceilings, progress)
		if err != nil {
			finish()
			return fmt.Errorf("%s: %w", m.name, err)
		}
		r.Rates = append(r.Rates, rates...)
	}
	finish()
	if c.JSON {
		return printJSON(r)
	}
	if err := writeFindings(terminal.Out(), r.findings(facts)); err != nil {
		return err
	}
	fmt.Fprintln(terminal.Out())
	return bench.WriteTable(terminal.Out(), r)
}

// rates measures the paths with one model.
func (c *engineCmd) rates(ctx context.Context, w reportWeights, paths []cpu.ISA, ceilings map[cpu.ISA]cpu.Ceilings, progress func()) (all []engineRates, err error) {
	if w.path == "" {
		dir, err := os.MkdirTemp("", "coppice-")
		if err != nil {
			return nil, fmt.Errorf("a directory for the generated model: %w", err)
		}
		defer os.RemoveAll(dir)
		w.path = filepath.Join(dir, w.name+".gguf")
		if err := random.GenerateGGUF(w.path, random.Spec{Preset: c.reportPreset(), Seed: 1}, w.typ); err != nil {
			return nil, err
		}
	}
	m, err := model.Open(w.path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	for _, isa := range paths {
		o := c.options()
		b, err := cpu.Open(m, cpu.Config{ISA: isa, Threads: c.threads(), KVType: o.KVType, KVTokens: o.KVTokens, MaxTokens: o.MaxTokens, MaxRows: o.MaxRows, MaxSlots: o.MaxSlots})
		if err != nil {
			return nil, err
		}
		s, err := c.play(ctx, b, ceilings[isa], progress)
		if err = errors.Join(err, b.Close()); err != nil {
			return nil, err
		}
		all = append(all, engineRates{w.name, isa.String(), s.PrefillTokS, s.DecodeTokS1, s.DecodeTokS4, s.DecodeTokS16, s.GemmGFlops, s.StreamGBs})
	}
	return all, nil
}

// findings returns the lines above the table.
func (r *engineReport) findings(facts *doctorFacts) []finding {
	version := noted("version", "coppice %s, %s, %s", r.Build.Version, r.Build.Go, r.Build.Target)
	if r.Build.Commit != "" {
		version = noted("version", "coppice %s, commit %s of %s, %s, %s", r.Build.Version, r.Build.Commit, r.Build.Date, r.Build.Go, r.Build.Target)
	}
	found := append([]finding{version, facts.System.judge()}, facts.CPU.judge()...)
	found = append(found, facts.judgeMemory())
	for _, p := range r.Paths {
		if p.CeilingGFlops > 0 {
			found = append(found, noted("limits", "%s: %.1f GFLOP/s of a product in the cache, %.1f GB/s read from memory", p.Path, p.CeilingGFlops, p.CeilingGBs))
		}
	}
	return found
}

// validate returns an error for flags that exclude each other.
func (c *engineCmd) validate() error {
	switch {
	case len(c.Weights) > 0 && !c.Report:
		return errors.New("--weights needs --report")
	case len(c.Weights) > 0 && c.Model != "":
		return fmt.Errorf("--weights %s and --model: the file has its own type of weights; omit --weights", strings.Join(texts(c.Weights, gguf.Type.String), ","))
	}
	return nil
}
