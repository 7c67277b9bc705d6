package gateway

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/coppice-llm/coppice/gateway/residency"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/router/kvindex"
)

// chooser is the router and what it chooses by, behind one mutex. What it waits for under
// the mutex is nothing.
type chooser struct {
	start       time.Time
	blockTokens int
	index       *residency.Residency

	weighing sync.Mutex // who changes weights holds it, before mu

	mu       sync.Mutex
	router   *router.Router
	guesses  *kvindex.Approximate // what workers without events may hold
	blind    map[kv.Rank]bool
	fresh    map[kv.Rank]bool // those that have joined and not said yet how they are
	longest  map[kv.Rank]int  // blocks of a prompt that it takes, if that is known
	open     map[router.Reservation]struct{}
	waiting  map[router.Ticket]waiter
	expired  []router.Expired
	ended    []router.Reservation
	verdicts []router.Verdict // scratch
	left     bool             // a worker has left, for replicas

	news, joined chan struct{} // hold one: events for replicas, and a worker; nil: there are none
}

// waiter is a request in the router's queue. Its goroutine waits, so its ask is the
// chooser's.
type waiter struct {
	ask  *ask
	told chan told // holds one
}

type told struct {
	decision router.Decision
	err      error
}

// ask is what a request wants to know, in memory that is used again.
type ask struct {
	hashes   kvindex.TokensWithHashes
	exact    bool // the hashes are those of workers' events
	req      router.Request
	known    []residency.Overlap
	guessed  []kvindex.Overlap
	overlaps []router.Overlap
}

// Reset forgets the request.
func (a *ask) Reset() {
	a.hashes.Reset(nil, kv.Namespace{})
	avoid := a.req.Avoid[:0]
	a.req = router.Request{Avoid: avoid}
	a.exact = false
}

func newChooser(cfg *Config, index *residency.Residency) (*chooser, error) {
	r, err := router.New(cfg.Router)
	if err != nil {
		return nil, err
	}
	c := &chooser{
		start: time.Now(), blockTokens: r.BlockTokens(), index: index, router: r, blind: map[kv.Rank]bool{}, fresh: map[kv.Rank]bool{}, longest: map[kv.Rank]int{},
		open: map[router.Reservation]struct{}{}, waiting: map[router.Ticket]waiter{},
	}
	guess := kvindex.ApproximateConfig{TTL: cfg.GuessTTL, Holders: cfg.Index.Index.Holders, Seed: cfg.Router.Seed, ByHash: true}
	if c.guesses, err = kvindex.NewApproximate(guess); err != nil {
		return nil, err
	}
	return c, nil
}

// now is the router's time.
func (c *chooser) now() time.Duration { return time.Since(c.start) }

// find fills in what workers have of the prompt. The caller holds the mutex but for the
// index, which was asked before.
func (c *chooser) find(a *ask) {
	a.overlaps = a.overlaps[:0]
	for i := range a.known {
		o := &a.known[i]
		a.overlaps = append(a.overlaps, router.Overlap{Worker: o.Holder, Device: o.Device, Host: o.Host, Disk: o.Disk, Shared: o.Shared, Object: o.Object})
	}
	a.guessed = c.guesses.FindChain(a.req.Hashes, a.guessed[:0])
	a.add()
	a.req.Overlaps = a.overlaps
}

// add lays the guesses over what is known.
func (a *ask) add() {
	if len(a.guessed) == 0 {
		return
	}
	slices.SortFunc(a.overlaps, func(x, y router.Overlap) int { return x.Worker.Compare(y.Worker) })
	slices.SortFunc(a.guessed, func(x, y kvindex.Overlap) int { return x.Holder.Compare(y.Holder) })
	i, known := 0, len(a.overlaps)
	for _, g := range a.guessed {
		w := g.Holder
		for i < known && a.overlaps[i].Worker.Compare(w) < 0 {
			i++
		}
		if i == known || a.overlaps[i].Worker != w {
			a.overlaps = append(a.overlaps, router.Overlap{Worker: w, Device: int(g.Blocks)})
		} else if o := &a.overlaps[i]; int(g.Blocks) > o.Blocks() {
			o.Device += int(g.Blocks) - o.Blocks()
		}
	}
}

// look asks the index, beside all others.
func (c *chooser) look(a *ask) {
	a.known = a.known[:0]
	if a.exact {
		a.known = c.index.Find(a.hashes.Locals(c.blockTokens), a.known)
	}
}

// errPatience refuses a request that waited for as long as it may.
var errPatience = errors.New("gateway: all workers were busy for as long as a request may wait")

// choose is the worker for a request, reserved; it waits while all are busy. Its time is
// what the choice took without that waiting. Errors: the router's, errPatience, ctx's.
func (c *chooser) choose(ctx context.Context, a *ask, patience time.Duration) (router.Decision, error) {
	c.look(a)
	c.mu.Lock()
	now := c.now()
	c.find(a)
	d, err := c.router.Select(now, &a.req)
	if err == nil {
		c.took(a, d, now)
	}
	if !errors.Is(err, router.ErrBusy) {
		c.mu.Unlock()
		return d, err
	}
	ticket, err := c.router.Wait(now, &a.req)
	if err != nil {
		c.mu.Unlock()
		return d, err
	}
	w := waiter{a, make(chan told, 1)}
	c.waiting[ticket] = w
	c.mu.Unlock()
	return c.wait(ctx, ticket, w, patience)
}

// wait is the rest of a choice that can't be made yet.
func (c *chooser) wait(ctx context.Context, ticket router.Ticket, w waiter, patience time.Duration) (router.Decision, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	var err error
	select {
	case t := <-w.told:
		return t.decision, t.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
		err = errPatience
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.router.Cancel(ticket) {
		delete(c.waiting, ticket)
		return router.Decision{}, err
	}
	t := <-w.told // it was its turn at this moment
	if t.err == nil && err != errPatience {
		c.end(t.decision.Reservation, (*router.Router).Rollback)
		return router.Decision{}, err
	}
	return t.decision, t.err
}

// took notes a choice.
func (c *chooser) took(a *ask, d router.Decision, now time.Duration) {
	c.open[d.Reservation] = struct{}{}
	c.tell()
	c.guess(d.Worker, a.req.Hashes, a.req.Untold, now)
}

// guess notes where a prompt was sent of which no event will tell.
func (c *chooser) guess(w kv.Rank, hashes []kv.BlockHash, untold bool, now time.Duration) {
	if !c.blind[w] && !untold {
		return
	}
	if most := c.longest[w]; most > 0 && len(hashes) > most {
		return // it will be refused, and not be there: a few of them would push all guesses out
	}
	if len(hashes) > 0 {
		c.guesses.RouteChain(w, hashes, now) // a guess that does not fit is none
	}
}

// pump gives their turn to those who wait, as far as there are workers.
func (c *chooser) pump(now time.Duration) {
	for {
		ticket, _, ok := c.router.Next(now)
		if !ok {
			return
		}
		w := c.waiting[ticket]
		c.look(w.ask)
		c.find(w.ask)
		d, err := c.router.Take(now, ticket, w.ask.overlaps)
		if errors.Is(err, router.ErrBusy) || errors.Is(err, router.ErrFull) {
			return
		}
		if err == nil {
			c.took(w.ask, d, now)
		}
		delete(c.waiting, ticket)
		w.told <- told{d, err}
	}
}

// progress says how far a request has come. Its first output may make room for others.
func (c *chooser) progress(res router.Reservation, computed, output int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	c.router.Progress(now, res, computed, output)
	c.tell()
	c.pump(now)
}

// started says that a worker has begun to compute a request.
func (c *chooser) started(res router.Reservation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.router.Begun(c.now(), res)
}

// release ends a request's reservation.
func (c *chooser) release(res router.Reservation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(res, (*router.Router).Release)
}

// abandon ends the reservation of a request whose answer did not come to its end.
func (c *chooser) abandon(res router.Reservation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(res, (*router.Router).Abandon)
}

// rollback ends one that never reached its worker.
func (c *chooser) rollback(res router.Reservation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(res, (*router.Router).Rollback)
}

func (c *chooser) end(res router.Reservation, how func(*router.Router, time.Duration, router.Reservation) bool) {
	now := c.now()
	delete(c.open, res)
	how(c.router, now, res)
	c.tell()
	c.pump(now)
}

// join has a worker known, to be chosen once it is healthy. A blind one tells nothing of
// its cache.
func (c *chooser) join(w kv.Rank, spec router.WorkerSpec, blind bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if err := c.router.Join(now, w, spec); err != nil {
		return err
	}
	delete(c.blind, w)
	if blind {
		c.blind[w] = true
	}
	c.fresh[w] = true
	c.meet()
	return c.router.SetHealth(now, w, router.Lost)
}

// respec changes what is known of a worker that has joined. Its health stays.
func (c *chooser) respec(w kv.Rank, spec router.WorkerSpec) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	was, _ := c.router.Load(now, w)
	if err := c.router.Join(now, w, spec); err != nil {
		return err
	}
	err := c.router.SetHealth(now, w, was.Health)
	c.pump(now) // who waits for a model may be served, or told that nobody serves it
	return err
}

// limit says how many blocks a prompt may have that a worker takes.
func (c *chooser) limit(w kv.Rank, blocks int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.longest[w] = blocks
}

// leave forgets a worker. Requests that run there end by themselves.
func (c *chooser) leave(w kv.Rank) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = c.router.Leave(c.now(), w, c.ended[:0])
	for _, res := range c.ended {
		delete(c.open, res)
	}
	delete(c.blind, w)
	delete(c.fresh, w)
	delete(c.longest, w)
	c.left = true
	c.tell()
	c.guesses.RemoveWorker(w.Worker) // its other ranks leave with it
	c.pump(c.now())                  // who waits for nobody any more is told
}

// unguess forgets what a worker may have. It stays known.
func (c *chooser) unguess(w kv.Rank) {
	c.guesses.Clear(w)
	c.router.Cleared(w)
}

// removed says that events tell of blocks that are gone from a worker.
func (c *chooser) removed(w kv.Rank, hashes []kv.BlockHash) {
	for part := range slices.Chunk(hashes, blocksAtOnce) {
		c.mu.Lock()
		c.router.Removed(w, part)
		c.mu.Unlock()
	}
}

// cleared says that events tell that nothing is left at a worker.
func (c *chooser) cleared(w kv.Rank) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.router.Cleared(w)
}

// sight has it seen whether a worker's events are heard. Then guesses of what it has are
// over. heard is asked under the mutex, so that of two who come with news the later one
// does not bring the older.
func (c *chooser) sight(w kv.Rank, heard func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	live := heard()
	if _, joined := c.router.Load(c.now(), w); !joined || c.blind[w] == !live {
		return
	}
	if live {
		delete(c.blind, w)
		c.guesses.Clear(w)
	} else {
		c.blind[w] = true
	}
}

// health says whether a worker may be chosen. What a lost one was guessed to have is
// forgotten.
func (c *chooser) health(w kv.Rank, h router.Health) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.fresh, w)
	if c.router.SetHealth(c.now(), w, h) != nil {
		return // it has not joined
	}
	if h == router.Lost {
		c.unguess(w)
	}
	c.pump(c.now()) // who waits for nobody any more is told
}

// tick renews what is open, ends what nobody answers for, and tells the policy of 2026
// how large the workers' trees are.
func (c *chooser) tick() {
	trees := c.trees()
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	for res := range c.open {
		c.router.Progress(now, res, 0, 0)
	}
	c.expired = c.router.Expire(now, c.expired[:0])
	c.guesses.Expire(now)
	for _, l := range trees {
		c.router.SetTree(l.worker, l.blocks)
	}
	c.pump(now)
}

type tree struct {
	worker kv.Rank
	blocks int
}

// trees asks the index, which may have to be waited for, without the mutex.
func (c *chooser) trees() []tree {
	loads := c.loads()
	all := make([]tree, len(loads))
	for i, l := range loads {
		all[i] = tree{l.Worker, c.index.Held(l.Worker)}
	}
	return all
}

// loads are the workers as the router sees them, by name order of their numbers.
func (c *chooser) loads() []router.Load {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.router.Loads(c.now(), nil)
}

// explain says what would be chosen, and why.
func (c *chooser) explain(a *ask) (router.Explanation, error) {
	c.look(a)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.find(a)
	e, err := c.router.Explain(c.now(), &a.req)
	slices.SortStableFunc(e.Candidates, func(x, y router.Candidate) int { return cmp.Compare(x.Cost, y.Cost) })
	return e, err
}

// metrics are the router's counts, what is guessed, and what is predicted.
func (c *chooser) metrics() (m router.Metrics, guessed, predicted int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m = c.router.Metrics()
	return m, c.guesses.Index().Stats().HolderBlocks, m.Promised
}

// weights are those in force; setWeights replaces them, and changeWeights changes them in one
// step, so that of two who change different ones neither is lost.
func (c *chooser) weights() router.Weights {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.router.Weights()
}

func (c *chooser) setWeights(w router.Weights) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.router.SetWeights(w)
}

func (c *chooser) changeWeights(change func(*router.Weights) error) error {
	c.weighing.Lock()
	defer c.weighing.Unlock()
	w := c.weights()
	if err := change(&w); err != nil {
		return err
	}
	return c.setWeights(w)
}
