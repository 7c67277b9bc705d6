package gateway

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/router/global"
)

// pools are the first of two stages: the groups of workers of which one is chosen for a
// request before its worker is. nil: there are none. Those of a grid are replaced as a whole; a
// pool that is named again keeps its number, and no other gets that of one that is not.
type pools struct {
	names  []string
	ids    []router.PoolID          // of names
	last   router.PoolID            // that was given out
	byName map[string]router.PoolID // as workers say it; nil under buckets
	grid   *global.Config           // nil under buckets
	stage  router.Staging           // of buckets

	mu      sync.Mutex // over its turn
	buckets *router.Buckets

	// Under the gateway's mu: when each worker was last healthy, and where it was dealt to.
	seen   map[kv.WorkerID]time.Time
	places map[kv.WorkerID]router.PoolID
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
		return gridPools(cfg.Pools, &pools{}), nil
	case cfg.Buckets > 0:
		b, err := router.NewBuckets(cfg.Buckets, cfg.Stage, cfg.Router.PrefixBlocks)
		p := &pools{buckets: b, stage: cfg.Stage, seen: map[kv.WorkerID]time.Time{}, places: map[kv.WorkerID]router.PoolID{}}
		for i := range cfg.Buckets {
			p.names, p.ids = append(p.names, fmt.Sprintf("bucket-%d", i)), append(p.ids, router.PoolID(i+1))
		}
		return p, err
	}
	return nil, nil
}

// gridPools are those of a configuration that is valid, after others.
func gridPools(c *global.Config, before *pools) *pools {
	p := &pools{grid: c, names: c.Aggregated.Names, byName: map[string]router.PoolID{}, last: before.last}
	for _, name := range p.names {
		id := before.byName[name]
		if id == 0 {
			p.last++
			id = p.last
		}
		p.byName[name] = id
		p.ids = append(p.ids, id)
	}
	return p
}

// SetPools replaces Config.Pools, from the next request on: those on their way go on among the
// pools that there were. Workers of a pool that is not named any more are refused, and those of
// a new one come in. c belongs to the gateway. An error changes nothing: c is not valid, or
// the gateway was made without Pools.
func (g *Gateway) SetPools(c *global.Config) error {
	if c == nil {
		return errors.New("gateway: Pools are nil, want at least one")
	}
	if err := (&Config{Pools: c}).validatePools(); err != nil {
		return err
	}
	g.mu.Lock()
	was := g.pools.Load()
	if was == nil || was.grid == nil {
		g.mu.Unlock()
		return errors.New("gateway: it was made without Pools, want them in its Config")
	}
	p := gridPools(c, was)
	g.metrics.knows(p)
	g.pools.Store(p)
	g.mu.Unlock()
	g.enroll()
	for _, m := range g.all() {
		m.nudge()
	}
	return nil
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
	if i := slices.Index(p.ids, id); i >= 0 {
		return p.names[i]
	}
	return "" // of others than these
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
	p := g.pools.Load()
	if p == nil {
		return
	}
	if p.grid == nil {
		g.deal(now)
	}
	r.pools, r.pooled = map[kv.WorkerID]router.PoolID{}, map[inPool]int{}
	moves := make(map[kv.Rank]router.PoolID, len(r.byID))
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
			moves[kv.Rank{Worker: id, DP: uint32(rank)}] = pool
		}
	}
	g.chooser.setPools(moves)
}

// deal deals the workers that were healthy within keepsPlace into buckets, anew if they are
// others than before.
func (g *Gateway) deal(now time.Time) {
	p := g.pools.Load()
	if !g.sighted(now) {
		return
	}
	ids := make([]kv.WorkerID, 0, len(p.seen))
	for id := range p.seen {
		ids = append(ids, id)
	}
	moved := 0
	dealt := make(map[kv.WorkerID]router.PoolID, len(ids))
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
	p := g.pools.Load()
	for id, m := range g.claims {
		m.mu.Lock()
		healthy := m.state == Healthy
		m.mu.Unlock()
		if healthy {
			p.seen[kv.WorkerID(id)] = now
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
	if p := g.pools.Load(); p == nil || p.grid != nil {
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
func (c *chooser) setPools(moves map[kv.Rank]router.PoolID) {
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
