package dispatch

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/internal/gateway/residency"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/router/kvindex"
)

// Dispatcher guards the router and its indexes with one mutex. It never blocks while holding
// it.
type Dispatcher struct {
	cfg   Config
	start time.Time
	index *residency.Residency

	pools  atomic.Pointer[Pools]                // nil: all workers are one
	groups atomic.Pointer[groups]               // the pool of each worker
	places places                               // of workers in buckets
	peers  struct{ news, joined chan struct{} } // each holds one note; nil: there are no replicas

	weighing sync.Mutex // held while weights are changed, before mu

	mu       sync.Mutex
	router   *router.Router
	guesses  *kvindex.Approximate // what workers without events may hold
	ranks    map[kv.Rank]*rank    // that have joined
	open     map[router.Reservation]struct{}
	waiting  map[router.Ticket]waiter
	expired  []router.Expired     // scratch
	ended    []router.Reservation // scratch
	verdicts []router.Verdict     // scratch
	left     bool                 // a worker has left since HasLeft was called
}

// rank is what is known of a rank beside the router's own.
type rank struct {
	blind   bool // its events do not come: what it holds is guessed
	fresh   bool // it has joined and not said yet how it is
	longest int  // blocks of a prompt that it takes; 0: not known
}

// groups is the pool of each worker, and how many healthy workers there are. It is replaced,
// never changed.
type groups struct {
	pool    map[kv.WorkerID]router.PoolID
	healthy map[inPool]int
}

// inPool names the workers of a pool that serve a model; "": all of them.
type inPool struct {
	pool  router.PoolID
	model string
}

// places is where workers are in buckets.
type places struct {
	sync.Mutex
	seen   map[kv.WorkerID]time.Time // when each was last healthy
	bucket map[kv.WorkerID]router.PoolID
}

// waiter is a request in the router's queue. Its goroutine waits, so its Ask belongs to the
// Dispatcher.
type waiter struct {
	ask  *Ask
	done chan choice // holds one
}

type choice struct {
	decision router.Decision
	err      error
}

// New makes a Dispatcher without workers.
func New(cfg Config) (*Dispatcher, error) {
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	index, err := residency.New(cfg.Index)
	if err != nil {
		return nil, err
	}
	r, err := router.New(cfg.Router)
	if err != nil {
		return nil, err
	}
	cfg.Router.BlockTokens = r.BlockTokens()
	guess := kvindex.ApproximateConfig{TTL: cfg.GuessTTL, Holders: cfg.Index.Index.Holders, Seed: cfg.Router.Seed, ByHash: true}
	guesses, err := kvindex.NewApproximate(guess)
	if err != nil {
		return nil, err
	}
	p, err := newPools(&cfg)
	if err != nil {
		return nil, err
	}
	d := &Dispatcher{
		cfg: cfg, start: time.Now(), index: index, router: r, guesses: guesses,
		ranks: map[kv.Rank]*rank{}, open: map[router.Reservation]struct{}{}, waiting: map[router.Ticket]waiter{},
	}
	if cfg.Router.Replica != 0 {
		d.peers.news, d.peers.joined = make(chan struct{}, 1), make(chan struct{}, 1)
	}
	d.pools.Store(p)
	d.groups.Store(&groups{})
	return d, nil
}

// BlockTokens is the size of a block.
func (d *Dispatcher) BlockTokens() int { return d.cfg.Router.BlockTokens }

// Router is the router's configuration.
func (d *Dispatcher) Router() router.Config { return d.cfg.Router }

// now is the router's time.
func (d *Dispatcher) now() time.Duration { return time.Since(d.start) }

// With calls f with the router and its time, under the mutex. f must not block, nor call the
// Dispatcher.
func (d *Dispatcher) With(f func(r *router.Router, now time.Duration)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d.router, d.now())
}

// change is With for what may let a waiting request have its turn.
func (d *Dispatcher) change(f func(r *router.Router, now time.Duration)) {
	d.With(func(r *router.Router, now time.Duration) {
		f(r, now)
		d.pump(now)
	})
}

// note leaves a note where there is room for one; a nil channel has none.
func note(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (d *Dispatcher) notePeers() { note(d.peers.news) }

// find sets the overlaps of a request. The caller holds the mutex and has asked the index.
func (d *Dispatcher) find(a *Ask) {
	a.guessed = d.guesses.FindChain(a.Request.Hashes, a.guessed[:0])
	a.merge()
}

// Choose reserves a worker for a request, in the first of its pools that can take it. It waits
// while all are busy. Errors: the router's, [ErrPatience], ctx's.
func (d *Dispatcher) Choose(ctx context.Context, a *Ask, patience time.Duration) (router.Decision, error) {
	decision, err := d.choose(ctx, a, patience)
	for err != nil && a.nextPool(err) {
		if err == ErrPatience {
			patience = 1 // it has waited
		}
		decision, err = d.choose(ctx, a, patience)
	}
	return decision, err
}

func (d *Dispatcher) choose(ctx context.Context, a *Ask, patience time.Duration) (router.Decision, error) {
	a.lookUp(d.index, d.BlockTokens())
	d.mu.Lock()
	now := d.now()
	d.find(a)
	decision, err := d.router.Select(now, &a.Request)
	if err == nil {
		d.reserved(a, decision, now)
	}
	if !errors.Is(err, router.ErrBusy) {
		d.mu.Unlock()
		return decision, err
	}
	ticket, err := d.router.Wait(now, &a.Request)
	if err != nil {
		d.mu.Unlock()
		return decision, err
	}
	w := waiter{a, make(chan choice, 1)}
	d.waiting[ticket] = w
	d.mu.Unlock()
	return d.wait(ctx, ticket, w, patience)
}

// wait is the rest of a choice that could not be made at once.
func (d *Dispatcher) wait(ctx context.Context, ticket router.Ticket, w waiter, patience time.Duration) (router.Decision, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	var err error
	select {
	case c := <-w.done:
		return c.decision, c.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
		err = ErrPatience
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.router.Cancel(ticket) {
		delete(d.waiting, ticket)
		return router.Decision{}, err
	}
	c := <-w.done // its turn came at this moment
	if c.err == nil && err != ErrPatience {
		d.end(c.decision.Reservation, d.now(), (*router.Router).Rollback)
		return router.Decision{}, err
	}
	return c.decision, c.err
}

// reserved notes a choice. The caller holds the mutex.
func (d *Dispatcher) reserved(a *Ask, decision router.Decision, now time.Duration) {
	d.open[decision.Reservation] = struct{}{}
	d.notePeers()
	d.guess(decision.Worker, a.Request.Hashes, a.Request.Untold, now)
}

// guess notes where a prompt was sent that no event will name.
func (d *Dispatcher) guess(w kv.Rank, hashes []kv.BlockHash, untold bool, now time.Duration) {
	k := d.ranks[w]
	blind := k != nil && k.blind
	if len(hashes) == 0 || !blind && !untold {
		return
	}
	if k != nil && k.longest > 0 && len(hashes) > k.longest {
		return // the worker will refuse it, and a few such prompts would push all guesses out
	}
	d.guesses.RouteChain(w, hashes, now) // a guess that does not fit is dropped
}

// pump serves waiting requests as far as there are workers. The caller holds the mutex.
func (d *Dispatcher) pump(now time.Duration) {
	for {
		ticket, _, ok := d.router.Next(now)
		if !ok {
			return
		}
		w := d.waiting[ticket]
		w.ask.lookUp(d.index, d.BlockTokens())
		d.find(w.ask)
		decision, err := d.router.Take(now, ticket, w.ask.overlaps)
		if errors.Is(err, router.ErrBusy) || errors.Is(err, router.ErrFull) {
			return
		}
		if err == nil {
			d.reserved(w.ask, decision, now)
		}
		delete(d.waiting, ticket)
		w.done <- choice{decision, err}
	}
}

// Started notes that a worker has begun to compute a request.
func (d *Dispatcher) Started(res router.Reservation) {
	d.With(func(r *router.Router, now time.Duration) { r.Begun(now, res) })
}

// Progress notes how far a request has come.
func (d *Dispatcher) Progress(res router.Reservation, computed, output int) {
	d.change(func(r *router.Router, now time.Duration) { // its first output may make room for others
		r.Progress(now, res, computed, output)
		d.notePeers()
	})
}

// Release ends the reservation of a request that has been answered.
func (d *Dispatcher) Release(res router.Reservation) { d.finish(res, (*router.Router).Release) }

// Abandon ends the reservation of a request whose answer did not come to its end.
func (d *Dispatcher) Abandon(res router.Reservation) { d.finish(res, (*router.Router).Abandon) }

// Rollback ends the reservation of a request that never reached its worker.
func (d *Dispatcher) Rollback(res router.Reservation) { d.finish(res, (*router.Router).Rollback) }

type ending func(*router.Router, time.Duration, router.Reservation) bool

func (d *Dispatcher) finish(res router.Reservation, how ending) {
	d.With(func(_ *router.Router, now time.Duration) { d.end(res, now, how) })
}

func (d *Dispatcher) end(res router.Reservation, now time.Duration, how ending) {
	delete(d.open, res)
	how(d.router, now, res)
	d.notePeers()
	d.pump(now)
}

// Tick is called each second. It renews open reservations, ends those that nobody answers for,
// and tells the router how large the workers' trees are.
func (d *Dispatcher) Tick() {
	type tree struct {
		worker kv.Rank
		blocks int
	}
	var trees []tree
	for _, l := range d.Loads() { // the index may block, so it is asked without the mutex
		trees = append(trees, tree{l.Worker, d.index.Held(l.Worker)})
	}
	d.change(func(r *router.Router, now time.Duration) {
		for res := range d.open {
			r.Progress(now, res, 0, 0)
		}
		d.expired = r.Expire(now, d.expired[:0])
		d.guesses.Expire(now)
		for _, t := range trees {
			r.SetTree(t.worker, t.blocks)
		}
	})
}

// Loads are the workers as the router sees them, by their numbers.
func (d *Dispatcher) Loads() (all []router.Load) {
	d.With(func(r *router.Router, now time.Duration) { all = r.Loads(now, nil) })
	return all
}

// Metrics are the router's counts, and how many blocks are guessed to be held.
func (d *Dispatcher) Metrics() (m router.Metrics, guessed int) {
	d.With(func(r *router.Router, _ time.Duration) {
		m, guessed = r.Metrics(), d.guesses.Index().Stats().HolderBlocks
	})
	return m, guessed
}

// Index is what workers' events told of their caches.
func (d *Dispatcher) Index() *residency.Residency { return d.index }

// Weights are the policy's weights in force.
func (d *Dispatcher) Weights() (w router.Weights) {
	d.With(func(r *router.Router, _ time.Duration) { w = r.Weights() })
	return w
}

// ChangeWeights lets change edit the weights in force. Of two concurrent callers that change
// different weights neither change is lost.
func (d *Dispatcher) ChangeWeights(change func(*router.Weights) error) error {
	d.weighing.Lock()
	defer d.weighing.Unlock()
	w := d.Weights()
	err := change(&w)
	if err == nil {
		d.With(func(r *router.Router, _ time.Duration) { err = r.SetWeights(w) })
	}
	return err
}
