package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/bench"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/backends"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/gguf"
	"github.com/coppice-llm/coppice/engine/model/random"
	"github.com/coppice-llm/coppice/internal/terminal"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/local"
	"github.com/coppice-llm/coppice/scheduler"
)

// benchChatCmd is coppice bench chat; see bench.Chat.
type benchChatCmd struct {
	nodeFlags
	backendFlags
	bench.ChatConfig
	Seed uint64 `default:"1" help:"Seed of the conversations."`
	JSON bool   `name:"json" help:"Print one JSON object instead of the table."`
}

// Run is called by kong.
func (c *benchChatCmd) Run(ctx context.Context) error {
	dir, remove, err := c.modelDir(ctx, c.Backend)
	if err != nil {
		return err
	}
	defer remove()
	c.ChatConfig.Seed = c.Seed
	load, err := bench.NewChat(c.ChatConfig)
	if err != nil {
		return err
	}
	if !c.JSON {
		fmt.Fprintf(terminal.Out(), "%d requests in conversations of up to %d turns about Newton's Opticks, %d users at a time,\n"+
			"first with the cache on, then off.\n\n", load.Requests(), c.Turns, c.Clients)
	}
	comparison, why := c.compare(ctx, load, dir)
	if comparison == nil {
		return why
	}
	return errors.Join(printReport(comparison, c.JSON, false), why)
}

// compare plays the load with the cache on and off. If the cache changes an answer or
// leaks a page, it returns an error together with the comparison.
func (c *benchChatCmd) compare(ctx context.Context, load *bench.Chat, dir string) (*bench.Comparison, error) {
	on, onRun, err := c.play(ctx, load, dir, "cache on ", false)
	if err != nil {
		return nil, err
	}
	off, offRun, err := c.play(ctx, load, dir, "cache off", true)
	if err != nil {
		return nil, err
	}
	comparison := &bench.Comparison{On: on, Off: off, Digest: onRun.Digest()}
	comparison.Identical, err = bench.Identical(onRun, offRun)
	if leaked := on.LeakedPages + off.LeakedPages; leaked != 0 {
		err = errors.Join(err, fmt.Errorf("%d pages leaked", leaked))
	}
	return comparison, err
}

// play runs the load once on a new node with the model in dir, and returns its figures and its
// answers. label names the run in the progress bar.
func (c *benchChatCmd) play(ctx context.Context, load *bench.Chat, dir, label string, disableCache bool) (s bench.Summary, run *bench.Run, err error) {
	node, err := c.nodeFlags.open(dir, &c.backendFlags, disableCache)
	if err != nil {
		return s, nil, err
	}
	progress, finish := progressBar(load.Requests(), label)
	run, err = load.Play(ctx, node.Node, progress)
	finish()
	if err = errors.Join(err, node.Close()); err != nil {
		return s, nil, err
	}
	st, err := node.Stats(context.Background()) // a closed node answers at once
	if err != nil {
		return s, nil, err
	}
	s, err = bench.Summarise(run, st)
	return s, run, err
}

// benchTiersCmd is coppice bench tiers; see bench.PlayTiers.
type benchTiersCmd struct {
	benchNodeFlags
	bench.TiersConfig
	Seed uint64 `default:"1" help:"Seed of the questions."`
	JSON bool   `name:"json" help:"Print a JSON array instead of the table."`
}

// Run is called by kong.
func (c *benchTiersCmd) Run(ctx context.Context) error {
	dir, remove, err := c.model(ctx, c.Positions())
	if err != nil {
		return err
	}
	defer remove()
	cfg := c.TiersConfig
	cfg.Open = func(tokens int, tiers coppice.Tiers) (*coppice.Node, error) { return c.open(dir, tokens, tiers) }
	cfg.Seed = c.Seed
	progress, finish := progressBar(cfg.TierSteps(c.PageTokens), "requests")
	runs, err := bench.PlayTiers(ctx, cfg, progress)
	finish()
	if err != nil {
		return err
	}
	err = printReport(runs, c.JSON, false)
	for i := range runs {
		if r := &runs[i]; !r.Identical || r.LeakedPages != 0 {
			err = errors.Join(err, fmt.Errorf("working set %dx, %s: same bits: %v, leaked pages: %d", r.WorkingSet, r.Config, r.Identical, r.LeakedPages))
		}
	}
	return err
}

// benchNodeFlags configure nodes of benchmarks.
type benchNodeFlags struct {
	engineFlags
	gpuFlags
	Backend    string   `default:"cpu" enum:"cpu,cuda,ptxvm" help:"Device that computes: cpu, cuda (an NVIDIA GPU), or ptxvm (the CUDA kernels in an interpreter; very slow, for tiny models)."`
	KVType     kv.DType `name:"kv-type" default:"f32" help:"Data type of keys and values, on cpu: f32, f16, bf16 or q8_0."`
	PageTokens int      `name:"page-tokens" default:"16" help:"Tokens per page: a power of two, 1 to 256."`
}

// model returns the path of the given model, or of a generated one with room for this many positions. remove
// deletes the latter.
func (c *benchNodeFlags) model(ctx context.Context, positions int) (dir string, remove func(), err error) {
	if c.Backend != "cpu" && c.KVType != kv.F32 {
		return "", nil, errors.New("--kv-type is for --backend cpu")
	}
	if c.Model != "" {
		return c.Model.or(ctx, c.preset())
	}
	return generated(random.Spec{Preset: c.preset(), Seed: 1, Positions: positions}, c.preset().String())
}

// open starts a node with the model in dir. tokens is the size of the device's
// pool.
func (c *benchNodeFlags) open(dir string, tokens int, tiers coppice.Tiers) (*coppice.Node, error) {
	m, err := local.Open(dir, local.Options{
		Node: coppice.Config{Tiers: tiers, Scheduler: scheduler.Config{StepTokens: 512}},
		Backend: func(m *model.Model, _ *coppice.Config) (engine.Backend, error) {
			return openBackend(c.Backend, backends.Options{
				Model: m, PageTokens: c.PageTokens, KVTokens: tokens, KVType: c.KVType, Threads: c.Threads, MaxTokens: 512, GPU: c.options(),
			})
		},
	})
	if err != nil {
		return nil, err
	}
	return m.Node, nil
}

// engineFlags choose the model and the threads of commands that use an engine alone.
type engineFlags struct {
	Model   modelPath     `placeholder:"PATH" help:"GGUF file, Hugging Face model directory, or hf:owner/name[:file]. Default: a generated model of --preset."`
	Preset  random.Preset `help:"Generated model: nano, demo, tiny (13M parameters, the default), small (100M) or half (450M)."`
	Threads int           `default:"0" min:"0" help:"Compute threads. Default: one per processor."`
}

// openCPU opens the model, generated if none is given, on the cpu backend. The options' model and threads are
// set here. done closes both.
func (f *engineFlags) openCPU(ctx context.Context, o backends.Options) (m *model.Model, b *cpu.Backend, done func(), err error) {
	dir, remove, err := f.Model.or(ctx, f.preset())
	if err != nil {
		return nil, nil, nil, err
	}
	if m, err = model.Open(dir); err != nil {
		remove()
		return nil, nil, nil, err
	}
	o.Model, o.Threads = m, f.threads()
	opened, err := openBackend("cpu", o)
	if err != nil {
		m.Close()
		remove()
		return nil, nil, nil, err
	}
	b = opened.(*cpu.Backend)
	return m, b, func() { b.Close(); m.Close(); remove() }, nil
}

// preset returns the generated model's size.
func (f *engineFlags) preset() random.Preset { return cmp.Or(f.Preset, random.Tiny) }

// threads returns the number of compute threads.
func (f *engineFlags) threads() int { return cmp.Or(f.Threads, runtime.GOMAXPROCS(0)) }

// engineCmd is coppice bench engine; see bench.PlayEngine.
type engineCmd struct {
	engineFlags
	PromptTokens int         `name:"prompt-tokens" default:"512" min:"1" help:"Tokens of the prompt."`
	OutputTokens int         `name:"output-tokens" default:"64" min:"1" help:"Tokens that each sequence decodes."`
	KVType       kv.DType    `name:"kv-type" default:"f32" help:"Data type of keys and values: f32, f16, bf16 or q8_0."`
	Report       bool        `help:"Measure each path of kernels with each type of weights, and describe the machine: a report to attach to an issue."`
	Weights      []gguf.Type `placeholder:"TYPE,..." help:"Types of weights that --report measures. Default: all."`
	JSON         bool        `name:"json" help:"Print one JSON object instead of the table."`
}

// Run is called by kong.
func (c *engineCmd) Run(ctx context.Context) error {
	if err := c.validate(); err != nil {
		return err
	}
	if c.Report {
		return c.report(ctx)
	}
	_, backend, done, err := c.openCPU(ctx, c.options())
	if err != nil {
		return err
	}
	defer done()
	ceilings := cpu.MeasureCeilings("", c.threads())
	return report(bench.EngineConfig{}.Steps(), "runs", "", c.JSON, false, func(progress func()) (*bench.EngineSummary, error) {
		return c.play(ctx, backend, ceilings, progress)
	})
}

// options returns the sizes that the measurement needs.
func (c *engineCmd) options() backends.Options {
	return backends.Options{
		KVTokens: max(c.PromptTokens, 16*(64+c.OutputTokens)), MaxTokens: max(c.PromptTokens, 512), MaxRows: 16, MaxSlots: 16, KVType: c.KVType,
	}
}

// play measures a backend.
func (c *engineCmd) play(ctx context.Context, b *cpu.Backend, ceilings cpu.Ceilings, progress func()) (*bench.EngineSummary, error) {
	work := b.Work()
	return bench.PlayEngine(ctx, b, bench.EngineConfig{
		PromptTokens: c.PromptTokens, OutputTokens: c.OutputTokens,
		LinearParams: work.LayerParams, HeadParams: work.HeadParams, WeightBytes: work.WeightBytes,
		CeilingGFlops: ceilings.GFlops, CeilingGBs: ceilings.GBs, ISA: ceilings.ISA, Threads: c.threads(),
	}, progress)
}
