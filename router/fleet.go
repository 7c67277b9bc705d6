package router

import (
	"fmt"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// fleet holds the workers by slot, and lists them by model and pool, so that a choice
// looks only at workers that may run the request.
type fleet struct {
	cfg          *Config
	now          time.Duration // the latest time that any call gave
	workers      []worker
	freeSlots    []int32
	slotOfWorker table
	groups       map[group][]int32 // slots of a group's workers, ordered by worker; the zero group has all
	stalled      int               // number of stalled workers
}

// group is a model, a pool, or a model in a pool. A zero field means any.
type group struct {
	model ModelID
	pool  PoolID
}

func newFleet(cfg *Config) fleet {
	return fleet{cfg: cfg, slotOfWorker: newTable(mix(cfg.Seed, 1)), groups: map[group][]int32{{}: nil}}
}

// keyOf returns the key of a worker in slotOfWorker.
func keyOf(r kv.Rank) key { return key{uint64(r.Worker), r.DP} }

// slotOf returns the slot of a worker, or noEntry.
func (f *fleet) slotOf(w kv.Rank) int32 { return f.slotOfWorker.get(keyOf(w)) }

// find returns a worker, or [ErrUnknownWorker].
func (f *fleet) find(w kv.Rank) (*worker, error) {
	slot := f.slotOf(w)
	if slot == noEntry {
		return nil, fmt.Errorf("%w: %v", ErrUnknownWorker, w)
	}
	return &f.workers[slot], nil
}

// all returns the slots of all workers, ordered by worker.
func (f *fleet) all() []int32 { return f.groups[group{}] }

// serving returns the slots of the workers of the request's model and pool.
func (f *fleet) serving(req *Request) []int32 { return f.groups[group{req.Model, req.Pool}] }

// groupsOf returns the groups of a worker. Example: models 7 and 9 in pool 2 give any,
// 7, 9, any in 2, 7 in 2, 9 in 2.
func groupsOf(spec *WorkerSpec) []group {
	all := []group{{}}
	for _, id := range spec.Models {
		all = append(all, group{model: id})
	}
	if spec.Pool != 0 {
		for _, g := range all[:len(all):len(all)] {
			all = append(all, group{g.model, spec.Pool})
		}
	}
	return all
}

// readSpec checks the spec of worker w and completes it in place: a zero profile becomes the
// default profile, and Models becomes a sorted copy without repeats. Errors: *[BlockSizeError],
// or [ErrWorkerSpec] for any other fault.
func (f *fleet) readSpec(w kv.Rank, spec *WorkerSpec) error {
	if spec.BlockTokens != f.cfg.BlockTokens {
		return &BlockSizeError{w, spec.BlockTokens, f.cfg.BlockTokens}
	}
	for _, field := range []struct {
		name  string
		value int
	}{{"TotalBlocks", spec.TotalBlocks}, {"BatchTokens", spec.BatchTokens}, {"MaxRequests", spec.MaxRequests}, {"ChunkTokens", spec.ChunkTokens}, {"HitTokens", spec.HitTokens}} {
		if field.value < 0 || field.value > maxCount {
			return fmt.Errorf("%w %v: %s is %d, want 0 (unknown) to %d", ErrWorkerSpec, w, field.name, field.value, maxCount)
		}
	}
	if err := spec.Profile.Validate(); err != nil {
		return fmt.Errorf("%w %v: %w", ErrWorkerSpec, w, err)
	}
	if spec.Profile == (Profile{}) {
		spec.Profile = f.cfg.Profile
	}
	if len(spec.Models) > MaxWorkerModels {
		return fmt.Errorf("%w %v: it has %d models, want at most MaxWorkerModels (%d)", ErrWorkerSpec, w, len(spec.Models), MaxWorkerModels)
	}
	spec.Models = slices.Compact(slices.Sorted(slices.Values(spec.Models)))
	if len(spec.Models) > 0 && spec.Models[0] == 0 {
		return fmt.Errorf("%w %v: one of its models is 0, which means any: give it another number", ErrWorkerSpec, w)
	}
	fresh, known := 0, 0
	for _, id := range spec.Models {
		if _, ok := f.groups[group{model: id}]; !ok {
			fresh++
		}
	}
	for g := range f.groups {
		if g.model != 0 && g.pool == 0 {
			known++
		}
	}
	if known+fresh > f.cfg.MaxModels {
		return fmt.Errorf("%w %v: it adds %d models to %d, want at most MaxModels (%d) in all", ErrWorkerSpec, w, fresh, known, f.cfg.MaxModels)
	}
	return nil
}

// join adds worker w, or changes the spec of a known one and makes it healthy. It returns the
// worker's slot. Errors are those of [Router.Join].
func (f *fleet) join(w kv.Rank, spec WorkerSpec) (int32, error) {
	if err := f.readSpec(w, &spec); err != nil {
		return noEntry, err
	}
	if slot := f.slotOf(w); slot != noEntry {
		f.delist(slot)
		f.workers[slot].spec, f.workers[slot].health = spec, Healthy
		f.enlist(slot)
		return slot, nil
	}
	if len(f.all()) == f.cfg.MaxWorkers {
		return noEntry, fmt.Errorf("%w (%d): worker %v", ErrWorkersFull, f.cfg.MaxWorkers, w)
	}
	slot := occupy(&f.workers, &f.freeSlots)
	f.workers[slot] = worker{id: w, spec: spec, active: emptyList(byWorker), prefillingQueue: emptyList(byPrefill), debts: noDebts()}
	f.slotOfWorker.put(keyOf(w), slot)
	f.enlist(slot)
	return slot, nil
}

// leave removes the worker in slot and frees the slot. The worker must have no reservations.
func (f *fleet) leave(slot int32) {
	w := &f.workers[slot]
	f.slotOfWorker.delete(keyOf(w.id))
	f.unstall(w)
	f.delist(slot)
	*w = worker{}
	f.freeSlots = append(f.freeSlots, slot)
}

// enlist inserts the worker in slot into the lists of its groups, which are ordered by worker.
func (f *fleet) enlist(slot int32) {
	w := &f.workers[slot]
	for _, g := range groupsOf(&w.spec) {
		of := f.groups[g]
		at, _ := slices.BinarySearchFunc(of, w.id, func(s int32, id kv.Rank) int { return f.workers[s].id.Compare(id) })
		f.groups[g] = slices.Insert(of, at, slot)
	}
}

// delist removes the worker in slot from the lists of its groups, and deletes lists that are
// then empty.
func (f *fleet) delist(slot int32) {
	for _, g := range groupsOf(&f.workers[slot].spec) {
		f.groups[g] = slices.DeleteFunc(f.groups[g], func(s int32) bool { return s == slot })
		if len(f.groups[g]) == 0 && g != (group{}) {
			delete(f.groups, g)
		}
	}
}

// setPool moves the worker in slot to a pool. With pool 0 the worker is in no pool.
func (f *fleet) setPool(slot int32, pool PoolID) {
	f.delist(slot)
	f.workers[slot].spec.Pool = pool
	f.enlist(slot)
}

// prospects reports whether any worker may run req, and whether one of those workers is free,
// that is, not busy. If some eligible workers are stalled and others are not, the stalled ones
// are ignored. It costs one step per worker, up to the first free one.
func (f *fleet) prospects(req *Request) (any, free bool) {
	var late, lateFree bool
	for _, slot := range f.serving(req) {
		w := &f.workers[slot]
		switch busy := w.busy(f.cfg.BusyFactor); {
		case !w.eligible(req):
		case w.stalled:
			late, lateFree = true, lateFree || !busy
		case !busy:
			return true, true
		default:
			any = true
		}
	}
	if any {
		return true, false
	}
	return late, lateFree
}

// allBusy reports whether every eligible worker is busy. It is false if no worker is
// eligible: such a request fails instead of waiting.
func (f *fleet) allBusy(req *Request) bool {
	any, free := f.prospects(req)
	return any && !free
}

// anyFree reports whether any healthy worker is free, whatever it serves.
func (f *fleet) anyFree() bool {
	return slices.ContainsFunc(f.all(), func(slot int32) bool {
		w := &f.workers[slot]
		return w.health == Healthy && !w.busy(f.cfg.BusyFactor)
	})
}

// anyEligible reports whether any worker may run req.
func (f *fleet) anyEligible(req *Request) bool {
	return slices.ContainsFunc(f.serving(req), func(slot int32) bool { return f.workers[slot].eligible(req) })
}

// candidates appends the slots of the workers that may be chosen for req to dst,
// ordered by worker. Stalled workers are candidates only if there are no others: a slow
// answer is better than none.
func (f *fleet) candidates(req *Request, dst []int32) []int32 {
	for _, stalled := range [...]bool{false, true} {
		for _, slot := range f.serving(req) {
			if w := &f.workers[slot]; w.stalled == stalled && w.eligible(req) {
				dst = append(dst, slot)
			}
		}
		if len(dst) > 0 || f.stalled == 0 {
			break
		}
	}
	return dst
}

// noteProgress notes that a worker makes progress now.
func (f *fleet) noteProgress(w *worker) {
	w.heard = f.now
	f.unstall(w)
}

// unstall makes a stalled worker a normal candidate again.
func (f *fleet) unstall(w *worker) {
	if w.stalled {
		w.stalled = false
		f.stalled--
	}
}
