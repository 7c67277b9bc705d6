package dispatch

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/gateway/internal/residency"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/router/kvindex"
)

// Dispatcher guards the router and its indexes with one mutex. It never blocks while holding it.
type Dispatcher struct {
	cfg   Config
	start time.Time
	index *residency.Residency

	pools  atomic.Pointer[Partition]            // nil: all workers form one group
	groups atomic.Pointer[groups]               // the pool of each worker
	places places                               // the bucket of each worker
	peers  struct{ news, joined chan struct{} } // capacity 1 each, see News; nil without replicas

	weighing sync.Mutex // held while weights change; taken before mu

	mu       sync.Mutex
	router   *router.Router
	guesses  *kvindex.Approximate // assumed contents of caches without events
	ranks    map[kv.Rank]*rank    // the joined ranks
	open     map[router.Reservation]struct{}
	waiting  map[router.Ticket]waiter
	expired  []router.Expired     // scratch
	ended    []router.Reservation // scratch
	verdicts []router.Verdict     // scratch
	left     bool                 // a worker has left since the last HasLeft
}

// rank holds the facts about a rank that the router does not need.
type rank struct {
	blind   bool // no events arrive from it, so the contents of its cache are guessed
	indexed bool // events have arrived from it, so the index may hold its blocks
	fresh   bool // it has joined, and SetHealth has not been called for it yet
	longest int  // most blocks of a prompt that it accepts; 0: unknown
	spec    router.WorkerSpec
}

// groups maps workers to pools and counts the healthy workers of each pool. It is never changed:
// Regroup stores a new one.
type groups struct {
	pool    map[kv.WorkerID]router.PoolID
	healthy map[inPool]int
}

// inPool stands for the workers of a pool that serve a model; with pool 0, of the whole fleet,
// and with model "", for all of them.
type inPool struct {
	pool  router.PoolID
	model string
}

// places holds the bucket of each worker.
type places struct {
	sync.Mutex
	seen   map[kv.WorkerID]time.Time // when each worker was last healthy
	bucket map[kv.WorkerID]router.PoolID
}

// waiter is a request in the router's queue. The goroutine that called Choose waits for done and
// does not touch the Ask meanwhile, so pump may use the Ask.
type waiter struct {
	ask  *Ask
	done chan choice // capacity 1
}

// choice is the result of a wait.
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
	guess := kvindex.ApproximateConfig{TTL: cfg.GuessTTL, Holders: cfg.Index.Index.Holders, Seed: cfg.Router.Seed}
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

// BlockTokens returns the tokens per block.
func (d *Dispatcher) BlockTokens() int { return d.cfg.Router.BlockTokens }

// Router returns the router's configuration.
func (d *Dispatcher) Router() router.Config { return d.cfg.Router }

// now returns the router's time: the time since the Dispatcher was made.
func (d *Dispatcher) now() time.Duration { return time.Since(d.start) }

// With calls f with the router and its time, under the mutex. f must neither block nor call the
// Dispatcher.
func (d *Dispatcher) With(f func(r *router.Router, now time.Duration)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d.router, d.now())
}

// change is With, followed by pump. It is for changes that may allow a waiting request to be
// served.
func (d *Dispatcher) change(f func(r *router.Router, now time.Duration)) {
	d.With(func(r *router.Router, now time.Duration) {
		f(r, now)
		d.pump(now)
	})
}

// note puts a signal into c, a channel of capacity 1. It does nothing if c is full or nil.
func note(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// notePeers signals that there are events for the other routers.
func (d *Dispatcher) notePeers() { note(d.peers.news) }

// find sets the overlaps of the request in a. The caller holds the mutex and has called
// a.lookUp.
func (d *Dispatcher) find(a *Ask) {
	a.guessed = d.guesses.Find(a.Request.Hashes, a.guessed[:0])
	a.merge()
}

// Choose reserves a worker for a request, in the first of its pools that can take it. While all
// workers are busy, it waits for at most patience. Errors: the router's, [ErrPatience], or the
// cause of ctx's end.
func (d *Dispatcher) Choose(ctx context.Context, a *Ask, patience time.Duration) (router.Decision, error) {
	decision, err := d.choose(ctx, a, patience)
	for err != nil && a.nextPool(err) {
		if err == ErrPatience {
			patience = 1 // it has waited already: do not wait in the next pools
		}
		decision, err = d.choose(ctx, a, patience)
	}
	return decision, err
}

// choose is Choose in the current pool only.
func (d *Dispatcher) choose(ctx context.Context, a *Ask, patience time.Duration) (router.Decision, error) {
	a.lookUp(d.index, d.BlockTokens())
	d.mu.Lock()
	now := d.now()
	d.find(a)
	if d.cfg.Record {
		a.Seen.see(d.router, now, &a.Request)
	}
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

// wait waits until pump serves w, the waiter of the ticket. If ctx or patience ends first, it
// cancels the ticket and returns the cause of ctx's end or [ErrPatience].
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
	c := <-w.done // pump served it just now
	if c.err == nil && err != ErrPatience {
		d.end(c.decision.Reservation, d.now(), (*router.Router).Rollback)
		return router.Decision{}, err
	}
	return c.decision, c.err
}

// reserved records a choice that the router has just made for a. The caller holds the mutex.
func (d *Dispatcher) reserved(a *Ask, decision router.Decision, now time.Duration) {
	d.open[decision.Reservation] = struct{}{}
	d.notePeers()
	k := d.ranks[decision.Worker]
	a.outdated = k != nil && k.blind && k.indexed
	d.guess(decision.Worker, a.Request.Hashes, a.Request.Untold, now)
}

// guess records that a prompt with these hashes was sent to w, if no event will report its
// blocks. untold says that no worker's events will, because the hashes do not match those in
// events. The caller holds the mutex.
func (d *Dispatcher) guess(w kv.Rank, hashes []kv.BlockHash, untold bool, now time.Duration) {
	k := d.ranks[w]
	blind := k != nil && k.blind
	if len(hashes) == 0 || !blind && !untold {
		return
	}
	if k != nil && k.longest > 0 && len(hashes) > k.longest {
		return // the worker will refuse it, and a few such prompts would evict all guesses
	}
	d.guesses.Route(w, kvindex.Run{Hashes: hashes}, now) // a guess that does not fit is dropped
}

// pump serves waiting requests in the queue's order until none has a free worker. The caller
// holds the mutex.
func (d *Dispatcher) pump(now time.Duration) {
	for {
		ticket, _, ok := d.router.Next(now)
		if !ok {
			return
		}
		w := d.waiting[ticket]
		w.ask.lookUp(d.index, d.BlockTokens())
		d.find(w.ask)
		if d.cfg.Record {
			w.ask.Seen.see(d.router, now, &w.ask.Request)
		}
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

// Started records that a worker has begun to compute a request.
func (d *Dispatcher) Started(res router.Reservation) {
	d.With(func(r *router.Router, now time.Duration) { r.Begun(now, res) })
}

// Progress records totals of a request: computed prompt tokens beyond the cached ones, and
// output tokens.
func (d *Dispatcher) Progress(res router.Reservation, computed, output int) {
	d.change(func(r *router.Router, now time.Duration) { // the first output may free a slot for a waiting request
		r.Progress(now, res, computed, output)
		d.notePeers()
	})
}

// Release ends the reservation of a request whose answer is complete.
func (d *Dispatcher) Release(res router.Reservation) { d.finish(res, (*router.Router).Release) }

// Abandon ends the reservation of a request whose answer broke off.
func (d *Dispatcher) Abandon(res router.Reservation) { d.finish(res, (*router.Router).Abandon) }

// Rollback ends the reservation of a request that never reached its worker.
func (d *Dispatcher) Rollback(res router.Reservation) { d.finish(res, (*router.Router).Rollback) }

// ending is one of the router's methods Release, Abandon and Rollback.
type ending func(*router.Router, time.Duration, router.Reservation) bool

// finish ends a reservation by calling how, and serves waiting requests.
func (d *Dispatcher) finish(res router.Reservation, how ending) {
	d.With(func(_ *router.Router, now time.Duration) { d.end(res, now, how) })
}

// end is finish for a caller that holds the mutex.
func (d *Dispatcher) end(res router.Reservation, now time.Duration, how ending) {
	delete(d.open, res)
	how(d.router, now, res)
	d.notePeers()
	d.pump(now)
}

// Tick must be called once a second. It renews this router's open reservations, ends
// reservations without progress for Router.Expiry, removes old guesses, and tells the router how
// many blocks the index has for each worker.
func (d *Dispatcher) Tick() {
	held := map[kv.Rank]int{}
	for _, l := range d.Loads() { // the index may block, so query it without the mutex
		held[l.Worker] = d.index.Held(l.Worker)
	}
	d.change(func(r *router.Router, now time.Duration) {
		for res := range d.open {
			r.Progress(now, res, 0, 0)
		}
		d.expired = r.Expire(now, d.expired[:0])
		d.guesses.Expire(now)
		for w, blocks := range held {
			r.SetTree(w, blocks)
		}
	})
}

// Loads returns the predicted load of every rank, ascending by rank.
func (d *Dispatcher) Loads() (all []router.Load) {
	d.With(func(r *router.Router, now time.Duration) { all = r.Loads(now, nil) })
	return all
}

// Metrics returns the router's counters and the number of guessed blocks.
func (d *Dispatcher) Metrics() (m router.Metrics, guessed int) {
	d.With(func(r *router.Router, _ time.Duration) {
		m, guessed = r.Metrics(), d.guesses.Index().Stats().HolderBlocks
	})
	return m, guessed
}

// Index returns the index built from the workers' events.
func (d *Dispatcher) Index() *residency.Residency { return d.index }

// Weights returns the current weights of the policy.
func (d *Dispatcher) Weights() (w router.Weights) {
	d.With(func(r *router.Router, _ time.Duration) { w = r.Weights() })
	return w
}

// ChangeWeights calls change with a copy of the current weights, and sets the weights to what
// change leaves there. On an error, of change or for invalid weights, nothing changes. Calls run
// one after the other, so two callers that change different weights do not undo each other's
// change.
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
