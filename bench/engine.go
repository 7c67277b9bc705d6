package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/kv"
)

// EngineConfig sizes a [PlayEngine]. 0 means the default.
type EngineConfig struct {
	PromptTokens int `default:"512" min:"1"` // of the prefill; default 512
	OutputTokens int `default:"64" min:"1"`  // of each decode; default 64
	Rounds       int `default:"3" min:"1"`   // measurements of each figure, of which the median is kept; default 3
	// LinearParams is the number of weights in the matrix products that every token takes part in.
	// HeadParams is the number of weights of the output head, which only sampled tokens need.
	// WeightBytes is the size of all these weights as the backend reads them.
	LinearParams, HeadParams, WeightBytes int
	// CeilingGFlops and CeilingGBs are the most that the machine reaches, measured by
	// the caller in the same run. 0 means unknown.
	CeilingGFlops, CeilingGBs float64
	ISA                       string
	Threads                   int
}

// engineBatches are the batch sizes of the decode measurements.
var engineBatches = [...]int{1, 4, 16}

func (c EngineConfig) validate(info engine.Info) error {
	faults := bounds.Faults{Owner: "bench: "}
	faults.Add(bounds.Check("bench", c))
	const most = 16
	faults.If(c.PromptTokens > info.MaxTokens, "PromptTokens is %d, want at most the backend's %d a batch", c.PromptTokens, info.MaxTokens)
	faults.If(info.MaxRows < most || info.MaxSlots < most, "the backend takes %d rows and %d slots, want %d", info.MaxRows, info.MaxSlots, most)
	need := max(kv.CeilPages(c.PromptTokens, info.PageTokens), most*kv.CeilPages(enginePrompt+c.OutputTokens, info.PageTokens))
	faults.If(info.NumPages < need, "the backend has %d pages, want %d", info.NumPages, need)
	faults.If(max(c.PromptTokens, enginePrompt+c.OutputTokens) > info.MaxPositions, "%d and %d tokens, the model has %d positions",
		c.PromptTokens, enginePrompt+c.OutputTokens, info.MaxPositions)
	return faults.Err()
}

// enginePrompt is the number of prompt tokens before the first decoded token.
const enginePrompt = 16

// EngineSummary holds the rates of a backend and the limits of the machine. Rates
// are medians.
type EngineSummary struct {
	PrefillTokS   float64 `json:"prefill_tok_s"`
	DecodeTokS1   float64 `json:"decode_tok_s_b1"`
	DecodeTokS4   float64 `json:"decode_tok_s_b4"`
	DecodeTokS16  float64 `json:"decode_tok_s_b16"`
	BoundTokS4    float64 `json:"-"` // decode rate if only the products took time; see bound
	BoundTokS16   float64 `json:"-"`
	GemmGFlops    float64 `json:"gemm_gflops"`    // prefill: operations of the products with weights, over all its time
	CeilingGFlops float64 `json:"ceiling_gflops"` // the same kernel on data in the CPU cache
	StreamGBs     float64 `json:"stream_gbs"`     // decode at batch 1: bytes of weights, over all its time
	CeilingGBs    float64 `json:"ceiling_gbs"`    // reading memory
	Threads       int     `json:"threads"`
	ISA           string  `json:"isa"`
}

// PlayEngine measures a backend alone: the prefill of a prompt in one step, then
// decoding at batches of 1, 4 and 16. The backend must be idle; the contents of its
// pool are lost. progress, if not nil, is called after each measurement, [EngineConfig.Steps]
// times. It fails if cfg is invalid, if the backend fails, or once ctx is done.
func PlayEngine(ctx context.Context, b engine.Backend, cfg EngineConfig, progress func()) (*EngineSummary, error) {
	cfg, progress = bounds.Fill(cfg), orNothing(progress)
	p := &enginePlay{b: engine.Listed(b), info: b.Info(), cfg: cfg, rng: rand.New(rand.NewPCG(7, 7))}
	if err := cfg.validate(p.info); err != nil {
		return nil, err
	}
	s := &EngineSummary{CeilingGFlops: cfg.CeilingGFlops, CeilingGBs: cfg.CeilingGBs, Threads: cfg.Threads, ISA: cfg.ISA}
	if _, err := p.prefill(); err != nil { // warms up
		return nil, err
	}
	measure := func(run func() (float64, error)) (float64, error) {
		var rates []float64
		for range cfg.Rounds {
			if err := ctx.Err(); err != nil {
				return 0, err
			}
			r, err := run()
			if err != nil {
				return 0, err
			}
			rates = append(rates, r)
			progress()
		}
		return median(rates), nil
	}
	var err error
	if s.PrefillTokS, err = measure(p.prefill); err != nil {
		return nil, err
	}
	for i, rate := range []*float64{&s.DecodeTokS1, &s.DecodeTokS4, &s.DecodeTokS16} {
		if *rate, err = measure(func() (float64, error) { return p.decode(engineBatches[i]) }); err != nil {
			return nil, err
		}
	}
	flops := 2 * (float64(cfg.LinearParams) + float64(cfg.HeadParams)/float64(cfg.PromptTokens))
	s.GemmGFlops = s.PrefillTokS * flops / 1e9
	s.StreamGBs = s.DecodeTokS1 * float64(cfg.WeightBytes) / 1e9
	s.BoundTokS4, s.BoundTokS16 = cfg.bound(4), cfg.bound(16)
	return s, nil
}

// bound returns an upper bound (roofline) on the rate of decoding this many rows, in tokens per
// second of all rows together. A step reads all weights once, and multiplies every row with them.
// At the machine's ceilings it takes at least the time of the longer of the two: at batch 1
// reading dominates, at large batches multiplying does. The result is 0 if a ceiling is unknown.
func (c EngineConfig) bound(rows int) float64 {
	if c.CeilingGBs == 0 || c.CeilingGFlops == 0 {
		return 0
	}
	read := float64(c.WeightBytes) / c.CeilingGBs
	multiply := 2 * float64(rows*(c.LinearParams+c.HeadParams)) / c.CeilingGFlops
	return float64(rows) / max(read, multiply) * 1e9
}

// Steps returns how often a [PlayEngine] of this configuration calls progress.
func (c EngineConfig) Steps() int { return (1 + len(engineBatches)) * bounds.Fill(c).Rounds }

// enginePlay drives one backend.
type enginePlay struct {
	b    engine.Backend
	info engine.Info
	cfg  EngineConfig
	rng  *rand.Rand
	seq  uint64
}

// run submits a batch and returns the time from Submit to the result. It sets the
// batch's Seq. Errors of single rows are errors.
func (p *enginePlay) run(batch *engine.Batch) (time.Duration, error) {
	p.seq++
	batch.Seq = p.seq
	start := time.Now()
	t, err := p.b.Submit(batch)
	if err != nil {
		return 0, err
	}
	<-t.Done()
	res, err := t.Result()
	took := time.Since(start)
	if err != nil {
		return 0, err
	}
	for _, o := range res.Out {
		err = errors.Join(err, o.Err)
	}
	return took, err
}

// row returns a prompt of n random tokens in this slot. Its pages have the consecutive ids from
// firstPage.
func (p *enginePlay) row(slot, n, firstPage int) engine.Row {
	r := engine.Row{Slot: engine.Slot(slot), Sample: true}
	for range n {
		r.Tokens = append(r.Tokens, kv.Token(p.rng.IntN(p.info.Vocab)))
	}
	for i := range kv.CeilPages(n, p.info.PageTokens) {
		r.Pages = append(r.Pages, kv.PageID(firstPage+i))
	}
	return r
}

// prefill measures one prompt in one step, in tokens per second.
func (p *enginePlay) prefill() (float64, error) {
	n := p.cfg.PromptTokens
	took, err := p.run(&engine.Batch{Binds: []engine.SlotBind{{}}, Rows: []engine.Row{p.row(0, n, 0)}})
	return float64(n) / took.Seconds(), err
}

// decode measures OutputTokens steps of this many rows, in tokens per second of all rows
// together. The prefill before them is not counted.
func (p *enginePlay) decode(rows int) (float64, error) {
	each := kv.CeilPages(enginePrompt+p.cfg.OutputTokens, p.info.PageTokens)
	batch := &engine.Batch{}
	for i := range rows {
		batch.Binds = append(batch.Binds, engine.SlotBind{Slot: engine.Slot(i)})
		batch.Rows = append(batch.Rows, p.row(i, enginePrompt, i*each))
	}
	if _, err := p.run(batch); err != nil {
		return 0, err
	}
	batch.Binds = nil
	var took time.Duration
	for n := range p.cfg.OutputTokens {
		for i := range batch.Rows {
			r := &batch.Rows[i]
			r.Tokens, r.Deferred, r.Start, r.SampleIndex = nil, true, int32(enginePrompt+n), int32(n+1)
			for len(r.Pages) < kv.CeilPages(enginePrompt+n+1, p.info.PageTokens) {
				r.Pages = append(r.Pages, kv.PageID(i*each+len(r.Pages)))
			}
		}
		t, err := p.run(batch)
		if err != nil {
			return 0, err
		}
		took += t
	}
	return float64(rows*p.cfg.OutputTokens) / took.Seconds(), nil
}

// Rows returns the figures and the limits of the machine.
func (s *EngineSummary) Rows() (rows [][]string, legend string) {
	share := func(got, of float64) string {
		if of == 0 {
			return "–"
		}
		return fmt.Sprintf("%.0f %%", 100*got/of)
	}
	rows = [][]string{
		{"", "tokens/s", "", "of the machine's"},
		{"prefill", fmt.Sprintf("%.0f", s.PrefillTokS), fmt.Sprintf("%.1f GFLOP/s", s.GemmGFlops), fmt.Sprintf("%.1f: %s", s.CeilingGFlops, share(s.GemmGFlops, s.CeilingGFlops))},
		{"decode, batch 1", fmt.Sprintf("%.1f", s.DecodeTokS1), fmt.Sprintf("%.1f GB/s", s.StreamGBs), fmt.Sprintf("%.1f: %s", s.CeilingGBs, share(s.StreamGBs, s.CeilingGBs))},
		{"batch 4", fmt.Sprintf("%.1f", s.DecodeTokS4), "", fmt.Sprintf("bound %.0f: %s", s.BoundTokS4, share(s.DecodeTokS4, s.BoundTokS4))},
		{"batch 16", fmt.Sprintf("%.1f", s.DecodeTokS16), "", fmt.Sprintf("bound %.0f: %s", s.BoundTokS16, share(s.DecodeTokS16, s.BoundTokS16))},
	}
	return rows, fmt.Sprintf("%d threads, %s. The machine's: the same kernel on data in the cache, and reading memory, measured in this run; a bound has the products with weights alone.", s.Threads, s.ISA)
}
