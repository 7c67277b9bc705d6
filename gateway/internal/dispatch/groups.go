package dispatch

import (
	"errors"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/gateway/internal/global"
	"github.com/coppice-llm/coppice/gateway/internal/members"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
)

// placeTTL is how long a worker that is unhealthy, or has left, keeps its place in a bucket. A
// restart that loads a model must not move other workers.
const placeTTL = 2 * time.Minute

// Pools returns the pools for new requests, nil if there are none.
func (d *Dispatcher) Pools() *Partition { return d.pools.Load() }

// SetPools replaces Config.Pools. Requests under way keep the old pools. The Dispatcher takes
// ownership of c. It is an error, and changes nothing, if c is invalid or the Dispatcher was
// made without Pools.
func (d *Dispatcher) SetPools(c *global.Config) error {
	if c == nil {
		return errors.New("gateway: Pools are nil, want at least one")
	}
	if err := (&Config{Pools: c}).ValidatePools(); err != nil {
		return err
	}
	d.places.Lock()
	defer d.places.Unlock()
	was := d.Pools()
	if !was.Grid() {
		return errors.New("gateway: pools can't be changed, because it was made without Pools")
	}
	d.pools.Store(gridPools(c, was))
	return nil
}

// Regroup assigns the workers of s to their pools: by the pool in their status with a grid, else
// by dealing them into buckets. It counts the healthy workers of each pool and of the fleet. s must
// be no older than that of the call before, else workers that have joined lose their pools.
func (d *Dispatcher) Regroup(s *members.Summary, now time.Time) {
	d.places.Lock()
	defer d.places.Unlock()
	p := d.Pools()
	if p != nil && !p.Grid() && d.places.see(s, now, d.cfg.Router.MaxWorkers) {
		d.deal(p)
	}
	g := &groups{pool: map[kv.WorkerID]router.PoolID{}, healthy: map[inPool]int{}}
	moves := make(map[kv.Rank]router.PoolID, len(s.ByID))
	for id, m := range s.ByID {
		of := m.Status()
		pool := d.places.bucket[id]
		if p.Grid() {
			pool = p.byName[of.Pool]
		}
		if of.State == members.Healthy {
			g.count(pool, of.Models)
		}
		g.pool[id] = pool
		for rank := range m.Ranks() {
			moves[kv.Rank{Worker: id, DP: uint32(rank)}] = pool
		}
	}
	d.groups.Store(g)
	if p == nil {
		return
	}
	// A request waiting for a pool may now have a worker there, or none at all.
	d.change(func(r *router.Router, now time.Duration) {
		for w, pool := range moves {
			r.SetPool(now, w, pool) // ranks that have not joined yet get their pool later
		}
	})
}

// count adds a healthy worker of a pool, 0 without pools.
func (g *groups) count(pool router.PoolID, models []string) {
	for _, in := range slices.Compact([]router.PoolID{0, pool}) {
		g.healthy[inPool{pool: in}]++
		for _, model := range models {
			g.healthy[inPool{in, model}]++
		}
	}
}

// deal divides the workers of places into the buckets of p. The caller holds the lock of places.
func (d *Dispatcher) deal(p *Partition) {
	ids := slices.Collect(maps.Keys(d.places.seen))
	moved, dealt := 0, make(map[kv.WorkerID]router.PoolID, len(ids))
	for i, bucket := range router.Deal(ids, len(p.names), nil) {
		dealt[ids[i]] = router.PoolID(bucket + 1)
		if was, ok := d.places.bucket[ids[i]]; ok && was != dealt[ids[i]] {
			moved++
		}
	}
	d.cfg.Log.Info("workers dealt into buckets", zap.Int("workers", len(ids)), zap.Int("buckets", len(p.names)), zap.Int("moved", moved))
	d.places.bucket = dealt
}

// see records which workers of s are healthy now, and forgets workers that have not been healthy
// for placeTTL. If there are more than most, it also forgets workers that are not healthy now.
// It reports whether the set of workers differs from the one that was dealt last. The caller
// holds the lock.
func (p *places) see(s *members.Summary, now time.Time, most int) (changed bool) {
	if p.seen == nil {
		p.seen = map[kv.WorkerID]time.Time{}
	}
	for id, m := range s.ByID {
		if m.Status().State == members.Healthy {
			p.seen[id] = now
		}
	}
	// Workers may come and go under ever new names: keep at most most of them.
	maps.DeleteFunc(p.seen, func(_ kv.WorkerID, at time.Time) bool {
		return now.Sub(at) >= placeTTL || at != now && len(p.seen) > most
	})
	return !maps.EqualFunc(p.seen, p.bucket, func(time.Time, router.PoolID) bool { return true })
}

// DealDue reports whether the workers must be divided into buckets again, because the set of workers
// that have a place has changed since Regroup. s is a summary of about now. The caller then calls
// Regroup with a summary that is no older than that of the latest Regroup.
func (d *Dispatcher) DealDue(s *members.Summary, now time.Time) bool {
	if p := d.Pools(); p == nil || p.Grid() {
		return false
	}
	d.places.Lock()
	defer d.places.Unlock()
	return d.places.see(s, now, d.cfg.Router.MaxWorkers)
}

// PoolSize returns the number of healthy workers in the named pool.
func (d *Dispatcher) PoolSize(name string) int {
	g, p := d.groups.Load(), d.Pools()
	for i, n := range p.Names() {
		if n == name {
			return g.healthy[inPool{pool: p.ids[i]}]
		}
	}
	return 0
}

// PoolOf returns the pool of a worker, 0 without pools.
func (d *Dispatcher) PoolOf(id kv.WorkerID) router.PoolID { return d.groups.Load().pool[id] }
