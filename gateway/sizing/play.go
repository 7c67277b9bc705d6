package sizing

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/gateway/internal/dispatch"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
)

// play is the state of a run.
type play struct {
	cfg      Config
	d        *dispatch.Dispatcher
	sink     events.Sink
	sessions []session
	rng      *rand.Rand
	cpu      func() time.Duration
	scratch  []events.Block
	figures  Figures

	zeroing sync.Mutex // guards zero
	zero    []kv.Token
}

// Steps returns how often a [Play] calls progress.
func (c Config) Steps() int { return 4 }

// Play measures a gateway of this size. cpu returns the processor time of this process so far; nil: CPU
// figures are 0. progress, if not nil, is called after each of four parts: all prompts stored, choices
// one at a time, choices under load, and under load with churn. Errors are those of the
// configuration and the end of ctx.
func Play(ctx context.Context, cfg Config, cpu func() time.Duration, progress func()) (*Figures, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cpu == nil {
		cpu = func() time.Duration { return 0 }
	}
	if progress == nil {
		progress = func() {}
	}
	p, err := newPlay(cfg, cpu)
	if err != nil {
		return nil, err
	}
	parts := []func(context.Context) error{
		p.fill, p.oneAtATime,
		func(ctx context.Context) (err error) { p.figures.Steady, err = p.load(ctx, 0); return err },
		func(ctx context.Context) (err error) { p.figures.Churned, err = p.load(ctx, cfg.Churn); return err },
	}
	for _, part := range parts {
		if err := part(ctx); err != nil {
			return nil, err
		}
		progress()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	p.figures.SystemBytes = m.Sys
	return &p.figures, nil
}

// newPlay makes the dispatcher as coppice route does, and joins all workers.
func newPlay(cfg Config, cpu func() time.Duration) (*play, error) {
	rc := router.Config{BlockTokens: cfg.BlockTokens, MaxWorkers: cfg.Workers, MaxActive: max(1<<16, cfg.Sessions), Predict: true, Seed: cfg.Seed}
	d, err := dispatch.New(dispatch.Config{Router: rc.WithDefaults(), GuessTTL: 2 * time.Minute})
	if err != nil {
		return nil, err
	}
	p := &play{cfg: cfg, d: d, sink: d.Sink(), sessions: make([]session, cfg.Sessions), rng: rand.New(rand.NewPCG(cfg.Seed, 1)), cpu: cpu}
	for i := range p.sessions {
		p.sessions[i].tokens = cfg.Tokens
	}
	for i := range cfg.Workers {
		if err := join(d, rankOf(i)); err != nil {
			return nil, err
		}
	}
	p.figures.Workers, p.figures.Sessions = cfg.Workers, cfg.Sessions
	return p, nil
}

// rankOf returns worker i.
func rankOf(i int) kv.Rank { return kv.Rank{Worker: kv.WorkerID(i + 1)} }

// join adds a healthy worker whose events arrive.
func join(d *dispatch.Dispatcher, w kv.Rank) error {
	if err := d.Join(w, &card.Card{}, false); err != nil {
		return err
	}
	d.SetHealth(w, router.Healthy)
	return nil
}

// patience is how long a choice may wait. No worker is ever busy, so none does.
const patience = time.Second

// fill sends the first request of each session to a worker and stores its blocks there.
func (p *play) fill(ctx context.Context) error {
	f := &p.figures
	empty := heapBytes()
	var one prompt
	var choices []time.Duration
	var choosing, storing time.Duration // of processors
	for id := range p.sessions {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p.set(&one, id, p.cfg.Tokens)
		cpu, begun := p.cpu(), time.Now()
		d, err := p.d.Choose(ctx, &one.ask, patience)
		if err != nil {
			return err
		}
		choices = append(choices, time.Since(begun))
		chosen := p.cpu()
		if p.scratch, err = one.store(p.sink, d.Worker, 0, p.scratch); err != nil {
			return fmt.Errorf("sizing: session %d: %w", id, err)
		}
		choosing, storing = choosing+chosen-cpu, storing+p.cpu()-chosen
		p.d.Release(d.Reservation)
		f.Blocks += len(one.locals)
	}
	f.ColdP50, f.ColdP99 = percentile(choices, 50), percentile(choices, 99)
	f.ColdCPU = float64(choosing) / float64(len(choices)) / float64(time.Microsecond)
	f.StoreNs = float64(storing) / float64(f.Blocks)
	held, most := 0, 0
	for i := range p.cfg.Workers {
		n := p.d.Index().Held(rankOf(i))
		held, most = held+n, max(most, n)
	}
	one = prompt{}
	f.BlockBytes = float64(heapBytes()-empty) / float64(held)
	f.WorkerMB = f.BlockBytes * float64(held) / float64(p.cfg.Workers) / 1e6
	f.WorkerMaxOverMean = float64(most*p.cfg.Workers) / float64(held)
	return nil
}

// batch is the number of prompts prepared for choices one at a time.
const batch = 256

// oneAtATime measures the life of a request in the dispatcher: choice, first token, end. The prompts are
// next turns of sessions: all but the last TurnTokens are cached. Then it leaves requests open, to
// measure what an open one takes.
func (p *play) oneAtATime(ctx context.Context) error {
	f, n := &p.figures, min(batch, p.cfg.Sessions)
	prompts, open := make([]prompt, n), make([]router.Reservation, n)
	for i := range prompts {
		p.set(&prompts[i], i*(p.cfg.Sessions/n), p.cfg.Tokens+p.cfg.TurnTokens)
	}
	life := func(i int, end bool) error {
		d, err := p.d.Choose(ctx, &prompts[i].ask, patience)
		if err != nil {
			return err
		}
		p.d.Progress(d.Reservation, p.cfg.TurnTokens, 1)
		if open[i] = d.Reservation; end {
			p.d.Release(d.Reservation)
		}
		return nil
	}
	closed := heapBytes()
	for i := range prompts {
		if err := life(i, false); err != nil {
			return err
		}
	}
	f.OpenBytes = float64(heapBytes()-closed) / float64(n)
	for i := range prompts {
		p.d.Release(open[i])
	}
	const rounds = 8
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu := p.cpu()
	for range rounds {
		for i := range prompts {
			if err := life(i, true); err != nil {
				return err
			}
		}
	}
	f.ChoiceCPU = float64(p.cpu()-cpu) / float64(rounds*n) / float64(time.Microsecond)
	runtime.ReadMemStats(&after)
	f.ChoiceAllocs = float64(after.Mallocs-before.Mallocs) / float64(rounds*n)
	return nil
}

// heapBytes returns the bytes of the heap in use, after a collection.
func heapBytes() int64 {
	runtime.GC()
	runtime.GC() // the first one may leave sweeping and finalizers to the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
