package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// schedPlay is a scheduler with a backend that answers at once.
type schedPlay struct {
	cfg      SchedConfig
	progress func()
	s        *scheduler.Scheduler
	gen      *generator
	groups   [][]kv.Token
	prompt   []kv.Token // scratch
	nextID   scheduler.RequestID

	inflight []*scheduler.Plan
	result   engine.Result
	out      []scheduler.Output

	// Measurements since reset.
	ended, rows, tokens int
	next, decode        []time.Duration // of all steps; of those that only decode
	complete, add, plan stopwatch
	onAllocs            bool   // count allocations instead of timing
	allocs              uint64 // heap objects made by Next in quiet steps
	quiet               int    // steps without admissions
	before, after       runtime.MemStats
}

// newSchedPlay makes a scheduler with the lease of the whole pool, and adds the initial
// Rows running and Queue waiting requests.
func newSchedPlay(cfg SchedConfig) (*schedPlay, error) {
	s, err := NewScheduler(cfg.scheduler(), cfg.info())
	if err != nil {
		return nil, err
	}
	p := &schedPlay{cfg: cfg, s: s, gen: &generator{rng: rand.New(rand.NewPCG(cfg.Seed, 0x7363686564))}, progress: func() {}}
	for range schedGroups {
		p.groups = append(p.groups, p.gen.extend(nil, cfg.PromptTokens/2))
	}
	for i := range cfg.Rows + cfg.Queue {
		output := cfg.OutputTokens
		if i < cfg.Rows { // spreads the endings evenly over the steps
			output = 1 + i*cfg.OutputTokens/cfg.Rows
		}
		if err := p.arrive(output); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// arrive adds a request: the beginning of its group, random tokens after it, and an
// output of this many tokens.
func (p *schedPlay) arrive(output int) error {
	group := p.groups[int(p.nextID)%schedGroups]
	p.prompt = append(p.prompt[:0], group...)
	for len(p.prompt) < p.cfg.PromptTokens {
		p.prompt = append(p.prompt, kv.Token(p.gen.rng.Uint32N(genVocabulary)))
	}
	p.nextID++
	p.add.start()
	err := p.s.Add(0, scheduler.Request{ID: p.nextID, Prompt: p.prompt, MaxTokens: output})
	p.add.stop()
	return err
}

// play runs turns until this many more requests have ended, or ctx ends.
func (p *schedPlay) play(ctx context.Context, requests int) error {
	until := p.ended + requests
	for n := 0; p.ended < until; n++ {
		if n%64 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := p.turn(); err != nil {
			return err
		}
	}
	return nil
}

// turn plans until cfg.Inflight plans are in flight, then completes the oldest. A
// scheduler that plans nothing with nothing in flight is an error.
func (p *schedPlay) turn() error {
	for len(p.inflight) < p.cfg.Inflight {
		plan := p.step()
		if plan == nil {
			break
		}
		p.inflight = append(p.inflight, plan)
	}
	if len(p.inflight) == 0 {
		return fmt.Errorf("bench: the scheduler plans nothing with %d requests open, %d of them ended before", p.s.Open(), p.ended)
	}
	first := p.inflight[0]
	p.inflight = slices.Delete(p.inflight, 0, 1)
	return p.answer(first)
}

// step calls Next once, times the call and returns the plan; nil if there is nothing to plan.
func (p *schedPlay) step() *scheduler.Plan {
	if p.onAllocs {
		return p.countedStep()
	}
	sum := p.plan.sum
	p.plan.start()
	plan := p.s.Next(0)
	p.plan.stop()
	if plan != nil {
		took := p.plan.sum - sum
		p.next = append(p.next, took)
		if plan.Tokens() == len(plan.Batch.Rows) && len(plan.Batch.Binds) == 0 {
			p.decode = append(p.decode, took)
		}
		p.tokens += plan.Tokens()
		p.rows += len(plan.Batch.Rows)
	}
	return plan
}

// countedStep calls Next once and counts its allocations if it admits no request.
func (p *schedPlay) countedStep() *scheduler.Plan {
	runtime.ReadMemStats(&p.before)
	plan := p.s.Next(0)
	runtime.ReadMemStats(&p.after)
	if plan != nil && len(plan.Batch.Binds) == 0 {
		p.allocs += p.after.Mallocs - p.before.Mallocs
		p.quiet++
	}
	return plan
}

// answer completes a plan with one token for each sampling row, and adds a new request
// for each that ends. Any ending but Length is an error.
func (p *schedPlay) answer(plan *scheduler.Plan) error {
	p.result.Seq, p.result.Out = plan.Batch.Seq, p.result.Out[:0]
	for i := range plan.Batch.Rows {
		if plan.Batch.Rows[i].Sample {
			p.result.Out = append(p.result.Out, engine.RowOut{Row: i, Token: 7})
		}
	}
	p.complete.start()
	p.out = p.s.Complete(0, plan, &p.result, p.out[:0])
	p.complete.stop()
	for i := range p.out {
		switch e := &p.out[i].Ending; e.Reason {
		case scheduler.NotEnded:
		case scheduler.Length:
			p.ended++
			p.progress()
			if err := p.arrive(p.cfg.OutputTokens); err != nil {
				return err
			}
		default:
			return fmt.Errorf("bench: request %d ended with %v, %v", p.out[i].Request, e.Reason, e.Err)
		}
	}
	return nil
}

// reset discards the measurements of the warm-up.
func (p *schedPlay) reset() {
	p.ended, p.rows, p.tokens, p.next, p.decode = 0, 0, 0, p.next[:0], p.decode[:0]
	p.complete, p.add, p.plan = stopwatch{}, stopwatch{}, stopwatch{}
	runtime.GC()
}

// summarise computes the figures; clock is from calibrate.
func (p *schedPlay) summarise(clock float64) *SchedSummary {
	s := &SchedSummary{Steps: len(p.next), Requests: p.ended, Tokens: p.tokens}
	complete, add, plan := p.complete.total(clock), p.add.total(clock), p.plan.total(clock)
	s.NextP50, s.NextP99 = nanosAt(p.next, 50, clock), nanosAt(p.next, 99, clock)
	s.DecodeNextP50 = nanosAt(p.decode, 50, clock)
	s.CompletePerRow = float64(complete) / float64(max(p.rows, 1))
	s.Add = float64(add) / float64(max(p.add.laps, 1))
	if all := (complete + add + plan).Seconds(); all > 0 {
		s.RequestsPerS, s.TokensPerS = float64(p.ended)/all, float64(p.tokens)/all
	}
	return s
}

// nanosAt returns the p-th percentile of d in ns, without the cost of the clock.
func nanosAt(d []time.Duration, p int, clock float64) float64 {
	return max(Percentile(d, p)*float64(time.Millisecond)-clock, 0)
}

// allocations returns the mean number of heap objects that Next makes in a step without
// admissions; 0 if every step admits. It runs a separate pass, because ReadMemStats stops the
// world and would distort the times.
func (p *schedPlay) allocations(ctx context.Context) (float64, error) {
	const enough, most = 256, 4096
	p.onAllocs, p.progress = true, func() {}
	for n := 0; n < most && p.quiet < enough; n++ {
		if n%64 == 0 && ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		if err := p.turn(); err != nil {
			return 0, err
		}
	}
	if p.quiet == 0 {
		return 0, nil // every step admits
	}
	return float64(p.allocs) / float64(p.quiet), nil
}
