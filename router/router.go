package router

import (
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// Router chooses workers and keeps their predicted load. One goroutine owns it.
type Router struct {
	cfg *Config
	fleet
	ledger
	replicas
	scorer   scorer
	sessions sessions
	queue    queue
	journal  journal
	chance   draw
	choices  uint64 // requests that got a worker
	lastID   uint64 // of a reservation
	metrics  Metrics
}

// New returns a router without workers. The error has all faults of cfg.
func New(cfg Config) (*Router, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	r := &Router{cfg: &cfg, chance: draw{mix(cfg.Seed, 2)}}
	r.fleet, r.replicas, r.sessions = newFleet(&cfg), newReplicas(&cfg), newSessions(&cfg)
	r.ledger = newLedger(&cfg, &r.fleet)
	r.scorer = newScorer(&cfg, &r.fleet, &r.ledger)
	r.queue.cfg, r.journal.cfg = &cfg, &cfg
	return r, nil
}

// SetWeights changes the weights of all requests from now on that bring none of
// their own.
func (r *Router) SetWeights(w Weights) error {
	if err := w.Validate(); err != nil {
		return err
	}
	r.cfg.Weights = w
	return nil
}

// Weights are the ones in force.
func (r *Router) Weights() Weights { return r.cfg.Weights }

// BlockTokens is the block size.
func (r *Router) BlockTokens() int { return r.cfg.BlockTokens }

// advance takes the time. It never runs backwards: what comes late counts as now.
func (r *Router) advance(now time.Duration) {
	if r.now = max(r.now, now); r.now > r.nextLate {
		r.look()
	}
}

// Join adds a worker, or changes the spec of one that is there and makes it
// healthy again; its reservations stay, so a worker that restarted must Leave
// first. A *[BlockSizeError] refuses another block size, [ErrWorkersFull] one too
// many, [ErrWorkerSpec] what else is wrong.
func (r *Router) Join(now time.Duration, w kv.Rank, spec WorkerSpec) error {
	r.advance(now)
	slot, err := r.join(w, spec)
	if err != nil {
		return err
	}
	r.watch(&r.workers[slot])
	r.verify()
	return nil
}

// Leave forgets a worker and ends the reservations on it. It appends those of this
// router to dst, oldest first: their requests must end or go elsewhere. A worker
// that is not there is no error.
func (r *Router) Leave(now time.Duration, w kv.Rank, dst []Reservation) []Reservation {
	r.advance(now)
	slot := r.slotOf(w)
	if slot == noEntry {
		return dst
	}
	for r.workers[slot].active.head != none {
		at := r.workers[slot].active.head
		if e := &r.slab[at]; e.peer == ownPeer {
			dst = append(dst, Reservation{at, e.id})
		}
		r.end(at, ended)
	}
	r.leave(slot)
	r.verify()
	return dst
}

// SetPool moves a worker into a pool, or out of all with 0. Its reservations and its
// health stay, and requests that wait for the pool find it there from now on.
// [ErrUnknownWorker] refuses one that is not there.
func (r *Router) SetPool(now time.Duration, w kv.Rank, pool PoolID) error {
	r.advance(now)
	if _, err := r.find(w); err != nil {
		return err
	}
	r.setPool(r.slotOf(w), pool)
	r.verify()
	return nil
}

// SetHealth changes a worker's state. [ErrUnknownWorker] refuses one that is not
// there.
func (r *Router) SetHealth(now time.Duration, w kv.Rank, health Health) error {
	r.advance(now)
	at, err := r.find(w)
	if err != nil {
		return err
	}
	if !healthNames.Has(health) {
		return fmt.Errorf("%w %v: its health is %v, want %s", ErrWorkerSpec, w, health, healthNames.Names())
	}
	at.health = health
	if health == Healthy && at.debts.clear() {
		r.unstall(at) // it answers, and owes nothing that could show more
	}
	r.watch(at)
	return nil
}

// Report takes what a worker says of its load, for the policy [Cost2025]. What is
// reserved after it counts on top, until the next one.
func (r *Router) Report(now time.Duration, w kv.Rank, usage Usage) error {
	r.advance(now)
	at, err := r.find(w)
	if err != nil {
		return err
	}
	if usage.UsedBlocks < 0 || usage.UsedBlocks > maxCount || usage.Waiting < 0 || usage.Waiting > maxCount {
		return fmt.Errorf("%w %v: it reports %+v, want 0 to %d", ErrWorkerSpec, w, usage, maxCount)
	}
	at.reports = reports{true, usage, 0, at.blocks()}
	return nil
}

// SetTree says how many blocks of a worker the index has: the policy [Cost2026]
// breaks ties by it. A worker that is not there is left out.
func (r *Router) SetTree(w kv.Rank, blocks int) {
	if slot := r.slotOf(w); slot != noEntry {
		r.workers[slot].tree = blocks
	}
}

// Removed says that blocks are gone from a worker's cache: what was predicted of them there,
// and of what comes after them, does not count any more. It costs a step for each block, and
// for one that was promised a step for each block of the prompts that the worker has yet to
// compute.
func (r *Router) Removed(w kv.Rank, hashes []kv.BlockHash) {
	if slot := r.slotOf(w); slot != noEntry {
		r.removed(slot, hashes)
		r.verify()
	}
}

// Cleared says that all is gone from a worker's cache.
func (r *Router) Cleared(w kv.Rank) {
	if slot := r.slotOf(w); slot != noEntry {
		r.cleared(slot)
		r.verify()
	}
}

// Load is the load of a worker, and whether there is one.
func (r *Router) Load(now time.Duration, w kv.Rank) (Load, bool) {
	at, err := r.find(w)
	if err != nil {
		return Load{}, false
	}
	return at.load(max(now, r.now), r.slab), true
}

// Loads appends the loads of all workers to dst, in their order.
func (r *Router) Loads(now time.Duration, dst []Load) []Load {
	for _, slot := range r.all() {
		dst = append(dst, r.workers[slot].load(max(now, r.now), r.slab))
	}
	return dst
}
