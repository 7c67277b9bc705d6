package bench

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/kv"
)

// CalibrateConfig says which steps [MeasureSteps] measures. 0 means the default. Steps
// that exceed the backend's pool, batch size or positions are left out. Its tags state the
// defaults, the bounds, and flags of coppice calibrate.
type CalibrateConfig struct {
	NewTokens     int `default:"512" min:"1" help:"Tokens of the longest prompt in a step."`
	ContextTokens int `default:"2048" min:"1" help:"Tokens of the longest context."`
	Rounds        int `default:"5" min:"1" help:"Runs of each step; the median counts."`
	Rows          int `kong:"-" default:"16" min:"1"` // most rows that decode in one step; default 16
}

// KVTokens returns the pool size that the whole grid needs, in tokens: a context for
// each row, and room for the longest prompt after one of the contexts.
func (c CalibrateConfig) KVTokens() int {
	c = bounds.Fill(c)
	const page = 256 // largest page size; a context is rounded up to pages
	return c.Rows*(c.ContextTokens+page) + c.NewTokens
}

// MeasureSteps measures steps of many shapes on a backend without a scheduler: prompts of 1, 2, 4
// … tokens after several contexts, decodes of 1, 2, 4 … rows, and both together, with sampling and
// without. The time of a step is the time from Submit to the result.
//
// The samples come in a shuffled order, the same in every run: [sim.Fit] holds out every third
// sample, and the order spreads all shapes over the held-out samples. The backend must be idle;
// the contents of its pool are lost. progress, if not nil, is called after each step with the
// number of steps done and of all steps. MeasureSteps fails if cfg is invalid, if the backend
// fails or has room for fewer than [sim.MinFitSamples] steps, or if ctx ends.
func MeasureSteps(ctx context.Context, b engine.Backend, cfg CalibrateConfig, progress func(done, of int)) ([]sim.Sample, error) {
	cfg = bounds.Fill(cfg)
	if err := bounds.Check("bench", cfg); err != nil {
		return nil, err
	}
	c, err := newCalibration(b, cfg)
	if err != nil {
		return nil, err
	}
	if err := c.fill(ctx); err != nil {
		return nil, err
	}
	samples := c.grid()
	c.play.rng.Shuffle(len(samples), func(i, j int) { samples[i], samples[j] = samples[j], samples[i] })
	// Round by round: a disturbance of the machine then spoils one round of many
	// steps, which the median drops, rather than all rounds of one step.
	took := make([][]int64, len(samples))
	for round := range cfg.Rounds {
		for i, s := range samples {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			t, err := c.play.run(c.batch(s.Shapes))
			if err != nil {
				return nil, fmt.Errorf("bench: step %+v: %w", s.Shapes, err)
			}
			took[i] = append(took[i], max(1, t.Nanoseconds()))
			if progress != nil {
				progress(round*len(samples)+i+1, cfg.Rounds*len(samples))
			}
		}
	}
	for i := range samples {
		samples[i].Nanos = median(took[i])
	}
	return samples, nil
}

// calibration drives one backend. All rows compute pieces of one text. Each row has its own pages,
// which fill has filled with the KV of the text beforehand. So any piece can run at any time: it
// overwrites its KV with equal values. No two rows share a page, hence no cache line.
type calibration struct {
	play  *enginePlay
	cfg   CalibrateConfig
	text  []kv.Token
	first int // pages of row 0: the longest context and the longest prompt
	each  int // pages of every other row: a context and one token
}

// newCalibration reduces cfg to the limits of the backend and draws the text. It is an
// error if fewer than sim.MinFitSamples shapes are left.
func newCalibration(b engine.Backend, cfg CalibrateConfig) (*calibration, error) {
	info := b.Info()
	page := info.PageTokens
	cfg.Rows = min(cfg.Rows, info.MaxRows, info.MaxSlots)
	most := min(info.MaxPositions, info.NumPages*page)
	cfg.NewTokens = min(cfg.NewTokens, info.MaxTokens, max(1, most/2))
	cfg.ContextTokens = kv.FloorPages(min(cfg.ContextTokens, most-cfg.NewTokens), page) * page
	c := &calibration{
		play: &enginePlay{b: engine.Listed(b), info: info, rng: rand.New(rand.NewPCG(7, 7))}, cfg: cfg,
		first: kv.CeilPages(cfg.ContextTokens+cfg.NewTokens, page),
	}
	if cfg.Rows > 1 {
		c.each = min((info.NumPages-c.first)/(cfg.Rows-1), cfg.ContextTokens/page+1)
	}
	for range cfg.ContextTokens + cfg.NewTokens {
		c.text = append(c.text, kv.Token(c.play.rng.IntN(info.Vocab)))
	}
	if n := len(c.grid()); n < sim.MinFitSamples {
		return nil, fmt.Errorf("bench: the backend's %d pages of %d tokens, %d rows and %d tokens a batch and %d positions leave %d steps to measure, want %d at least",
			info.NumPages, page, info.MaxRows, info.MaxTokens, info.MaxPositions, n, sim.MinFitSamples)
	}
	return c, nil
}

// row returns row i of a batch: n new tokens after cached tokens that are in the cache already, on
// the pages of row i. sample says whether the row samples a token.
func (c *calibration) row(i, n, cached int, sample bool) engine.Row {
	r := engine.Row{Slot: engine.Slot(i), Start: int32(cached), Tokens: c.text[cached : cached+n], Sample: sample}
	from := 0
	if i > 0 {
		from = c.first + (i-1)*c.each
	}
	for p := range kv.CeilPages(cached+n, c.play.info.PageTokens) {
		r.Pages = append(r.Pages, kv.PageID(from+p))
	}
	return r
}

// fill computes the KV of the text on the pages of row 0 and copies it to the pages of
// the other rows.
func (c *calibration) fill(ctx context.Context) error {
	batch := &engine.Batch{}
	for i := range c.cfg.Rows {
		batch.Binds = append(batch.Binds, engine.SlotBind{Slot: engine.Slot(i)})
	}
	for at := 0; at < len(c.text); at += c.cfg.NewTokens {
		if err := ctx.Err(); err != nil {
			return err
		}
		batch.Rows = []engine.Row{c.row(0, min(c.cfg.NewTokens, len(c.text)-at), at, false)}
		if _, err := c.play.run(batch); err != nil {
			return fmt.Errorf("bench: filling the pool: %w", err)
		}
		batch.Binds = nil
	}
	page := c.play.info.PageTokens
	batch.Rows = []engine.Row{c.row(0, 1, 0, false)}
	for i := range max(0, c.cfg.Rows-1) {
		for p := range min(c.each, len(c.text)/page) {
			batch.Copies = append(batch.Copies, engine.PageCopy{Src: kv.PageID(p), Dst: kv.PageID(c.first + i*c.each + p), Tokens: int32(page)})
		}
	}
	_, err := c.play.run(batch)
	return err
}

// grid returns the shapes to measure, in a fixed order, with Nanos not yet set.
func (c *calibration) grid() []sim.Sample {
	var samples []sim.Sample
	add := func(shapes ...sim.RowShape) {
		for _, s := range shapes {
			decodes := s.New == 1 && s.Rows > 0
			if !decodes && s.Rows > 1 || s.Rows > 1 && s.Cached+1 > min(c.each, len(c.text)/c.play.info.PageTokens)*c.play.info.PageTokens {
				return
			}
		}
		samples = append(samples, sim.Sample{Shapes: shapes})
	}
	contexts := c.contexts()
	for n := 1; n <= c.cfg.NewTokens; n *= 2 {
		for i, cached := range contexts {
			add(sim.RowShape{Rows: 1, New: n, Cached: cached, Sample: true})
			if i == 0 {
				add(sim.RowShape{Rows: 1, New: n, Cached: cached})
			}
		}
	}
	for rows := 2; rows <= c.cfg.Rows; rows *= 2 {
		for i, cached := range contexts {
			add(sim.RowShape{Rows: rows, New: 1, Cached: cached, Sample: true})
			if i == 1 {
				add(sim.RowShape{Rows: rows, New: 1, Cached: cached})
			}
		}
	}
	// In a mixed step the prompt uses the pages of row 0, the decodes those of rows 1 up.
	for rows := 3; rows < c.cfg.Rows; rows *= 3 {
		for n := 32; n <= min(c.cfg.NewTokens, c.play.info.MaxTokens-rows); n *= 3 {
			for _, cached := range contexts {
				add(sim.RowShape{Rows: 1, New: n, Cached: cached}, sim.RowShape{Rows: rows, New: 1, Cached: cached, Sample: true})
			}
		}
	}
	return samples
}

// contexts returns the context lengths to measure: 0, and an eighth, a half and all of
// the longest, rounded down to whole pages.
func (c *calibration) contexts() []int {
	page := c.play.info.PageTokens
	var all []int
	for _, n := range []int{0, c.cfg.ContextTokens / 8, c.cfg.ContextTokens / 2, c.cfg.ContextTokens} {
		all = append(all, kv.FloorPages(n, page)*page)
	}
	return slices.Compact(all)
}

// batch returns a step of these shapes. Rows are numbered in order of shapes, which
// decides their pages.
func (c *calibration) batch(shapes []sim.RowShape) *engine.Batch {
	batch := &engine.Batch{}
	for _, s := range shapes {
		for range s.Rows {
			batch.Rows = append(batch.Rows, c.row(len(batch.Rows), s.New, s.Cached, s.Sample))
		}
	}
	return batch
}

// WriteStepsCSV writes a header and one line for each sample: the prompts (rows of
// more than one token) and decodes of the step, its measured time, the time that p
// predicts, and whether [sim.Fit] held the sample out.
func WriteStepsCSV(w io.Writer, samples []sim.Sample, p *sim.Profile) error {
	out := csv.NewWriter(w)
	out.Write([]string{"prefill_rows", "new_tokens", "ctx_prefill", "decode_rows", "ctx_decode", "samples", "nanos", "predicted_nanos", "held_out"})
	for i, s := range samples {
		var prefill, tokens, behind, decode, context, sampled int
		for _, r := range s.Shapes {
			tokens += r.Rows * r.New
			if r.Sample {
				sampled += r.Rows
			}
			if r.New == 1 {
				decode, context = decode+r.Rows, context+r.Rows*r.Cached
			} else {
				prefill, behind = prefill+r.Rows, behind+r.Rows*r.Cached
			}
		}
		var line []string
		for _, v := range []int{prefill, tokens, behind, decode, context, sampled, int(s.Nanos), int(s.Predict(p))} {
			line = append(line, strconv.Itoa(v))
		}
		out.Write(append(line, strconv.FormatBool(sim.HeldOutSample(i))))
	}
	out.Flush() // keeps the first error of Write
	return out.Error()
}
