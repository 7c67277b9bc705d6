package cpu

import (
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/internal/sampling"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/kv"
)

// phase is a part of a step whose units may run on all workers at once.
type phase uint8

const (
	phaseEmbed     phase = iota // by block of rows: token ids to x, then the first norm
	phaseProduct                // by panel and span of rows: out = acts · mat
	phaseGatePairs              // by panel and span of rows: gate and up, then silu(gate)·up to acts
	phaseWrite                  // by block: bias, norm and rotate q and k, write k and v to pages
	phaseAttend                 // by run of tokens and kv head
	phaseAttnActs               // by block: attention output to acts
	phaseFFNNorm                // by block: x += product, norm to acts
	phaseGate                   // by block: silu(gate)·up to acts
	phaseNextNorm               // by block: x += product, norm of the next layer, or check
	phaseHeadNorm               // by block of logit rows: last norm to acts
	phaseHidden                 // by block of hidden states: last norm to wide
)

// step computes one batch at a time. newStep allocates all its memory; a step allocates only
// its Result.
type step struct {
	config *model.Config
	eps    float32
	scale  float32
	w      *weights
	ops    *kernels
	rope   *rope
	arena  *arena
	crew   *workers
	sampler
	tables rowTables

	batch *engine.Batch
	batchTokens

	// Activations, one row per token.
	x     []float32 // residual stream, [tokens][hidden]
	acts  *acts     // inputs of the next product
	gated *acts     // inputs of the product after a paired one
	qkv   []float32 // q, k, v of a token, [tokens][stride]
	attn  []float32 // [tokens][heads*dim]; nil if attention writes to the rows of acts
	wide  []float32 // outputs of the other products

	// Operands of the phase in progress.
	phase phase
	layer int
	mat   *matrix
	out   []float32
	rows  int // rows of acts in use

	scratch []scratch // by worker

	// Logits in progress.
	want     []int32   // tokens, as indices into tokens, whose logits are needed
	headLo   int       // first entry of want in this part
	logits   []float32 // [rows of a part][stride of the head], see headRows
	outOfRow []int32   // index into the result's Out, or -1
}

// sampler holds what the head keeps from one batch to the next.
type sampler struct {
	draw  *sampling.Sampler
	kept  []slotEnd // by slot, for the next chunk of a prompt
	masks engine.Masks
}

// rowTables holds the page tables of all slots and, by row, those of the batch.
type rowTables struct {
	engine.Tables
	row [][]kv.PageID
}

// batchTokens holds the tokens of all rows one after another, with one entry per token unless
// noted.
type batchTokens struct {
	tokens []kv.Token
	rowOf  []int32
	pos    []int32
	bad    []bool     // x is not finite after the last layer
	noLast []bool     // by row: deferred, but the slot's last sample failed
	runs   []tokenRun // units of attention
}

// tokenRun is the interval [first, end) of consecutive tokens of one row, as indices into
// step.tokens.
type tokenRun struct{ first, end int }

// scratch holds one worker's buffers and counters.
type scratch struct {
	scores  []float32
	rows    []float32 // one part of a page, widened; nil if KV is F32
	columns []float64 // one head's sums, in the portable path
	sums    sums
	queries []float32 // of a run of tokens, [token][query head][head dim]
	heads   []float32 // outputs for queries, the same shape
	ones    []float32 // [head dim] of 1
	inverse []float32 // by token and query head of a group: 1/sum of its weights
	norm    []float32 // one activation row of the widest kind
	tile    []float32 // a span of rows by a panel
	counts  engine.StepStats
	_       [64]byte // keeps workers' counters on different cache lines
}

// newStep packs the weights, allocates the buffers for MaxTokens tokens and MaxRows rows of logits,
// and starts the workers. positions bounds the length of a sequence.
func newStep(m *model.Model, cfg Config, a *arena, positions int) (*step, error) {
	c, ops := m.Config(), kernelsOf(cfg.ISA)
	w, err := packModel(m, ops, cfg.widen)
	if err != nil {
		return nil, err
	}
	s := &step{
		config: c, eps: float32(c.NormEps), scale: float32(1 / math.Sqrt(float64(c.HeadDim))),
		w: w, ops: ops, rope: newRope(c, positions), arena: a,
		sampler: sampler{sampling.New(cfg.MaxSlots, c.Vocab), make([]slotEnd, cfg.MaxSlots), engine.NewMasks(cfg.maxMasks())},
		tables:  rowTables{engine.NewTables(cfg.MaxSlots), make([][]kv.PageID, cfg.MaxRows)},
	}
	n, attn, widest := cfg.MaxTokens, c.Heads*c.HeadDim, max(c.Hidden, c.Heads*c.HeadDim, c.FFN)
	s.tokens, s.rowOf, s.pos = make([]kv.Token, n), make([]int32, n), make([]int32, n)
	s.bad, s.noLast = make([]bool, n), make([]bool, cfg.MaxRows)
	s.outOfRow, s.want = make([]int32, cfg.MaxRows), make([]int32, 0, n)
	s.x = make([]float32, n*c.Hidden)
	first := &s.w.layers[0]
	s.qkv = make([]float32, n*first.qkv.stride())
	wide, paired := max(first.down.stride(), first.o.stride()), false
	for i := range s.w.layers {
		if m := s.w.layers[i].gateUp; m.paired {
			paired = true
		} else {
			wide = max(wide, m.stride())
		}
	}
	s.wide = make([]float32, n*wide)
	s.logits = make([]float32, cfg.headRows()*s.w.head.stride())
	some, all := w.quantized()
	s.acts = newActs(ops, max(n, cfg.headRows()), widest, some, all)
	if some || !ops.vector() {
		s.attn = make([]float32, n*attn)
	}
	if paired {
		s.gated = newActs(ops, max(n, cfg.headRows()), widest, some, all)
	}
	s.scratch = make([]scratch, cfg.Threads)
	for i := range s.scratch {
		group := c.Heads / c.KVHeads
		s.scratch[i].scores = make([]float32, max(runScores, group*paddedScores(positions)))
		s.scratch[i].inverse = make([]float32, runTokens*group)
		s.scratch[i].queries = make([]float32, runTokens*group*c.HeadDim)
		s.scratch[i].heads = make([]float32, runTokens*group*c.HeadDim)
		s.scratch[i].ones = slices.Repeat([]float32{1}, c.HeadDim)
		s.scratch[i].columns = make([]float64, c.HeadDim)
		if a.kind != kv.F32 {
			s.scratch[i].rows = make([]float32, cfg.PageTokens*c.HeadDim)
		}
		s.scratch[i].norm = make([]float32, widest)
		s.scratch[i].tile = make([]float32, spanRows*vectorCols)
	}
	s.crew = newWorkers(cfg.Threads, spins, s.unit)
	return s, nil
}

// run computes the batch. It returns false if abort is set before the end; the pages of the
// batch's rows are then partly written.
func (s *step) run(b *engine.Batch, abort *atomic.Bool) (*engine.Result, bool) {
	s.load(b)
	stats := engine.StepStats{CopiedPages: s.copyPages(b)}
	if len(s.tokens) > 0 {
		if !s.forward(abort) {
			return nil, false
		}
	}
	res := &engine.Result{Seq: b.Seq, Out: s.outcome()}
	for i := range s.scratch {
		counts := &s.scratch[i].counts
		stats.GivenTokens += counts.GivenTokens
		stats.DeferredTokens += counts.DeferredTokens
		stats.Drafted += counts.Drafted
		stats.KVTokensRead += counts.KVTokensRead
	}
	s.hidden(res)
	if !s.sample(res, &stats, abort) {
		return nil, false
	}
	res.Stats = stats
	return res, true
}

// load applies the batch's binds, tables and masks and fills batchTokens.
func (s *step) load(b *engine.Batch) {
	s.batch = b
	for i := range b.Binds {
		s.draw.Bind(&b.Binds[i])
		s.kept[b.Binds[i].Slot].forget()
	}
	s.tables.Apply(b)
	s.masks.Apply(b)
	s.tokens, s.rowOf, s.pos, s.runs = s.tokens[:0], s.rowOf[:0], s.pos[:0], s.runs[:0]
	for i := range b.Rows {
		r := &b.Rows[i]
		s.addRuns(len(s.tokens), len(s.tokens)+r.Len())
		s.noLast[i] = false
		s.tables.row[i] = s.tables.Of(r.Slot)
		if r.Deferred {
			t, ok := s.draw.Last(r.Slot)
			if !ok {
				// The slot's last sample failed after this batch was submitted. Compute
				// any token; outcome fails the row.
				t, s.noLast[i] = 0, true
			}
			s.tokens = append(s.tokens, t)
		}
		s.tokens = append(append(s.tokens, r.Tokens...), r.Drafts...)
		for j := range r.Len() {
			s.rowOf, s.pos = append(s.rowOf, int32(i)), append(s.pos, r.Start+int32(j))
		}
	}
	for i := range s.scratch {
		s.scratch[i].counts = engine.StepStats{}
	}
}

// addRuns cuts the tokens [lo, hi) of a row into runs of at most runTokens, of even length: a run of one
// token reads as much KV as a run of eight.
func (s *step) addRuns(lo, hi int) {
	for lo < hi {
		end := lo + even(hi-lo, runTokens)
		s.runs = append(s.runs, tokenRun{lo, end})
		lo = end
	}
}

// copyPages makes the copies of the batch, before any row writes to a page, and returns their number.
func (s *step) copyPages(b *engine.Batch) int {
	for _, c := range b.Copies {
		s.arena.copyPage(c.Dst, c.Src, int(c.Tokens))
	}
	return len(b.Copies)
}

// outcome makes the Out entries, for rows that sample, ask for a digest, log-probabilities or a hidden
// state, or failed. A row fails if the residual of one of its own tokens is not finite, or if it is
// deferred and the sample that it continues failed. A draft fails its row in finish, if at all.
func (s *step) outcome() []engine.RowOut {
	failed := s.noLast[:len(s.batch.Rows)]
	count := 0
	for t, bad := range s.bad[:len(s.tokens)] {
		if bad && s.sampleAt(t) <= 0 {
			failed[s.rowOf[t]] = true
		}
	}
	for i := range s.batch.Rows {
		s.outOfRow[i] = -1
		if r := &s.batch.Rows[i]; r.Sample || r.Digest || r.PromptLogprobs || r.Hidden != engine.HiddenNone || failed[i] {
			s.outOfRow[i] = int32(count)
			count++
		}
	}
	if count == 0 {
		return nil
	}
	out := make([]engine.RowOut, count)
	for i := range s.batch.Rows {
		if s.outOfRow[i] < 0 {
			continue
		}
		o := &out[s.outOfRow[i]]
		o.Row = i
		if failed[i] {
			o.Err = fmt.Errorf("%w: row %d", engine.ErrLogits, i)
			s.draw.Fail(s.batch.Rows[i].Slot)
			s.kept[s.batch.Rows[i].Slot].forget()
		}
	}
	return out
}

// close ends the workers and frees the weights.
func (s *step) close() error {
	s.crew.close()
	return s.w.close()
}
