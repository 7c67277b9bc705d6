package fleet

import (
	"errors"
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/bench/fleet/mocker"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/router/kvindex"
)

// play is a run: one goroutine, virtual time.
type play struct {
	cfg   Config
	trace *Trace
	clock *sim.Clock

	workers []station
	index   *kvindex.Index
	guess   *kvindex.Approximate // nil without Config.Predict
	r       *router.Router
	buckets *router.Buckets // nil without a first stage
	hasher  *kv.Hasher

	asked          []asked
	next           int // request that arrives next
	ended          int
	free           []*Request            // memory
	queued         map[router.Ticket]int // requests that wait at the router
	report         Report                // scratch
	found, guessed []kvindex.Overlap
	laps           []router.Overlap
	err            error
	checked        func(*station) error // a test's look after events

	sums sums
}

// station is a worker and what the loop keeps of it.
type station struct {
	Worker
	id       kv.Rank
	holder   kv.Rank
	wake     func() // its event on the clock
	armed    bool   // the event is there
	computed int    // prompt tokens
	output   int    // tokens
	requests int
	life     int // from 1, one more with each restart
	since    int // requests of all workers before it was restarted
}

// asked is a request on its way.
type asked struct {
	req           *Request
	at            *station // that has it
	arrived, last time.Duration
	res           router.Reservation
	got           int
	overlap       int // tokens that its worker was taken to have
	ended         bool
	waiters       []int // requests that come when it is answered
}

// progressEvery is how many output tokens pass between two notes to the router.
const progressEvery = 32

func newPlay(cfg Config, trace *Trace) (*play, error) {
	p := &play{cfg: cfg, trace: trace, clock: sim.NewClock(), hasher: kv.NewHasher(kv.Namespace{}, BlockTokens), asked: make([]asked, trace.Requests()), queued: make(map[router.Ticket]int)}
	var err error
	if p.index, err = kvindex.New(kvindex.Config{Seed: cfg.Seed}); err != nil {
		return nil, err
	}
	if cfg.Predict > 0 {
		p.guess, err = kvindex.NewApproximate(kvindex.ApproximateConfig{TTL: cfg.Predict, MaxBlocks: 1 << 24, Seed: cfg.Seed})
		if err != nil {
			return nil, err
		}
	}
	p.r, err = router.New(router.Config{
		BlockTokens: BlockTokens, Policy: cfg.Policy, Weights: cfg.Weights, Seed: cfg.Seed, MaxWorkers: cfg.Workers,
		Predict: cfg.PredictRequests, MaxActive: max(1<<16, trace.Requests()), MaxQueued: 1 << 20, Profile: cfg.believed(), Expiry: 24 * time.Hour,
	})
	if err != nil {
		return nil, err
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

// open starts worker i, in a pool.
func (p *play) open(i int, pool router.PoolID) error {
	w := &p.workers[i]
	var err error
	if w.Worker, err = newWorker(&p.cfg, uint64(i), p.trace.Requests()); err != nil {
		return err
	}
	w.id, w.holder = idOf(i), kv.Rank{Worker: kv.WorkerID(i + 1)}
	w.life++
	life := w.life
	w.armed, w.wake = false, func() {
		if w.life == life { // else it was restarted
			w.armed = false
			p.pass(w)
		}
	}
	return p.r.Join(p.clock.Now(), w.id, router.WorkerSpec{
		BlockTokens: BlockTokens, TotalBlocks: kv.FloorPages(p.cfg.KVTokens, BlockTokens), BatchTokens: p.cfg.StepTokens,
		MaxRequests: p.cfg.MaxRunning, ChunkTokens: p.cfg.chunk(), Pool: pool,
	})
}

// newWorker makes one of the kind.
func newWorker(cfg *Config, seed uint64, requests int) (Worker, error) {
	if cfg.Kind == Mocker {
		return NewMocker(mocker.Config{
			Blocks: kv.FloorPages(cfg.KVTokens, BlockTokens), BlockTokens: BlockTokens, MaxSeqs: cfg.MaxRunning,
			MaxBatchedTokens: cfg.StepTokens, MaxWaiting: max(1, requests), Seed: seed,
		})
	}
	return NewOurs(OursConfig{
		Device: cfg.Device, KVTokens: cfg.KVTokens, StepTokens: cfg.StepTokens, MaxRunning: cfg.MaxRunning, MaxQueued: max(1, requests),
	})
}

// run plays until every request has ended.
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
		p.err = fmt.Errorf("fleet: %d of %d requests ended, %d wait at the router, and nothing moves", p.ended, len(p.asked), p.r.Queued())
	}
	return p.err
}

func (p *play) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// due is when request i comes in an open loop.
func (p *play) due(i int) time.Duration {
	return time.Duration(p.trace.asks[i].at / p.cfg.Rate * float64(time.Second))
}

// arrivals lets the requests come whose time it is, and comes again.
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

// follow lets the next request of a closed loop come. It does not wait for the
// answer that it continues: the loop measures what the fleet can do.
func (p *play) follow() {
	if p.next < len(p.asked) {
		p.next++
		p.arrive(p.next - 1)
	}
}

// arrive has the router choose, or wait.
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
	p.sums.prompt += len(req.Tokens)
	ask := router.Request{PromptTokens: len(req.Tokens), Hashes: req.Hashes, Pinned: p.cfg.plant}
	start := p.tick()
	if p.buckets != nil && ask.Pinned == nil {
		ask.Pool = router.PoolID(1 + p.buckets.Pick(req.Hashes))
	}
	ask.Overlaps = p.overlaps(req)
	d, err := p.r.Select(now, &ask)
	p.sums.chose(p, start)
	switch {
	case errors.Is(err, router.ErrBusy):
		ask.Overlaps = nil // they will be looked up anew
		ticket, err := p.r.Wait(now, &ask)
		p.fail(err)
		p.queued[ticket] = i
		p.sums.queued++
	case err != nil:
		p.fail(fmt.Errorf("fleet: request %d: %w", i, err))
	default:
		p.send(i, &d)
	}
}
