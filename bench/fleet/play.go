package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/router/kvindex"
)

// play is the state of a run: one goroutine in virtual time.
type play struct {
	cfg   Config
	trace *Trace
	clock *sim.Clock

	workers []station
	gates   []*gate
	guess   *kvindex.Approximate // nil without Config.Predict
	buckets *router.Buckets      // nil without a first stage
	hasher  *kv.Hasher

	asked          []asked
	next           int // the next request to arrive
	ended          int
	free           []*Request           // unused requests, kept for their memory
	report         Report               // scratch
	found, guessed []kvindex.Overlap    // scratch
	laps           []router.Overlap     // scratch
	err            error                // the first error; it ends the run
	checked        func(*station) error // test hook, called after a worker's events were applied

	measures measures
}

// station is a worker, and what play records about it.
type station struct {
	Worker
	id       kv.Rank // in the router
	holder   kv.Rank // in the index
	wake     func()  // ends the pass in progress
	armed    bool    // wake is scheduled
	computed int     // prompt tokens
	output   int     // tokens
	requests int     // requests sent to the worker since its restart
	life     int     // 1, and one more after a restart, so that events from before the restart are recognised
	since    int     // number of requests that had arrived at the fleet before the worker's restart
}

// asked is the state of a request.
type asked struct {
	req           *Request
	at            *station      // the worker that it was sent to
	arrived, last time.Duration // times of the arrival at the router and of the latest token
	res           router.Reservation
	got           int // output tokens
	overlap       int // prompt tokens that the worker had cached, as the router assumed
	ended         bool
	waiters       []int // requests that arrive when this one ends
}

// progressEvery is the number of output tokens between two calls of router.Progress.
const progressEvery = 32

// newPlay makes the gateways and all workers, and joins the workers to the gateways.
func newPlay(cfg Config, trace *Trace) (*play, error) {
	p := &play{cfg: cfg, trace: trace, clock: sim.NewClock(), hasher: kv.NewHasher(kv.Namespace{}, BlockTokens), asked: make([]asked, trace.Requests())}
	var err error
	if cfg.Predict > 0 {
		p.guess, err = kvindex.NewApproximate(kvindex.ApproximateConfig{TTL: cfg.Predict, MaxBlocks: 1 << 24, Seed: cfg.Seed})
		if err != nil {
			return nil, err
		}
	}
	for i := range cfg.Gateways {
		g, err := newGate(&p.cfg, i, trace.Requests())
		if err != nil {
			return nil, err
		}
		p.gates = append(p.gates, g)
	}
	var pools []router.PoolID
	if p.buckets, pools, err = cfg.stages(cfg.Workers); err != nil {
		return nil, err
	}
	p.workers = make([]station, cfg.Workers)
	for i := range p.workers {
		if err := p.open(i, pools[i]); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// open creates worker i, at the beginning or after a restart, and joins it to a pool of each gateway's
// router.
func (p *play) open(i int, pool router.PoolID) error {
	w := &p.workers[i]
	var err error
	if w.Worker, err = newWorker(&p.cfg, p.trace.Requests()); err != nil {
		return err
	}
	w.id, w.holder = idOf(i), kv.Rank{Worker: kv.WorkerID(i + 1)}
	w.life++
	life := w.life
	w.armed, w.wake = false, func() {
		if w.life == life { // otherwise the worker was restarted: this pass is lost
			w.armed = false
			p.pass(w)
		}
	}
	for _, g := range p.gates {
		err = errors.Join(err, g.r.Join(p.clock.Now(), w.id, router.WorkerSpec{
			BlockTokens: BlockTokens, TotalBlocks: kv.FloorPages(p.cfg.KVTokens, BlockTokens), BatchTokens: p.cfg.StepTokens,
			MaxRequests: p.cfg.MaxRunning, ChunkTokens: p.cfg.chunk(), Pool: pool,
		}))
	}
	return err
}

// newWorker makes a worker of cfg.Kind. Its queue has room for this many requests.
func newWorker(cfg *Config, requests int) (Worker, error) {
	if cfg.Kind == Mocker {
		return newMocker(kv.FloorPages(cfg.KVTokens, BlockTokens), BlockTokens, cfg.MaxRunning, cfg.StepTokens), nil
	}
	return newOurs(cfg, requests)
}

// run plays until every request has ended. It is an error if nothing is scheduled while requests
// are open. stop is called from time to time; if it returns an error, that ends the run.
func (p *play) run(stop func() error) error {
	if p.cfg.Rate > 0 {
		p.clock.At(0, p.arrivals)
	} else {
		p.clock.At(0, func() {
			for range p.cfg.Clients {
				p.follow()
			}
		})
	}
	p.clock.At(p.cfg.ReportEvery, p.reports)
	if p.cfg.RestartAt > 0 {
		p.clock.At(p.cfg.RestartAt, p.restart)
	}
	for n := 0; p.err == nil && p.ended < len(p.asked) && p.clock.Step(); n++ {
		if n%4096 == 0 {
			p.fail(stop())
		}
	}
	if p.err == nil && p.ended != len(p.asked) {
		p.err = fmt.Errorf("fleet: %d of %d requests ended, %d wait at the router, and nothing moves", p.ended, len(p.asked), p.queued())
	}
	return p.err
}

// queued returns the number of requests that wait at a gateway.
func (p *play) queued() (n int) {
	for _, g := range p.gates {
		n += g.r.Queued()
	}
	return n
}

// fail keeps err if it is the first error. nil is ignored.
func (p *play) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// due returns the time at which request i arrives in an open loop, if the request that it
// continues has ended by then.
func (p *play) due(i int) time.Duration {
	return time.Duration(p.trace.asks[i].at / p.cfg.Rate * float64(time.Second))
}

// arrivals handles the requests that are due, and schedules itself for the next arrival. A request
// that continues an unfinished request is postponed until the latter has ended.
func (p *play) arrivals() {
	for p.next < len(p.asked) && p.due(p.next) <= p.clock.Now() {
		i := p.next
		p.next++
		if before := p.trace.asks[i].after; before >= 0 && !p.asked[before].ended {
			p.asked[before].waiters = append(p.asked[before].waiters, i)
			continue
		}
		p.arrive(i)
	}
	if p.next < len(p.asked) {
		p.clock.At(p.due(p.next), p.arrivals)
	}
}

// follow sends the next request of a closed loop. It does so even if the request that this one
// continues has not ended: the loop measures the capacity of the fleet, so it keeps all clients
// busy.
func (p *play) follow() {
	if p.next < len(p.asked) {
		p.next++
		p.arrive(p.next - 1)
	}
}

// arrive sends request i to the worker that a gateway's router chooses, or queues it at that
// router if all workers are busy.
func (p *play) arrive(i int) {
	var req *Request
	if n := len(p.free); n > 0 {
		req, p.free = p.free[n-1], p.free[:n-1]
	} else {
		req = new(Request)
	}
	p.trace.fill(i, p.hasher, req)
	now := p.clock.Now()
	p.asked[i].req, p.asked[i].arrived = req, now
	p.measures.result.PromptTokens += len(req.Tokens)
	ask := router.Request{PromptTokens: len(req.Tokens), Hashes: req.Hashes, Pinned: p.cfg.plant}
	start := p.tick()
	if p.buckets != nil && ask.Pinned == nil {
		ask.Pool = router.PoolID(1 + p.buckets.Pick(req.Hashes))
	}
	g := p.gateOf(i)
	ask.Overlaps = p.overlaps(g, req)
	d, err := g.r.Select(now, &ask)
	p.chose(start)
	switch {
	case errors.Is(err, router.ErrBusy):
		ask.Overlaps = nil // admit looks them up again
		ticket, err := g.r.Wait(now, &ask)
		p.fail(err)
		g.queued[ticket] = i
		p.measures.result.Queued++
	case err != nil:
		p.fail(fmt.Errorf("fleet: request %d: %w", i, err))
	default:
		p.send(i, &d)
	}
}

// clientsPerWorker is the number of concurrent requests per worker when a capacity is
// measured: more than it takes to fill the steps, and about as many as the KV pool has
// room for.
const clientsPerWorker = 32

// Play simulates one run of the fleet cfg under the requests of trace. Errors are those of the
// configuration, the end of ctx, and workers that lose requests or output too many or too few
// tokens.
func Play(ctx context.Context, cfg Config, trace *Trace) (Result, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return Result{}, err
	}
	p, err := newPlay(cfg, trace)
	if err != nil {
		return Result{}, err
	}
	if err := p.run(func() error { return context.Cause(ctx) }); err != nil {
		return Result{}, fmt.Errorf("%s, %d workers, %v: %w", trace.Name, cfg.Workers, Routing{cfg.Policy, cfg.Staged}, err)
	}
	return p.summarise(), nil
}

// Capacity returns the requests per second that the fleet cfg serves under round robin in a closed
// loop of clientsPerWorker requests for each worker. It ignores the fields Policy, Staged, Rate,
// Clients and Clock of cfg. The result is 0 if trace is too short to measure a rate.
func Capacity(ctx context.Context, cfg Config, trace *Trace) (float64, error) {
	cfg.Rate, cfg.Clients, cfg.Clock = 0, clientsPerWorker*cfg.Workers, nil
	cfg.Policy, cfg.Staged = router.CostRoundRobin, Staged{}
	r, err := Play(ctx, cfg, trace)
	return r.RequestsPerS, err
}
