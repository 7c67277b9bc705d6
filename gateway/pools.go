package gateway

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/router/global"
)

// pools are the first of two stages: the groups of workers of which one is chosen for a
// request before its worker is. nil: there are none.
type pools struct {
	names  []string                 // pool i+1 is names[i]
	byName map[string]router.PoolID // as workers say it; nil under buckets
	grid   *global.Config           // nil under buckets
	stage  router.Staging           // of buckets

	mu      sync.Mutex // over its turn
	buckets *router.Buckets

	// Under the gateway's mu: when each worker was last healthy, and where it was dealt to.
	seen   map[router.WorkerID]time.Time
	places map[router.WorkerID]router.PoolID
}

// validatePools reports what is wrong with the first stage.
func (c *Config) validatePools() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("gateway: "+format, args...)) }
	if c.Buckets < 0 || c.Buckets > router.MaxBuckets {
		bad("Buckets is %d, want 1 to %d, or 0 for none", c.Buckets, router.MaxBuckets)
	}
	p := c.Pools
	if p == nil {
		return errors.Join(errs...)
	}
	if c.Buckets != 0 {
		bad("both Pools and Buckets are given: workers are in one pool each, want one of the two")
	}
	if p.Mode != global.Aggregated {
		bad("Pools has mode %v, want %v: the gateway sends a request to one worker, which computes its prompt and generates", p.Mode, global.Aggregated)
		return errors.Join(errs...)
	}
	errs = append(errs, p.Validate())
	for i, name := range p.Aggregated.Names {
		if err := card.CheckPool(name); err != nil {
			bad("pool %d: %w", i, err)
		}
		if slices.Index(p.Aggregated.Names, name) < i {
			bad("pool %d is called %.100q as another one is, want a name for each", i, name)
		}
	}
	return errors.Join(errs...)
}

// newPools is the first stage of a configuration that is valid.
func newPools(cfg *Config) (*pools, error) {
	switch {
	case cfg.Pools != nil:
		p := &pools{grid: cfg.Pools, names: cfg.Pools.Aggregated.Names, byName: map[string]router.PoolID{}}
		for i, name := range p.names {
			p.byName[name] = router.PoolID(i + 1)
		}
		return p, nil
	case cfg.Buckets > 0:
		b, err := router.NewBuckets(cfg.Buckets, cfg.Stage, cfg.Router.PrefixBlocks)
		p := &pools{buckets: b, stage: cfg.Stage, seen: map[router.WorkerID]time.Time{}, places: map[router.WorkerID]router.PoolID{}}
		for i := range cfg.Buckets {
			p.names = append(p.names, fmt.Sprintf("bucket-%d", i))
		}
		return p, err
	}
	return nil, nil
}

// String says what chooses a pool.
func (p *pools) String() string {
	switch {
	case p == nil:
		return ""
	case p.grid != nil:
		return fmt.Sprintf("%d by length and targets", len(p.names))
	}
	return fmt.Sprintf("%d buckets by %v", len(p.names), p.stage)
}

// name is that of a pool, "" of none.
func (p *pools) name(id router.PoolID) string {
	if p == nil || id == 0 {
		return ""
	}
	return p.names[id-1]
}

// admits refuses a worker that is in no pool that there is.
func (p *pools) admits(m *member, c *card.Card) error {
	switch {
	case p == nil || p.grid == nil || p.byName[c.Pool] != 0:
		return nil
	case c.Pool == "":
		return refuse("worker %s is in no pool, so no request would go there: give it one of %.400q, by --pool or in the workers' file", m.url, p.names)
	}
	return refuse("worker %s is in pool %q, which the pools' file does not name, so no request would go there: there are %.400q", m.url, c.Pool, p.names)
}

// keepsPlace is how long a worker that is not healthy, or has gone, keeps its place in a
// bucket: a restart with a model to load moves nobody else.
const keepsPlace = 2 * time.Minute

// inPool is who serves a model in a pool; model "" is all who are there.
type inPool struct {
	pool  router.PoolID
	model string
}

// group puts the workers into their pools, in the roll and in the router. The caller holds
// the gateway's mu, and has written the rest of the roll.
func (g *Gateway) group(r *roll, now time.Time) {
	p := g.pools
	if p == nil {
		return
	}
	if p.grid == nil {
		g.deal(now)
	}
	r.pools, r.pooled = map[router.WorkerID]router.PoolID{}, map[inPool]int{}
	moves := make(map[router.Worker]router.PoolID, len(r.byID))
	for id, m := range r.byID {
		m.mu.Lock()
		pool := p.places[id]
		if p.grid != nil && m.card != nil {
			pool = p.byName[m.card.Pool]
		}
		if m.state == Healthy {
			r.pooled[inPool{pool: pool}]++
			for _, name := range m.models {
				r.pooled[inPool{pool, name}]++
			}
		}
		m.mu.Unlock()
		r.pools[id] = pool
		for rank := range m.given.Ranks {
			moves[router.Worker{ID: id, Rank: uint32(rank)}] = pool
		}
	}
	g.chooser.setPools(moves)
}

// deal deals the workers that were healthy within keepsPlace into buckets, anew if they are
// others than before.
func (g *Gateway) deal(now time.Time) {
	p := g.pools
	if !g.sighted(now) {
		return
	}
	ids := make([]router.WorkerID, 0, len(p.seen))
	for id := range p.seen {
		ids = append(ids, id)
	}
	moved := 0
	dealt := make(map[router.WorkerID]router.PoolID, len(ids))
	for i, bucket := range router.Deal(ids, len(p.names), nil) {
		dealt[ids[i]] = router.PoolID(bucket + 1)
		if was, ok := p.places[ids[i]]; ok && was != dealt[ids[i]] {
			moved++
		}
	}
	g.log.Info("workers dealt into buckets", zap.Int("workers", len(ids)), zap.Int("buckets", len(p.names)), zap.Int("moved", moved))
	p.places = dealt
}

// sighted notes who is healthy and forgets who was not for too long. It tells whether
// there are others to be dealt than were. The caller holds the gateway's mu.
func (g *Gateway) sighted(now time.Time) bool {
	p := g.pools
	for id, m := range g.claims {
		m.mu.Lock()
		healthy := m.state == Healthy
		m.mu.Unlock()
		if healthy {
			p.seen[router.WorkerID(id)] = now
		}
	}
	for id, at := range p.seen {
		// Of those who come and go under ever new names, no more are kept than may be there.
		if now.Sub(at) >= keepsPlace || at != now && len(p.seen) > g.maxMembers() {
			delete(p.seen, id)
		}
	}
	if len(p.seen) != len(p.places) {
		return true
	}
	for id := range p.seen {
		if _, ok := p.places[id]; !ok {
			return true
		}
	}
	return false
}

// regroup deals anew where somebody has lost its place by now.
func (g *Gateway) regroup(now time.Time) {
	if g.pools == nil || g.pools.grid != nil {
		return
	}
	g.mu.Lock()
	changed := g.sighted(now)
	g.mu.Unlock()
	if changed {
		g.enrollAt(now)
	}
}

// setPools says which pool each worker is in.
func (c *chooser) setPools(moves map[router.Worker]router.PoolID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	for w, pool := range moves {
		c.router.SetPool(now, w, pool) // one that has not joined is told of again when it has
	}
	c.pump(now) // who waits for a pool may have somebody there now, or nobody any more
}

// sessionPool is where the session of a request has its worker, 0 if nowhere.
func (c *chooser) sessionPool(req *router.Request) router.PoolID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.router.SessionPool(c.now(), req)
}
