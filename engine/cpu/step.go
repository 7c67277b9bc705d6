package cpu

import (
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/internal/engine/sampling"
	"github.com/coppice-llm/coppice/kv"
)

// phase is a part of a step whose units may run on all workers at once.
type phase uint8

const (
	phaseEmbed     phase = iota // by block of rows: token ids to x, then the first norm
	phaseProduct                // by panel and span of rows: out = acts · mat
	phaseGatePairs              // the same of gate and up, and silu(gate)·up of that to acts
	phaseWrite                  // by block: bias, norm and rotate q and k, write k and v to pages
	phaseAttend                 // by run of tokens and kv head
	phaseAttnActs               // by block: attention output to acts
	phaseFFNNorm                // by block: x += product, norm to acts
	phaseGate                   // by block: silu(gate)·up to acts
	phaseNextNorm               // by block: x += product, norm of the next layer, or check
	phaseHeadNorm               // by block of logit rows: last norm to acts
)

// step runs one batch at a time. All its memory is made at the start.
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

	// What the phase in progress works on.
	phase phase
	layer int
	mat   *matrix
	out   []float32
	rows  int // of acts

	scratch []scratch // by worker

	// The rows of logits in progress: tokens (indices into tokens) of the head.
	want     []int32
	headLo   int
	logits   []float32 // [MaxRows][stride of the head]
	outOfRow []int32   // index into the result's Out, or -1
}

// sampler is what the head knows of earlier batches.
type sampler struct {
	draw  *sampling.Sampler
	kept  []lastLogits // by slot, for prompt log-probabilities across chunks
	masks engine.Masks
}

// rowTables are the slots' page tables, and those of the batch's rows.
type rowTables struct {
	engine.Tables
	row [][]kv.PageID
}

// batchTokens are the tokens of all rows, one entry each.
type batchTokens struct {
	tokens []kv.Token
	rowOf  []int32
	pos    []int32
	bad    []bool     // x is not finite after the last layer
	noLast []bool     // by row: deferred, but the slot's last sample failed
	runs   []tokenRun // what attention does at a time
}

// tokenRun is tokens of one row that follow each other: indices into step.tokens.
type tokenRun struct{ first, end int }

// scratch is what a worker needs for itself, and what it counts.
type scratch struct {
	scores  []float32
	rows    []float32 // those of a page, widened; nil if they are F32
	columns []float64 // of a head, in the portable path
	sums    sums
	queries []float32 // of a run of tokens, [token][query head][head dim]
	heads   []float32 // what these heads give
	ones    []float32 // as many as a head has
	inverse []float32 // by token and query head of a group: 1/sum of its weights
	norm    []float32 // one activation row, as wide as the widest
	tile    []float32 // a span of rows by a panel
	kvRead  int64
	given   int
	late    int // deferred
	_       [64]byte
}

func newStep(m *model.Model, cfg Config, a *arena, positions int) (*step, error) {
	c, ops := m.Config(), kernelsOf(cfg.ISA)
	w, err := packModel(m, ops, cfg.widen)
	if err != nil {
		return nil, err
	}
	s := &step{
		config: c, eps: float32(c.NormEps), scale: float32(1 / math.Sqrt(float64(c.HeadDim))),
		w: w, ops: ops, rope: newRope(c, positions), arena: a,
		sampler: sampler{sampling.New(cfg.MaxSlots, c.Vocab), make([]lastLogits, cfg.MaxSlots), engine.NewMasks(cfg.maxMasks())},
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
	s.logits = make([]float32, cfg.MaxRows*s.w.head.stride())
	some, all := w.quantized()
	s.acts = newActs(ops, max(n, cfg.MaxRows), widest, some, all)
	if some || !ops.vector() {
		s.attn = make([]float32, n*attn)
	}
	if paired {
		s.gated = newActs(ops, max(n, cfg.MaxRows), widest, some, all)
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

// run computes the batch. It gives false if abort was set, with KV half written.
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
		w := &s.scratch[i]
		stats.GivenTokens += w.given
		stats.DeferredTokens += w.late
		stats.KVTokensRead += w.kvRead
	}
	if !s.sample(res, &stats, abort) {
		return nil, false
	}
	res.Stats = stats
	return res, true
}

// load binds the slots and lays the rows' tokens out one after another.
func (s *step) load(b *engine.Batch) {
	s.batch = b
	for i := range b.Binds {
		s.draw.Bind(&b.Binds[i])
		s.kept[b.Binds[i].Slot].end = 0
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
				// The slot's last sample failed while this batch was in flight: run
				// any token, the row fails below.
				t, s.noLast[i] = 0, true
			}
			s.tokens, s.rowOf, s.pos = append(s.tokens, t), append(s.rowOf, int32(i)), append(s.pos, r.Start)
			continue
		}
		for j, t := range r.Tokens {
			s.tokens, s.rowOf, s.pos = append(s.tokens, t), append(s.rowOf, int32(i)), append(s.pos, r.Start+int32(j))
		}
	}
	for i := range s.scratch {
		w := &s.scratch[i]
		w.kvRead, w.given, w.late = 0, 0, 0
	}
}

// addRuns cuts the tokens [lo, hi) of a row into runs.
func (s *step) addRuns(lo, hi int) {
	for ; lo < hi; lo += runTokens {
		s.runs = append(s.runs, tokenRun{lo, min(lo+runTokens, hi)})
	}
}

func (s *step) copyPages(b *engine.Batch) int {
	for _, c := range b.Copies {
		s.arena.copyPage(c.Dst, c.Src, int(c.Tokens))
	}
	return len(b.Copies)
}

// outcome makes the Out entries of the rows that have one: those that sample or
// ask for a digest or log-probabilities, and those that failed.
func (s *step) outcome() []engine.RowOut {
	failed := s.noLast[:len(s.batch.Rows)]
	count := 0
	for t, bad := range s.bad[:len(s.tokens)] {
		if bad {
			failed[s.rowOf[t]] = true
		}
	}
	for i := range s.batch.Rows {
		s.outOfRow[i] = -1
		if r := &s.batch.Rows[i]; r.Sample || r.Digest || r.PromptLogprobs || failed[i] {
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
			s.kept[s.batch.Rows[i].Slot].end = 0
		}
	}
	return out
}

// close ends the workers and gives the weights' memory back.
func (s *step) close() error {
	s.crew.close()
	return s.w.close()
}
