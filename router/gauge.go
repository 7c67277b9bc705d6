package router

import (
	"fmt"
	"math"
	"time"
)

// gauge is what [CostLatency] reads of a worker, by slot: 72 bytes in a row where the worker
// is spread over several times that, as a choice looks at all of them. It changes with its
// worker, by Router.recount, and says nothing that the worker does not.
type gauge struct {
	// The pending prompts take until pendingEnd, and pendingRest at least: those but the
	// first, which may take longer than predicted. Both 0: there are none.
	pendingEnd, pendingRest time.Duration
	pendingSteps            float64       // that they take
	heard                   time.Duration // worker.heard
	step                    float64       // seconds of a step without prompts
	current                 float64       // seconds of the step under way, without what grows with prompts
	context                 float64       // tokens
	rows, running           int32         // active requests, and those of them that decode
	room                    int32         // free blocks of the pool, or so many that it does not matter
	kind                    int32         // of Router.kinds
}

// measure is the gauge of a worker as it is now.
func (w *worker) measure(kinds kinds, slab []reservation) gauge {
	k := &kinds[w.kind]
	rows, running, context := float64(w.requests), float64(w.requests-w.prefilling), float64(w.contextTokens)
	g := gauge{
		heard: w.heard, context: context, rows: int32(w.requests), running: int32(w.requests - w.prefilling), kind: w.kind,
		step: k.decode(running, context*running/max(rows, 1)) + k.Block*(float64(w.blocks())*running/max(rows, 1)), room: math.MaxInt32,
	}
	g.current = g.step
	if w.prefilling > 0 {
		g.current += k.Prompt
		g.pendingEnd = w.anchor + w.predicted
		g.pendingRest = w.predicted - slab[w.prefillingQueue.head].predicted
		g.pendingSteps = k.steps(float64(w.prefillTokens))
	}
	if w.spec.TotalBlocks > 0 {
		g.room = int32(max(math.MinInt32, min(w.spec.TotalBlocks-w.blocks(), math.MaxInt32)))
	}
	return g
}

// pending is how long the prompts before a new one will take: the predictions, less
// what has passed of the first.
func (g *gauge) pending(now time.Duration) time.Duration {
	return max(g.pendingRest, g.pendingEnd-now)
}

// underWay is how much longer the step takes that a worker is in: it began when the
// worker was heard of last, if that is not longer ago, and is in its midst otherwise.
func (g *gauge) underWay(now time.Duration) float64 {
	if g.rows == 0 {
		return 0
	}
	if since := inSeconds(now - g.heard); since < g.current {
		return g.current - since
	}
	return g.current / 2
}

// kind is what workers share whose steps take equally long.
type kind struct {
	Profile
	batch, chunk float64 // tokens
	workers      int     // of this kind; with none it may become another
}

// kinds are all that there are. One without workers is used again.
type kinds []kind

// join makes a worker one of the kind that its spec says.
func (all *kinds) join(w *worker) {
	k := kind{w.spec.Profile, w.spec.batch(), w.spec.chunk(), 0}
	at := len(*all)
	for i := range *all {
		k.workers = (*all)[i].workers
		if (*all)[i] == k {
			at = i
			break
		}
		if k.workers == 0 {
			at = i
		}
	}
	if at == len(*all) {
		*all = append(*all, kind{})
	}
	k.workers = (*all)[at].workers + 1
	(*all)[at] = k
	w.kind = int32(at)
}

// checkGauges holds gauges and seats against the workers, and kinds against their specs.
func checkGauges(r *Router) error {
	workers := make([]int, len(r.kinds))
	for _, slot := range r.models[anyModel].order {
		w := &r.workers[slot]
		if got, want := r.gauges[slot], w.measure(r.kinds, r.slab); got != want {
			return fmt.Errorf("router: the gauge of worker %v is %+v, it has %+v", w.id, got, want)
		}
		if r.seats[slot] != (seat{w.id, true}) {
			return fmt.Errorf("router: %+v is where worker %v is", r.seats[slot], w.id)
		}
		if k := r.kinds[w.kind]; k.Profile != w.spec.Profile || k.batch != w.spec.batch() || k.chunk != w.spec.chunk() {
			return fmt.Errorf("router: worker %v is of kind %+v, its spec is %+v", w.id, k, w.spec)
		}
		workers[w.kind]++
	}
	for _, slot := range r.freeSlots {
		if r.seats[slot].taken {
			return fmt.Errorf("router: worker %v is in slot %d, which is free", r.seats[slot].worker, slot)
		}
	}
	for i, k := range r.kinds {
		if k.workers != workers[i] {
			return fmt.Errorf("router: %d workers of kind %d, there are %d", k.workers, i, workers[i])
		}
	}
	return nil
}
