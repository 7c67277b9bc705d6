package router

import (
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// ModelID names what requests ask for and workers serve: a model, or an adapter of
// one. The caller chooses the numbers, a hash of the name will do. 0 is any model.
type ModelID uint64

// PoolID names a group of workers that requests may be restricted to: a worker is in one
// at a time, whatever it serves. The caller chooses the numbers. 0 is none for a worker,
// and any for a request.
type PoolID uint32

// MaxWorkerModels bounds the models of one worker: each costs a step when the worker
// becomes busy, and when it is free again.
const MaxWorkerModels = 1024

// model is who serves one, of all workers or of a pool, and how many of them could be
// chosen. The counts are kept as workers change, so that who waits for a model need not
// look at its workers.
type model struct {
	id      ModelID
	pool    PoolID
	order   []int32 // slots of its workers, by Worker
	healthy int     // of them, without those that are stalled
	free    int     // of the healthy, those that are not busy
}

// The models that are always there.
const (
	anyModel = iota // all workers
	noModel         // which nobody serves
	fixedModels
)

// standing is how a worker counts in its models.
type standing uint8

const (
	unfit   standing = iota // may not be chosen
	late                    // healthy and stalled: may be chosen where there is nobody else
	engaged                 // healthy and busy
	ready                   // healthy and not busy
)

// serving are the workers that a request may ask for, by model and pool.
func (r *Router) serving(req *Request) *model {
	if req.Model == 0 && req.Pool == 0 {
		return &r.models[anyModel]
	}
	at := r.indexOfModel.get(key{uint64(req.Model), uint32(req.Pool)})
	if at == noEntry {
		at = noModel
	}
	return &r.models[at]
}

// serves tells whether a worker is of the request's model and pool.
func (w *worker) serves(req *Request) bool {
	if req.Pool != 0 && w.spec.Pool != req.Pool {
		return false
	}
	if req.Model == 0 {
		return true
	}
	_, ok := slices.BinarySearch(w.spec.Models, req.Model)
	return ok
}

// readModels returns the models of a spec in order, each once.
func (r *Router) readModels(w kv.Rank, models []ModelID) ([]ModelID, error) {
	if len(models) > MaxWorkerModels {
		return nil, fmt.Errorf("%w %v: it has %d models, want at most MaxWorkerModels (%d)", ErrWorkerSpec, w, len(models), MaxWorkerModels)
	}
	models = slices.Clone(models)
	slices.Sort(models)
	models = slices.Compact(models)
	if len(models) > 0 && models[0] == 0 {
		return nil, fmt.Errorf("%w %v: one of its models is 0, which stands for any: name another", ErrWorkerSpec, w)
	}
	fresh := 0
	for _, id := range models {
		if r.indexOfModel.get(key{a: uint64(id)}) == noEntry {
			fresh++
		}
	}
	if n := r.named; n+fresh > r.cfg.MaxModels {
		return nil, fmt.Errorf("%w %v: %d of its models are new beside %d, want at most MaxModels (%d) in all", ErrWorkerSpec, w, fresh, n, r.cfg.MaxModels)
	}
	return models, nil
}

// enlist puts a worker among those of each of its models, and of each of them in its pool.
// It counts as unfit.
func (r *Router) enlist(slot int32) {
	w := &r.workers[slot]
	w.models = append(w.models[:0], anyModel)
	for _, id := range w.spec.Models {
		w.models = append(w.models, r.modelAt(id, 0))
	}
	if pool := w.spec.Pool; pool != 0 {
		w.models = append(w.models, r.modelAt(0, pool))
		for _, id := range w.spec.Models {
			w.models = append(w.models, r.modelAt(id, pool))
		}
	}
	for _, m := range w.models {
		order := &r.models[m].order
		at, _ := slices.BinarySearchFunc(*order, w.id, func(s int32, id kv.Rank) int { return r.workers[s].id.Compare(id) })
		*order = slices.Insert(*order, at, slot)
	}
}

// modelAt is the index of a model in a pool, or in all for 0, made if it is new.
func (r *Router) modelAt(id ModelID, pool PoolID) int32 {
	k := key{uint64(id), uint32(pool)}
	at := r.indexOfModel.get(k)
	if at != noEntry {
		return at
	}
	if n := len(r.freeModels); n > 0 {
		at = r.freeModels[n-1]
		r.freeModels = r.freeModels[:n-1]
	} else {
		at = int32(len(r.models))
		r.models = append(r.models, model{})
	}
	r.models[at].id, r.models[at].pool = id, pool
	r.indexOfModel.put(k, at)
	if pool == 0 {
		r.named++
	}
	return at
}

// delist takes a worker out of its models. Those without workers are forgotten.
func (r *Router) delist(slot int32) {
	r.stand(slot, unfit)
	for _, at := range r.workers[slot].models {
		m := &r.models[at]
		m.order = slices.DeleteFunc(m.order, func(s int32) bool { return s == slot })
		if len(m.order) == 0 && at >= fixedModels {
			r.indexOfModel.delete(key{uint64(m.id), uint32(m.pool)})
			if m.pool == 0 {
				r.named--
			}
			*m = model{}
			r.freeModels = append(r.freeModels, at)
		}
	}
}

// recount lets a worker count as what it is now: to be called whenever its health, its
// spec or its load has changed.
func (r *Router) recount(slot int32) {
	w := &r.workers[slot]
	r.gauges[slot] = w.measure(r.kinds, r.slab)
	r.nextLate = min(r.nextLate, w.lateAt(r, slot))
	switch {
	case w.health != Healthy:
		r.stand(slot, unfit)
	case w.stalled:
		r.stand(slot, late)
	case w.busy(r.cfg.BusyFactor):
		r.stand(slot, engaged)
	default:
		r.stand(slot, ready)
	}
}

func (r *Router) stand(slot int32, now standing) {
	w := &r.workers[slot]
	if w.standing == now {
		return
	}
	var healthy, free int
	count := func(s standing, by int) {
		if s == engaged || s == ready {
			healthy += by
		}
		if s == ready {
			free += by
		}
	}
	count(w.standing, -1)
	count(now, 1)
	w.standing = now
	for _, at := range w.models {
		r.models[at].healthy += healthy
		r.models[at].free += free
	}
}

// prospects tells whether there is any worker that req may go to, and whether one of
// those is free: of those that are stalled, only where all are. It costs O(1), and a step
// for each avoided worker where that matters, or for each worker where all may be stalled.
func (r *Router) prospects(req *Request) (any, free bool) {
	defer func() {
		if !any && r.stalled > 0 {
			any, free = r.serving(req).late(r, req)
		}
	}()
	if req.Pinned != nil {
		slot := r.slotOf(*req.Pinned)
		if slot == noEntry || !r.workers[slot].serves(req) || slices.Contains(req.Avoid, *req.Pinned) {
			return false, false
		}
		s := r.workers[slot].standing
		return s == engaged || s == ready, s == ready
	}
	m, most := r.serving(req), len(req.Avoid)
	left, idle := m.healthy, m.free
	if most > 0 && idle <= most && (idle > 0 || left <= most) { // or the avoided are too few to change the answer
		r.marks++
		for _, a := range req.Avoid {
			slot := r.slotOf(a)
			if slot == noEntry || r.workers[slot].mark == r.marks || !r.workers[slot].serves(req) {
				continue
			}
			w := &r.workers[slot]
			w.mark = r.marks
			if w.standing == engaged || w.standing == ready {
				left--
			}
			if w.standing == ready {
				idle--
			}
		}
	}
	return left > 0, idle > 0
}

// late is prospects among the workers that are stalled.
func (m *model) late(r *Router, req *Request) (any, free bool) {
	for _, slot := range m.order {
		w := &r.workers[slot]
		if w.standing == late && (req.Pinned == nil || *req.Pinned == w.id) && !slices.Contains(req.Avoid, w.id) && w.serves(req) {
			any, free = true, free || !w.busy(r.cfg.BusyFactor)
		}
	}
	return any, free
}

// checkModels holds the models against the workers.
func checkModels(r *Router) error {
	orders := make([][]int32, len(r.models))
	counts := make([]model, len(r.models))
	for _, slot := range r.models[anyModel].order {
		w := &r.workers[slot]
		fit, busy := w.health == Healthy && !w.stalled, w.busy(r.cfg.BusyFactor)
		if (w.standing == late) != (w.health == Healthy && w.stalled) || (w.standing == engaged || w.standing == ready) != fit || (w.standing == ready) != (fit && !busy) {
			return fmt.Errorf("router: worker %v counts as %d, healthy %v, busy %v", w.id, w.standing, fit, busy)
		}
		want := []model{{}}
		for _, id := range w.spec.Models {
			want = append(want, model{id: id})
		}
		if n := len(want); w.spec.Pool != 0 {
			for _, m := range want[:n] {
				want = append(want, model{id: m.id, pool: w.spec.Pool})
			}
		}
		if len(w.models) != len(want) || w.models[0] != anyModel {
			return fmt.Errorf("router: worker %v is of models %v, it serves %v in pool %d", w.id, w.models, w.spec.Models, w.spec.Pool)
		}
		for i, at := range w.models {
			if m := &r.models[at]; m.id != want[i].id || m.pool != want[i].pool {
				return fmt.Errorf("router: worker %v is among those of model %x in pool %d, it serves %x in %d", w.id, m.id, m.pool, want[i].id, want[i].pool)
			}
			orders[at] = append(orders[at], slot)
			if fit {
				counts[at].healthy++
			}
			if fit && !busy {
				counts[at].free++
			}
		}
	}
	listed, named := 0, 0
	for at := range r.models {
		m := &r.models[at]
		if m.healthy != counts[at].healthy || m.free != counts[at].free || !slices.Equal(m.order, orders[at]) {
			return fmt.Errorf("router: model %x has workers %v, %d healthy, %d free; there are %v, %d, %d", m.id, m.order, m.healthy, m.free, orders[at], counts[at].healthy, counts[at].free)
		}
		if at < fixedModels || m.id == 0 && m.pool == 0 {
			continue
		}
		listed++
		if m.pool == 0 {
			named++
		}
		if found := int(r.indexOfModel.get(key{uint64(m.id), uint32(m.pool)})); len(m.order) == 0 || found != at {
			return fmt.Errorf("router: model %x in pool %d at %d has %d workers and is found at %d", m.id, m.pool, at, len(m.order), found)
		}
	}
	if named != r.named || listed != r.indexOfModel.n || listed+len(r.freeModels)+fixedModels != len(r.models) || len(r.models[noModel].order) != 0 {
		return fmt.Errorf("router: %d models, %d counted, %d in pools and not, %d free, %d by name, %d in all", named, r.named, listed, len(r.freeModels), r.indexOfModel.n, len(r.models))
	}
	return nil
}
