package sizing

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
)

// load is one phase under load: callers choose workers at a rate, one goroutine applies the workers'
// events and ends requests, and one lets workers leave and join.
type load struct {
	*play
	begun  time.Time
	next   atomic.Int64 // arrivals taken by a caller
	sum    sum
	failed atomic.Pointer[error]
	chosen chan turn // from callers to the worker of the events

	mu   sync.Mutex // guards sessions, free and sums
	free []*turnPrompt
}

// turn is a request that was sent to a worker. Its prompt is given back as soon as the worker has computed
// it.
type turn struct {
	*turnPrompt
	decision router.Decision
	open
}

// open holds the part of a turn that is needed until the request ends.
type open struct {
	reservation router.Reservation
	session     int
	ends        time.Time
}

// backlog is the number of requests that workers may have yet to compute. Beyond it the callers wait, and
// the rate falls.
const backlog = 256

// turnPrompt is a prompt and the session that it belongs to.
type turnPrompt struct {
	prompt
	id int
}

// sum adds up a phase.
type sum struct {
	took          []time.Duration
	blocks, found int
	byWorker      map[kv.Rank]int
	leaves        []time.Duration
}

// callers is the number of goroutines that choose. More of them than processors would measure
// the operating system.
const callers = 2

// load plays the load for cfg.Duration. churn is the number of workers per second that leave and join again.
func (p *play) load(ctx context.Context, churn float64) (Load, error) {
	l := &load{play: p, begun: time.Now(), chosen: make(chan turn, backlog), sum: sum{byWorker: map[kv.Rank]int{}}}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Duration+time.Minute)
	defer cancel()
	var choosing, ending, churning sync.WaitGroup
	for i := range callers {
		choosing.Go(func() { l.fail(l.choose(ctx, uint64(i))) })
	}
	done := make(chan struct{})
	churning.Go(func() { l.fail(l.churn(churn, done)) })
	ending.Go(l.end)
	choosing.Wait()
	took := time.Since(l.begun)
	close(done)
	churning.Wait()
	close(l.chosen)
	ending.Wait()
	if err := l.failed.Load(); err != nil {
		return Load{}, *err
	}
	return l.figures(took), nil
}

// fail keeps the first error that is not nil.
func (l *load) fail(err error) {
	if err != nil {
		l.failed.CompareAndSwap(nil, &err)
	}
}

// choose takes arrivals until the phase ends. A prompt is prepared before its arrival, so that only the
// choice is timed.
func (l *load) choose(ctx context.Context, number uint64) error {
	rng := rand.New(rand.NewPCG(l.cfg.Seed, 2+number))
	for l.failed.Load() == nil {
		due := time.Duration(float64(l.next.Add(1)-1) / l.cfg.Rate * float64(time.Second))
		if due >= l.cfg.Duration {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		t := l.prepare(rng)
		time.Sleep(time.Until(l.begun.Add(due)))
		begun := time.Now()
		d, err := l.d.Choose(ctx, &t.ask, patience)
		took := time.Since(begun)
		if err != nil {
			return err
		}
		l.mu.Lock()
		l.sum.took = append(l.sum.took, took)
		l.sum.blocks += len(t.locals)
		l.sum.found += d.Overlap.Blocks()
		l.sum.byWorker[d.Worker]++
		l.mu.Unlock()
		l.chosen <- turn{t, d, open{d.Reservation, t.id, begun.Add(l.cfg.Hold)}}
	}
	return nil
}

// prepare returns the next turn of a random session without an open request.
func (l *load) prepare(rng *rand.Rand) *turnPrompt {
	l.mu.Lock()
	t := &turnPrompt{}
	if n := len(l.free); n > 0 {
		t, l.free = l.free[n-1], l.free[:n-1]
	}
	for t.id = rng.IntN(len(l.sessions)); l.sessions[t.id].open; t.id = rng.IntN(len(l.sessions)) {
	}
	s := &l.sessions[t.id]
	s.open = true
	s.tokens += l.cfg.TurnTokens
	tokens := s.tokens
	l.mu.Unlock()
	l.set(&t.prompt, t.id, tokens)
	return t
}

// end lets the chosen workers compute: it stores the blocks that a worker lacks, reports the first token, and
// ends each request when it has been open for cfg.Hold; all that are left when the phase ends.
func (l *load) end() {
	var all []open
	var scratch []events.Block
	for t := range l.chosen {
		var err error
		lacks := min(l.held(&t), len(t.locals))
		if scratch, err = t.store(l.sink, t.decision.Worker, lacks, scratch); err != nil && !errors.Is(err, events.ErrUnknownParent) {
			l.fail(err)
		}
		l.d.Progress(t.decision.Reservation, len(t.locals)*l.cfg.BlockTokens, 1)
		l.mu.Lock()
		l.free = append(l.free, t.turnPrompt)
		l.mu.Unlock()
		all = append(all, t.open)
		for len(all) > 0 && !time.Now().Before(all[0].ends) {
			l.close(all[0])
			all = all[1:]
		}
	}
	for _, o := range all {
		l.close(o)
	}
}

// held returns the leading blocks of t's prompt that its worker has now. It may have left since the choice.
func (l *load) held(t *turn) int {
	for _, o := range l.d.Index().Find(t.hashes, nil) {
		if o.Worker == t.decision.Worker {
			return o.Blocks()
		}
	}
	return 0
}

// close ends a request.
func (l *load) close(o open) {
	l.d.Release(o.reservation)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sessions[o.session].open = false
}

// churn lets one worker after the other leave and join again, empty, at this rate.
func (l *load) churn(rate float64, done <-chan struct{}) error {
	if rate == 0 {
		return nil
	}
	tick := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-done:
			return nil
		case <-tick.C:
		}
		w := rankOf(i * 7 % l.cfg.Workers)
		begun := time.Now()
		l.d.Leave(w)
		l.sink.Forget(w)
		l.sum.leaves = append(l.sum.leaves, time.Since(begun))
		if err := join(l.d, w); err != nil {
			return err
		}
	}
}

// figures sums the phase up. took is its wall time.
func (l *load) figures(took time.Duration) Load {
	s := &l.sum
	f := Load{
		PerSecond: float64(len(s.took)) / took.Seconds(), P50: percentile(s.took, 50), P99: percentile(s.took, 99), P999: percentile(s.took, 99.9),
		Max: percentile(s.took, 100), HitRate: float64(s.found) / float64(max(1, s.blocks)),
		Left: len(s.leaves), LeaveP50: percentile(s.leaves, 50) / 1e3, LeaveMax: percentile(s.leaves, 100) / 1e3,
	}
	most := 0
	for _, n := range s.byWorker {
		most = max(most, n)
	}
	f.MaxOverMean = float64(most*l.cfg.Workers) / float64(max(1, len(s.took)))
	return f
}
