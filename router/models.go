package router

import (
	"fmt"
	"slices"
)

// ModelID names what requests ask for and workers serve: a model, or an adapter of
// one. The caller chooses the numbers, a hash of the name will do. 0 is any model.
type ModelID uint64

// MaxWorkerModels bounds the models of one worker: each costs a step when the worker
// becomes busy, and when it is free again.
const MaxWorkerModels = 1024

// model is who serves one, and how many of them could be chosen. The counts are kept
// as workers change, so that who waits for a model need not look at its workers.
type model struct {
	id      ModelID
	order   []int32 // slots of its workers, by Worker
	healthy int     // of them
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
	engaged                 // healthy and busy
	ready                   // healthy and not busy
)

// serving is a model by its name.
func (r *Router) serving(id ModelID) *model {
	if id == 0 {
		return &r.models[anyModel]
	}
	at := r.indexOfModel.get(key{a: uint64(id)})
	if at == noEntry {
		at = noModel
	}
	return &r.models[at]
}

// serves tells whether requests of a model may go to a worker.
func (w *worker) serves(id ModelID) bool {
	if id == 0 {
		return true
	}
	_, ok := slices.BinarySearch(w.spec.Models, id)
	return ok
}

// readModels returns the models of a spec in order, each once.
func (r *Router) readModels(w Worker, models []ModelID) ([]ModelID, error) {
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
	if n := r.indexOfModel.n; n+fresh > r.cfg.MaxModels {
		return nil, fmt.Errorf("%w %v: %d of its models are new beside %d, want at most MaxModels (%d) in all", ErrWorkerSpec, w, fresh, n, r.cfg.MaxModels)
	}
	return models, nil
}

// enlist puts a worker among those of each of its models. It counts as unfit.
func (r *Router) enlist(slot int32) {
	w := &r.workers[slot]
	w.models = append(w.models[:0], anyModel)
	for _, id := range w.spec.Models {
		w.models = append(w.models, r.modelAt(id))
	}
	for _, m := range w.models {
		order := &r.models[m].order
		at, _ := slices.BinarySearchFunc(*order, w.id, func(s int32, id Worker) int { return r.workers[s].id.Compare(id) })
		*order = slices.Insert(*order, at, slot)
	}
}

// modelAt is the index of a model, made if it is new.
func (r *Router) modelAt(id ModelID) int32 {
	k := key{a: uint64(id)}
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
	r.models[at].id = id
	r.indexOfModel.put(k, at)
	return at
}

// delist takes a worker out of its models. Those without workers are forgotten.
func (r *Router) delist(slot int32) {
	r.stand(slot, unfit)
	for _, at := range r.workers[slot].models {
		m := &r.models[at]
		m.order = slices.DeleteFunc(m.order, func(s int32) bool { return s == slot })
		if len(m.order) == 0 && at >= fixedModels {
			r.indexOfModel.delete(key{a: uint64(m.id)})
			*m = model{}
			r.freeModels = append(r.freeModels, at)
		}
	}
}

// recount lets a worker count as what it is now: to be called whenever its health, its
// spec or its load has changed.
func (r *Router) recount(slot int32) {
	w := &r.workers[slot]
	r.gauges[slot] = r.measure(w)
	switch {
	case w.health != Healthy:
		r.stand(slot, unfit)
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
		if s != unfit {
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
// those is free. It costs O(1), and a step for each avoided worker where that matters.
func (r *Router) prospects(req *Request) (any, free bool) {
	if req.Pinned != nil {
		slot := r.slotOf(*req.Pinned)
		if slot == noEntry || !r.workers[slot].serves(req.Model) || slices.Contains(req.Avoid, *req.Pinned) {
			return false, false
		}
		s := r.workers[slot].standing
		return s != unfit, s == ready
	}
	m, most := r.serving(req.Model), len(req.Avoid)
	left, idle := m.healthy, m.free
	if most > 0 && idle <= most && (idle > 0 || left <= most) { // or the avoided are too few to change the answer
		r.marks++
		for _, a := range req.Avoid {
			slot := r.slotOf(a)
			if slot == noEntry || r.workers[slot].mark == r.marks || !r.workers[slot].serves(req.Model) {
				continue
			}
			w := &r.workers[slot]
			w.mark = r.marks
			if w.standing != unfit {
				left--
			}
			if w.standing == ready {
				idle--
			}
		}
	}
	return left > 0, idle > 0
}

// checkModels holds the models against the workers.
func (r *Router) checkModels() error {
	orders := make([][]int32, len(r.models))
	counts := make([]model, len(r.models))
	for _, slot := range r.models[anyModel].order {
		w := &r.workers[slot]
		fit, busy := w.health == Healthy, w.busy(r.cfg.BusyFactor)
		if (w.standing != unfit) != fit || (w.standing == ready) != (fit && !busy) {
			return fmt.Errorf("router: worker %v counts as %d, healthy %v, busy %v", w.id, w.standing, fit, busy)
		}
		if len(w.models) != 1+len(w.spec.Models) || w.models[0] != anyModel {
			return fmt.Errorf("router: worker %v is of models %v, it serves %v", w.id, w.models, w.spec.Models)
		}
		for i, at := range w.models {
			if i > 0 && r.models[at].id != w.spec.Models[i-1] {
				return fmt.Errorf("router: worker %v is among those of model %x, it serves %x", w.id, r.models[at].id, w.spec.Models[i-1])
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
	named := 0
	for at := range r.models {
		m := &r.models[at]
		if m.healthy != counts[at].healthy || m.free != counts[at].free || !slices.Equal(m.order, orders[at]) {
			return fmt.Errorf("router: model %x has workers %v, %d healthy, %d free; there are %v, %d, %d", m.id, m.order, m.healthy, m.free, orders[at], counts[at].healthy, counts[at].free)
		}
		if at < fixedModels || m.id == 0 {
			continue
		}
		named++
		if len(m.order) == 0 || int(r.indexOfModel.get(key{a: uint64(m.id)})) != at {
			return fmt.Errorf("router: model %x at %d has %d workers and is found at %d", m.id, at, len(m.order), r.indexOfModel.get(key{a: uint64(m.id)}))
		}
	}
	if named != r.indexOfModel.n || named+len(r.freeModels)+fixedModels != len(r.models) || len(r.models[noModel].order) != 0 {
		return fmt.Errorf("router: %d models, %d free, %d by name, %d in all", named, len(r.freeModels), r.indexOfModel.n, len(r.models))
	}
	return nil
}
