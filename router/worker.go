package router

import (
	"errors"
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

func keyOf(r kv.Rank) key { return key{uint64(r.Worker), r.DP} }

// WorkerSpec is what a worker says of itself when it joins. Zeros are unknown, but
// for BlockTokens.
type WorkerSpec struct {
	BlockTokens int // of its cache events; must be the router's
	TotalBlocks int // of its KV pool
	BatchTokens int // prompt tokens that a step of its takes at most
	MaxRequests int // requests that it runs at a time
	// ChunkTokens are those of a step that one long prompt takes at most while others
	// decode. Unknown counts as BatchTokens.
	ChunkTokens int
	// Models are what it serves, at most MaxWorkerModels, in any order. A worker of none
	// gets only requests of any model.
	Models []ModelID
	// Pool is the one that it is in, see SetPool. 0 is none.
	Pool PoolID
	// Profile is how long its steps take. The zero Profile is the router's.
	Profile Profile
}

// Health says whether a worker may be chosen.
type Health uint8

// The states of health.
const (
	Healthy  Health = iota
	Draining        // ends what it has, gets nothing new
	Lost            // does not answer; what it has counts until it is released
)

var healthNames = [...]string{"healthy", "draining", "lost"}

func (h Health) String() string {
	if int(h) < len(healthNames) {
		return healthNames[h]
	}
	return fmt.Sprintf("health(%d)", uint8(h))
}

// Usage is what a worker reports of itself.
type Usage struct {
	UsedBlocks int // of its KV pool
	Waiting    int // requests that it has not begun
}

// The errors about workers.
var (
	ErrUnknownWorker = errors.New("router: unknown worker, let it join first")
	ErrWorkerSpec    = errors.New("router: bad worker")
	ErrWorkersFull   = errors.New("router: as many workers as MaxWorkers")
)

// BlockSizeError refuses a worker whose blocks have another size than the
// router's: no hash of its would ever match, and every overlap be zero.
type BlockSizeError struct {
	Worker    kv.Rank
	Got, Want int // tokens
}

func (e *BlockSizeError) Error() string {
	return fmt.Sprintf("router: worker %v has blocks of %d tokens, the router of %d: start both with the same block size", e.Worker, e.Got, e.Want)
}

// worker is what the router knows of one. Its slot is its index in Router.workers.
type worker struct {
	id     kv.Rank
	spec   WorkerSpec
	health Health

	models   []int32 // of Router.models: all, then those of spec.Models
	standing standing
	kind     int32  // of Router.kinds
	mark     uint64 // by Router.prospects and Router.gather

	hashed        int           // distinct blocks of active prompts
	private       int           // blocks that one request alone has: outputs, prompts that must not be shared
	prefillTokens int           // of active requests, to be computed before their first token
	prefilling    int           // active requests before their first token
	requests      int           // active
	contextTokens int           // prompts and outputs of active requests, each by itself
	predicted     time.Duration // sum of what prefilling will take, by profile
	anchor        time.Duration // since when the first of prefilling is being computed
	heard         time.Duration // when a step of its ended, or the first one began, as far as is known

	reports
	tree            int    // blocks in the index, by SetTree
	lastChosen      uint64 // Router.choices when it was chosen last; 0 never
	active          list   // its reservations
	prefillingQueue list   // those before their first token, oldest first
	debts
}

// reports is what a worker said of itself last.
type reports struct {
	reported       bool
	usage          Usage
	reservedSince  int // requests reserved since the report
	blocksAtReport int // hashed + private, then
}

func (w *worker) blocks() int { return w.hashed + w.private }

// usedBlocks is what it reported and what was added since, or what is predicted.
func (w *worker) usedBlocks() int {
	if !w.reported {
		return w.blocks()
	}
	return max(0, w.usage.UsedBlocks+w.blocks()-w.blocksAtReport)
}

// waiting is what it reported and what was added since, or what is predicted.
func (w *worker) waiting() int {
	if !w.reported {
		return w.prefilling
	}
	return w.usage.Waiting + w.reservedSince
}

// busy tells whether it has as much as it should.
func (w *worker) busy(factor float64) bool {
	if w.spec.MaxRequests > 0 && w.requests >= w.spec.MaxRequests {
		return true
	}
	if factor == 0 {
		return false
	}
	batch := w.spec.BatchTokens
	if batch == 0 {
		batch = unknownBatchTokens
	}
	return float64(w.prefillTokens) > factor*float64(batch)
}

// unknownBatchTokens keeps a worker of unknown size from ever being busy; it is
// Dynamo's default.
const unknownBatchTokens = 10_000_000

// Join adds a worker, or changes the spec of one that is there and makes it
// healthy again; its reservations stay, so a worker that restarted must Leave
// first. A *[BlockSizeError] refuses another block size, [ErrWorkersFull] one too
// many, [ErrWorkerSpec] what else is wrong.
func (r *Router) Join(now time.Duration, w kv.Rank, spec WorkerSpec) error {
	r.advance(now)
	if spec.BlockTokens != r.cfg.BlockTokens {
		return &BlockSizeError{w, spec.BlockTokens, r.cfg.BlockTokens}
	}
	for _, f := range []struct {
		name  string
		value int
	}{{"TotalBlocks", spec.TotalBlocks}, {"BatchTokens", spec.BatchTokens}, {"MaxRequests", spec.MaxRequests}, {"ChunkTokens", spec.ChunkTokens}} {
		if f.value < 0 || f.value > maxCount {
			return fmt.Errorf("%w %v: %s is %d, want 0 (unknown) to %d", ErrWorkerSpec, w, f.name, f.value, maxCount)
		}
	}
	if err := spec.Profile.Validate(); err != nil {
		return fmt.Errorf("%w %v: %w", ErrWorkerSpec, w, err)
	}
	if spec.Profile == (Profile{}) {
		spec.Profile = r.cfg.Profile
	}
	models, err := r.readModels(w, spec.Models)
	if err != nil {
		return err
	}
	spec.Models = models
	if slot := r.slotOf(w); slot != noEntry {
		r.delist(slot)
		w := &r.workers[slot]
		r.kinds[w.kind].workers--
		w.spec, w.health = spec, Healthy
		r.kinds.join(w)
		r.enlist(slot)
		r.recount(slot)
		r.verify()
		return nil
	}
	if len(r.models[anyModel].order) == r.cfg.MaxWorkers {
		return fmt.Errorf("%w (%d): worker %v", ErrWorkersFull, r.cfg.MaxWorkers, w)
	}
	slot := r.takeSlot()
	r.workers[slot] = worker{id: w, spec: spec, active: emptyList(byWorker), prefillingQueue: emptyList(byPrefill), debts: noDebts()}
	r.seats[slot] = seat{w, true}
	r.kinds.join(&r.workers[slot])
	r.slotOfWorker.put(keyOf(w), slot)
	r.enlist(slot)
	r.recount(slot)
	r.verify()
	return nil
}

func (r *Router) takeSlot() int32 {
	if n := len(r.freeSlots); n > 0 {
		slot := r.freeSlots[n-1]
		r.freeSlots = r.freeSlots[:n-1]
		return slot
	}
	r.workers, r.gauges, r.seats = append(r.workers, worker{}), append(r.gauges, gauge{}), append(r.seats, seat{})
	r.tree.promises.requests = append(r.tree.promises.requests, 0)
	return int32(len(r.workers) - 1)
}

func (r *Router) slotOf(w kv.Rank) int32 { return r.slotOfWorker.get(keyOf(w)) }

// seat is who has a slot: Router.slotOfWorker the other way round, close together.
type seat struct {
	worker kv.Rank
	taken  bool
}

// seated tells whether a worker has a slot: to be asked where it is likely, as it costs
// less than slotOf.
func (r *Router) seated(slot int32, w kv.Rank) bool {
	return int(slot) < len(r.seats) && r.seats[slot] == seat{w, true}
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
	for {
		at := r.workers[slot].active.head
		if at == none {
			break
		}
		if e := &r.slab[at]; e.peer == ownPeer {
			dst = append(dst, Reservation{at, e.id})
		}
		r.end(at, ended)
	}
	r.slotOfWorker.delete(keyOf(w))
	r.unstall(&r.workers[slot])
	r.delist(slot)
	r.kinds[r.workers[slot].kind].workers--
	r.workers[slot], r.seats[slot] = worker{}, seat{}
	r.freeSlots = append(r.freeSlots, slot)
	return dst
}

// SetHealth changes a worker's state. [ErrUnknownWorker] tells of one that is not
// there.
func (r *Router) SetHealth(now time.Duration, w kv.Rank, health Health) error {
	r.advance(now)
	slot := r.slotOf(w)
	if slot == noEntry {
		return fmt.Errorf("%w: %v", ErrUnknownWorker, w)
	}
	if int(health) >= len(healthNames) {
		return fmt.Errorf("%w %v: health is %d, want 0 to %d", ErrWorkerSpec, w, health, len(healthNames)-1)
	}
	at := &r.workers[slot]
	at.health = health
	if health == Healthy && at.debts.clear() {
		r.unstall(at) // it answers, and owes nothing that could show more
	}
	r.recount(slot)
	return nil
}

// Report takes what a worker says of its load, for the policy [Cost2025]. What is
// reserved after it counts on top, until the next one.
func (r *Router) Report(now time.Duration, w kv.Rank, usage Usage) error {
	r.advance(now)
	slot := r.slotOf(w)
	if slot == noEntry {
		return fmt.Errorf("%w: %v", ErrUnknownWorker, w)
	}
	if usage.UsedBlocks < 0 || usage.UsedBlocks > maxCount || usage.Waiting < 0 || usage.Waiting > maxCount {
		return fmt.Errorf("%w %v: it reports %+v, want 0 to %d", ErrWorkerSpec, w, usage, maxCount)
	}
	at := &r.workers[slot]
	at.reported, at.usage, at.reservedSince, at.blocksAtReport = true, usage, 0, at.blocks()
	return nil
}

// SetTree says how many blocks of a worker the index has: the policy [Cost2026]
// breaks ties by it. A worker that is not there is left out.
func (r *Router) SetTree(w kv.Rank, blocks int) {
	if slot := r.slotOf(w); slot != noEntry {
		r.workers[slot].tree = blocks
	}
}

// Load is what a worker is predicted to have: its active requests as this router
// and its replicas know them.
type Load struct {
	Worker        kv.Rank
	Health        Health
	Stalled       bool // it is late with what it owes
	Requests      int  // active
	Prefilling    int  // of them before their first token
	PrefillTokens int  // still to be computed for those
	Blocks        int  // distinct ones of active requests
	ContextTokens int  // prompts and outputs of active requests
	Pending       time.Duration
}

// Load is the load of a worker, and whether there is one.
func (r *Router) Load(now time.Duration, w kv.Rank) (Load, bool) {
	slot := r.slotOf(w)
	if slot == noEntry {
		return Load{}, false
	}
	return r.load(max(now, r.now), slot), true
}

// Loads appends the loads of all workers to dst, in their order.
func (r *Router) Loads(now time.Duration, dst []Load) []Load {
	for _, slot := range r.models[anyModel].order {
		dst = append(dst, r.load(max(now, r.now), slot))
	}
	return dst
}

func (r *Router) load(now time.Duration, slot int32) Load {
	w := &r.workers[slot]
	return Load{
		Worker: w.id, Health: w.health, Stalled: w.stalled, Requests: w.requests, Prefilling: w.prefilling, PrefillTokens: w.prefillTokens,
		Blocks: w.blocks(), ContextTokens: w.contextTokens, Pending: r.gauges[slot].pending(now),
	}
}
