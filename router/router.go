package router

import (
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// Router chooses workers and keeps their predicted load. One goroutine owns it.
//
// The parts are embedded so that each can be read alone: fleet (workers), ledger
// (reservations and loads), replicas (other routers). scorer is the scratch of one
// choice.
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
	choices  uint64          // requests that got a worker; orders lastChosen for round robin
	lastID   uint64          // of a reservation; never reused, so a stale handle is recognised
	selected [reasons]uint64 // choices by Reason
}

// New returns a router without workers. The error lists all faults of cfg.
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

// SetWeights changes the weights for all later requests, except requests that bring
// their own.
func (r *Router) SetWeights(w Weights) error {
	if err := w.Validate(); err != nil {
		return err
	}
	r.cfg.Weights = w
	return nil
}

// Weights returns the weights in force.
func (r *Router) Weights() Weights { return r.cfg.Weights }

// BlockTokens returns the block size in tokens.
func (r *Router) BlockTokens() int { return r.cfg.BlockTokens }

// advance sets the router's time to now. An earlier time than the last one is ignored, because
// callers on several goroutines may read the clock before they take the lock. Workers are
// checked for stalls only when one of them can be late (after nextLate), not in each call.
func (r *Router) advance(now time.Duration) {
	if r.now = max(r.now, now); r.now > r.nextLate {
		r.markStalled()
	}
}

// Join adds a worker, or changes the spec of a known worker and makes it healthy. A
// known worker keeps its reservations, so a worker that restarted must Leave first.
//
// Errors: *[BlockSizeError] for another block size, [ErrWorkersFull] beyond MaxWorkers,
// [ErrWorkerSpec] for any other fault of the spec.
func (r *Router) Join(now time.Duration, w kv.Rank, spec WorkerSpec) error {
	r.advance(now)
	slot, err := r.join(w, spec)
	if err != nil {
		return err
	}
	r.updateNextLate(&r.workers[slot])
	r.verify()
	return nil
}

// Leave removes a worker and ends its reservations. It appends the reservations of this
// router to dst, oldest first: the caller must end those requests or send them
// elsewhere. An unknown worker is no error.
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
		r.end(at)
	}
	r.leave(slot)
	r.verify()
	return dst
}

// SetPool moves a worker to a pool. With pool 0 the worker is in no pool. Its reservations and
// its health stay. Requests that wait for the pool may get the worker from now on. Error:
// [ErrUnknownWorker].
func (r *Router) SetPool(now time.Duration, w kv.Rank, pool PoolID) error {
	r.advance(now)
	if _, err := r.find(w); err != nil {
		return err
	}
	r.setPool(r.slotOf(w), pool)
	r.verify()
	return nil
}

// SetHealth changes a worker's health. Errors: [ErrUnknownWorker], [ErrWorkerSpec] for
// an unknown value.
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
		r.unstall(at) // it answers, and owes nothing by which it could show progress
	}
	r.updateNextLate(at)
	return nil
}

// Report sets the figures of its load that worker w has measured itself; only [Cost2025] uses
// them. Reservations made after the report are added to these figures until the next report.
// Errors: [ErrUnknownWorker], [ErrWorkerSpec] for negative or too large figures.
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

// SetTree sets the number of blocks that the index has for worker w. Under [Cost2026], of
// workers with equal costs the one with the fewest blocks is chosen. An unknown worker is
// ignored.
func (r *Router) SetTree(w kv.Rank, blocks int) {
	if slot := r.slotOf(w); slot != noEntry {
		r.workers[slot].tree = blocks
	}
}

// Removed tells the router that worker w has removed blocks from its cache. In each prompt that
// predicts such a block, the predictions for this block and for all blocks after it end. It
// costs one step per block. A predicted block also costs one step per block of the prompts that
// the worker has yet to compute. An unknown worker is ignored.
func (r *Router) Removed(w kv.Rank, hashes []kv.BlockHash) {
	if slot := r.slotOf(w); slot != noEntry {
		r.removed(slot, hashes)
		r.verify()
	}
}

// Cleared tells the router that worker w has emptied its cache. All predictions for the worker
// end. An unknown worker is ignored.
func (r *Router) Cleared(w kv.Rank) {
	if slot := r.slotOf(w); slot != noEntry {
		r.cleared(slot)
		r.verify()
	}
}

// Load returns the predicted load of a worker, and whether the worker is known.
func (r *Router) Load(now time.Duration, w kv.Rank) (Load, bool) {
	at, err := r.find(w)
	if err != nil {
		return Load{}, false
	}
	return at.load(max(now, r.now), r.slab), true
}

// Loads appends the loads of all workers to dst, ordered by worker.
func (r *Router) Loads(now time.Duration, dst []Load) []Load {
	for _, slot := range r.all() {
		dst = append(dst, r.workers[slot].load(max(now, r.now), r.slab))
	}
	return dst
}

// Metrics are counts since the start, except Active, Waiting and Promised, which are current.
type Metrics struct {
	Active, Waiting int
	Promised        int // blocks that workers are predicted to compute, each counted once per worker

	Selected [reasons]uint64 // by Reason

	JournalLost uint64 // events for replicas that were dropped before a Drain
	Applied     uint64 // events from replicas
	Duplicate   uint64 // events from replicas that told nothing new
	Stale       uint64 // events of a past epoch or about an ended reservation
	Early       uint64 // events about a reservation whose Reserved event has not arrived
	Rejected    uint64 // events that are malformed, beyond a limit, or about an unknown worker
	Claims      uint64 // claims of replicas on sessions that were the latest
}

// Metrics returns the current counts.
func (r *Router) Metrics() Metrics {
	v := &r.verdicts
	return Metrics{
		Active: r.active, Waiting: r.queue.n, Promised: r.tree.promises.Len(), Selected: r.selected, JournalLost: r.journal.lost, Claims: r.sessions.claimsApplied,
		Applied: v[Applied] + v[Made], Duplicate: v[Duplicate], Stale: v[Stale], Early: v[Early], Rejected: v[Rejected],
	}
}
