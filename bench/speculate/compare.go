package speculate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/scheduler"
)

// Config says how Compare plays a load. Open is required.
type Config struct {
	// Open opens a node on around(backend), with drafts or without. The node needs a tokenizer, and KV
	// for the tasks that run at a time. Compare closes it.
	Open func(drafts bool, around func(engine.Backend) engine.Backend) (*coppice.Node, error)
	// Processor returns the time that processors have spent in this process so far. Unlike a rate it says
	// something on a machine that does other work too. Default: unknown.
	Processor    func() time.Duration
	Runs         int  `default:"3" min:"1"` // runs with drafts off and as many with drafts on, in turns; default 3
	Tasks        int  `min:"0"`             // only the first tasks of the load; 0: all
	OutputTokens int  `min:"0"`             // at most this many tokens of each output; 0: all
	Free         bool // the model answers as it wants, at temperature 0 and at most as long as the task's output
}

// Work counts what a run has cost, without the computing of its prompts.
type Work struct {
	Steps    uint64 `json:"steps"`
	Drafted  int    `json:"drafted"`  // tokens that were drafted
	Accepted int    `json:"accepted"` // of Drafted
	// Sources splits both by the source of the drafts; sources that have drafted nothing are left out.
	Sources map[string]Drafts `json:"sources,omitempty"`
}

// Drafts counts drafts of one source.
type Drafts struct {
	Drafted  int `json:"drafted"`
	Accepted int `json:"accepted"`
}

// add adds what has happened between two looks at a node.
func (w *Work) add(before, after *coppice.Stats) {
	w.Steps += after.Scheduler.Steps - before.Scheduler.Steps
	w.Drafted += after.Engine.Drafted - before.Engine.Drafted
	w.Accepted += after.Engine.Confirmed - before.Engine.Confirmed
	was, is := &before.Scheduler.Drafts, &after.Scheduler.Drafts
	for s := range scheduler.DraftSource(scheduler.DraftSources) {
		d := w.Sources[s.String()]
		d.Drafted += int(is.Drafted[s] - was.Drafted[s])
		d.Accepted += int(is.Accepted[s] - was.Accepted[s])
		if d.Drafted == 0 {
			continue
		}
		if w.Sources == nil {
			w.Sources = map[string]Drafts{}
		}
		w.Sources[s.String()] = d
	}
}

// Side has the figures of the runs with drafts off, or of those with drafts on.
type Side struct {
	TokensPerSecond float64   `json:"tokens_per_s"` // decode, the median of Runs
	Runs            []float64 `json:"runs_tokens_per_s"`
	ProcessorMS     float64   `json:"processor_ms_per_token"` // the median; 0: unknown
	Work                      // of the last run
}

// Comparison is a load with drafts off and on.
type Comparison struct {
	Load         string  `json:"load"`
	Tasks        int     `json:"tasks"`
	OutputTokens int     `json:"output_tokens"` // of one run
	Off          Side    `json:"off"`
	On           Side    `json:"on"`
	Ratio        float64 `json:"ratio"`     // of the tokens per second, on to off; 0 if no output has a second token
	Digest       string  `json:"digest"`    // of all output tokens and of the bits of all their logits
	Identical    bool    `json:"identical"` // see Compare

	tokens    string       // digest of the output tokens
	processor [2][]float64 // ms a token, by run with drafts off and on
}

// errDiffers reports that drafts have changed an output token or a bit of its logits.
var errDiffers = errors.New("speculate: drafts change the output")

// Compare plays the load on new nodes with drafts off and on, in turns: off, on; on, off; and so
// on. It compares the output tokens of all runs, and the bits of their logits of the first two: with a
// digest for each position, runs take some percent longer. If something differs, it returns the
// comparison and an error that wraps errDiffers. progress, if not nil, is called after each task, Steps times.
func Compare(ctx context.Context, load *Load, cfg Config, progress func()) (*Comparison, error) {
	if err := bounds.Check("speculate", cfg); err != nil {
		return nil, err
	}
	if progress == nil {
		progress = func() {}
	}
	if cfg.Processor == nil {
		cfg.Processor = func() time.Duration { return 0 }
	}
	cfg = bounds.Fill(cfg)
	load = cfg.part(load)
	c := &Comparison{Load: load.Name, Tasks: len(load.Tasks), Identical: true}
	for round := range cfg.Runs {
		for turn := range 2 {
			drafts := turn != round%2
			r, err := play(ctx, load, &cfg, drafts, round == 0, progress)
			if err != nil {
				return nil, err
			}
			c.take(r, drafts, round == 0)
		}
	}
	c.Off.TokensPerSecond, c.On.TokensPerSecond = median(c.Off.Runs), median(c.On.Runs)
	c.Off.ProcessorMS, c.On.ProcessorMS = median(c.processor[0]), median(c.processor[1])
	if c.Off.TokensPerSecond > 0 {
		c.Ratio = c.On.TokensPerSecond / c.Off.TokensPerSecond
	}
	if !c.Identical {
		return c, fmt.Errorf("%w of the load %s", errDiffers, load.Name)
	}
	return c, nil
}

// part returns the tasks of the load that are played.
func (c *Config) part(load *Load) *Load {
	if c.Tasks == 0 || c.Tasks >= len(load.Tasks) {
		return load
	}
	return &Load{Name: load.Name, Parallel: load.Parallel, Tasks: load.Tasks[:c.Tasks]}
}

// Steps returns how often Compare calls its progress for the load.
func (c Config) Steps(load *Load) int { return 2 * bounds.Fill(c).Runs * len(c.part(load).Tasks) }

// take adds a run; bits says that it has digests of logits.
func (c *Comparison) take(r *run, drafts, bits bool) {
	tokens, all := r.digests()
	if c.tokens == "" {
		c.tokens, c.Digest = tokens, all
		for _, a := range r.answers {
			c.OutputTokens += len(a.output)
		}
	}
	c.Identical = c.Identical && tokens == c.tokens && (!bits || all == c.Digest)
	side, spent := &c.Off, &c.processor[0]
	if drafts {
		side, spent = &c.On, &c.processor[1]
	}
	rate := 0.0
	if r.decode > 0 {
		rate = float64(r.tokens) / r.decode.Seconds()
	}
	side.Runs, side.Work = append(side.Runs, rate), r.Work
	*spent = append(*spent, r.processor.Seconds()*1000/float64(c.OutputTokens))
}

// digests returns the XXH3 of the output tokens by task, and that of the digests of their logits in
// addition, in 16 hex digits each.
func (r *run) digests() (tokens, all string) {
	var data, bits []byte
	for _, a := range r.answers {
		data = binary.LittleEndian.AppendUint32(data, uint32(len(a.output)))
		for _, t := range a.output {
			data = binary.LittleEndian.AppendUint32(data, uint32(t))
		}
		bits = binary.LittleEndian.AppendUint64(bits, a.digest)
	}
	return fmt.Sprintf("%016x", xxh3.Hash(data)), fmt.Sprintf("%016x", xxh3.Hash(append(data, bits...)))
}

// median returns the middle of rates, of an even number the mean of the two in the middle.
func median(rates []float64) float64 {
	s := slices.Sorted(slices.Values(rates))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// Table has the comparisons of several loads.
type Table []*Comparison

// Rows implements bench.Report.
func (t Table) Rows() (rows [][]string, legend string) {
	rows = [][]string{{"load", "tasks", "tokens", "off tok/s", "on tok/s", "ratio", "CPU ms/token off", "on", "steps off", "steps on",
		"accepted of drafted", "digest"}}
	for _, c := range t {
		rows = append(rows, []string{
			c.Load, fmt.Sprint(c.Tasks), fmt.Sprint(c.OutputTokens),
			fmt.Sprintf("%.1f", c.Off.TokensPerSecond), fmt.Sprintf("%.1f", c.On.TokensPerSecond), fmt.Sprintf("%.2f", c.Ratio),
			milliseconds(c.Off.ProcessorMS), milliseconds(c.On.ProcessorMS),
			fmt.Sprint(c.Off.Steps), fmt.Sprint(c.On.Steps), c.On.drafts(), c.Digest,
		})
	}
	return rows, "Decode tokens per second and the processors' time for a token, medians of runs in turns.\n" +
		"The digest covers the output tokens and the bits of their logits; it is the same with drafts off and on."
}

// milliseconds prints a time, if it is known.
func milliseconds(ms float64) string {
	if ms == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", ms)
}

// drafts returns the accepted and the drafted tokens, of each source and in all: "own 90/120, grammar 30/30".
func (w *Work) drafts() string {
	var parts []string
	for s := range scheduler.DraftSource(scheduler.DraftSources) {
		if d, ok := w.Sources[s.String()]; ok {
			parts = append(parts, fmt.Sprintf("%v %d/%d", s, d.Accepted, d.Drafted))
		}
	}
	if len(parts) == 0 {
		return "–"
	}
	return strings.Join(parts, ", ")
}
