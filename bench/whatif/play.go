package whatif

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/router/decisions"
)

// request is a recorded request that was answered.
type request struct {
	decision *decisions.Decision
	arrived  time.Duration
	cached   int // prompt tokens that its worker had, by the usage of its answer, else by the router's index
	output   int // tokens
}

// play is a run of all requests under one policy, in virtual time.
type play struct {
	rec     *decisions.Recording
	served  []request
	speed   Speed
	r       *router.Router
	pinned  bool // each request goes where it went
	workers []worker
	begun   map[decisions.Hash]bool // blocks of requests that have arrived
	events  events
	queued  map[router.Ticket]int // requests that wait at the router
	chain   []decisions.Hash      // scratch
	hashes  []kv.BlockHash        // scratch
	now     time.Duration
	outcome []outcome // by request
	hits    int       // prompt tokens found
}

// worker is a simulated worker.
type worker struct {
	*cache
	rank kv.Rank
	free time.Duration   // when the prompts there are computed
	ends []time.Duration // of its requests
}

// outcome holds the worker of a request, and its times.
type outcome struct {
	worker       int
	ttft, regret time.Duration
}

// event is the first token or the end of a request.
type event struct {
	at    time.Duration
	n     int // order of making, so that equal times have an order
	first bool
	res   router.Reservation
	q     *request
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].n < e[j].n
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// newPlay makes a router of this policy with all workers of the recording.
func newPlay(rec *decisions.Recording, served []request, speed Speed, policy router.Policy, weights router.Weights, seed uint64) (*play, error) {
	p := &play{rec: rec, served: served, speed: speed, begun: map[decisions.Hash]bool{}, queued: map[router.Ticket]int{}, outcome: make([]outcome, len(served))}
	h := &rec.Head
	cfg := router.Config{
		BlockTokens: h.BlockTokens, Policy: policy, Weights: weights, Profile: h.Profile, Seed: seed, Predict: h.Predict, SessionTTL: h.SessionTTL,
		MaxWorkers: len(rec.Workers), MaxActive: max(1<<16, len(served)), MaxQueued: 1 << 20, Expiry: math.MaxInt64,
	}
	if h.TierWeights != "" {
		if err := cfg.TierWeights.UnmarshalText([]byte(h.TierWeights)); err != nil {
			return nil, err
		}
	}
	var err error
	if p.r, err = router.New(cfg); err != nil {
		return nil, err
	}
	for i := range rec.Workers {
		w := &rec.Workers[i]
		if err := p.r.Join(0, w.Rank(), w.Spec(h.BlockTokens)); err != nil {
			return nil, fmt.Errorf("whatif: worker %s: %w", w.Name, err)
		}
		p.workers = append(p.workers, worker{cache: newCache(w.TotalBlocks), rank: w.Rank()})
	}
	return p, nil
}

// run plays all requests.
func (p *play) run(ctx context.Context) error {
	for next := 0; next < len(p.served) || len(p.events) > 0; {
		if next%256 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if len(p.events) == 0 || next < len(p.served) && p.served[next].arrived <= p.events[0].at {
			p.now = p.served[next].arrived
			if err := p.arrive(next); err != nil {
				return err
			}
			next++
			continue
		}
		e := heap.Pop(&p.events).(event)
		p.now = e.at
		if e.first {
			p.r.Progress(p.now, e.res, e.q.decision.PromptTokens, 1)
		} else {
			p.r.Release(p.now, e.res)
		}
		if err := p.admit(); err != nil {
			return err
		}
	}
	if len(p.queued) > 0 {
		return fmt.Errorf("whatif: %d requests wait for a worker that never gets free", len(p.queued))
	}
	return nil
}

// arrive sends request i to a worker, or queues it while all are busy.
func (p *play) arrive(i int) error {
	ask := p.ask(i)
	p.before(i)
	ask.Overlaps = p.overlaps()
	d, err := p.r.Select(p.now, &ask)
	if errors.Is(err, router.ErrBusy) {
		ask.Hashes = slices.Clone(ask.Hashes) // the router keeps them
		var ticket router.Ticket
		if ticket, err = p.r.Wait(p.now, &ask); err == nil {
			p.queued[ticket] = i
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("whatif: request %d: %w", i, err)
	}
	p.send(i, &d)
	return nil
}

// admit sends waiting requests to workers that have room.
func (p *play) admit() error {
	for {
		ticket, _, ok := p.r.Next(p.now)
		if !ok {
			return nil
		}
		i := p.queued[ticket]
		p.ask(i) // for its blocks
		d, err := p.r.Take(p.now, ticket, p.overlaps())
		if errors.Is(err, router.ErrBusy) {
			return nil
		}
		delete(p.queued, ticket)
		if err != nil {
			return fmt.Errorf("whatif: request %d: %w", i, err)
		}
		p.send(i, &d)
	}
}

// ask returns the question to the router for request i, and sets p.chain to its blocks.
func (p *play) ask(i int) router.Request {
	d := p.served[i].decision
	p.chain, p.hashes = p.rec.Chain(d, p.chain[:0]), p.hashes[:0]
	for _, h := range p.chain {
		p.hashes = append(p.hashes, kv.BlockHash(h))
	}
	ask := router.Request{
		PromptTokens: d.PromptTokens, Hashes: p.hashes, ExpectedOutput: d.ExpectedOutput, Session: uint64(d.Session), Model: d.Model, Pool: d.Pool,
	}
	if p.pinned {
		ask.Pinned = &p.workers[d.Chosen].rank
	}
	return ask
}

// before puts into the caches what they had before the recording: blocks of request i that no request before it had, and that
// workers had by what the router knew; the chosen worker by what its answer said.
func (p *play) before(i int) {
	q := &p.served[i]
	fresh := slices.IndexFunc(p.chain, func(h decisions.Hash) bool { return !p.begun[h] })
	if fresh < 0 {
		return
	}
	for k := range q.decision.Candidates {
		c := &q.decision.Candidates[k]
		n := c.CachedBlocks()
		if c.Worker == q.decision.Chosen {
			n = (q.cached + 1) / p.rec.Head.BlockTokens // a worker computes at least one token
		}
		if n = min(n, len(p.chain)); n > fresh {
			p.workers[c.Worker].use(p.chain[:n], 0)
		}
	}
	for _, h := range p.chain[fresh:] {
		p.begun[h] = true
	}
}

// overlaps returns the cached blocks of p.chain at each worker, as the index of the router knows them.
func (p *play) overlaps() (all []router.Overlap) {
	for i := range p.workers {
		w := &p.workers[i]
		if n := w.found(p.chain, p.now); n > 0 {
			all = append(all, router.Overlap{Worker: w.rank, Device: n})
		}
	}
	return all
}

// firstToken returns when the first token of a request comes from worker w, if the request goes there now, and the tokens that it finds
// cached.
func (p *play) firstToken(w *worker, q *request) (at time.Duration, cached, running int) {
	start := max(p.now, w.free)
	cached = min(q.decision.PromptTokens-1, w.found(p.chain, math.MaxInt64)*p.rec.Head.BlockTokens)
	for _, end := range w.ends {
		if end > start {
			running++
		}
	}
	return start + p.speed.prompt(q.decision.PromptTokens-cached, running), cached, running
}

// send gives request i, whose blocks are p.chain, to the worker of d, and notes what becomes of it.
func (p *play) send(i int, d *router.Decision) {
	q := &p.served[i]
	at := slices.IndexFunc(p.workers, func(w worker) bool { return w.rank == d.Worker })
	best := time.Duration(math.MaxInt64)
	for k := range p.workers {
		if p.workers[k].rank == d.Worker || p.eligible(k, q.decision) {
			first, _, _ := p.firstToken(&p.workers[k], q)
			best = min(best, first)
		}
	}
	w := &p.workers[at]
	first, cached, running := p.firstToken(w, q)
	end := first + p.speed.decode(q.output-1, running)
	w.ends = append(slices.DeleteFunc(w.ends, func(t time.Duration) bool { return t <= p.now }), end)
	w.use(p.chain, first)
	w.free = first
	p.hits += cached
	p.outcome[i] = outcome{worker: at, ttft: first - q.arrived, regret: max(0, first-best)}
	heap.Push(&p.events, event{at: first, n: 2 * i, first: true, res: d.Reservation, q: q})
	heap.Push(&p.events, event{at: max(end, first), n: 2*i + 1, res: d.Reservation, q: q})
}

// eligible reports whether worker k serves the model of d, in its pool, and has room for a request.
func (p *play) eligible(k int, d *decisions.Decision) bool {
	w, active := &p.rec.Workers[k], 0
	for _, end := range p.workers[k].ends {
		if end > p.now {
			active++
		}
	}
	return (w.MaxRequests == 0 || active < w.MaxRequests) && (d.Model == 0 || slices.Contains(w.Models, d.Model)) && (d.Pool == 0 || w.Pool == d.Pool)
}
