package router

import (
	"time"
)

// Router chooses workers and keeps their predicted load. One goroutine owns it.
type Router struct {
	cfg Config
	clock
	chance  draw
	choices uint64 // requests that got a worker

	workers      []worker // by slot
	gauges       []gauge  // by slot
	seats        []seat   // by slot
	kinds        kinds
	freeSlots    []int32
	slotOfWorker table
	models       []model // from fixedModels on by name
	freeModels   []int32
	indexOfModel table
	named        int    // models, in however many pools
	marks        uint64 // the last of worker.mark

	slab        []reservation
	freeEntries []int32
	ages        list
	active      int
	lastID      uint64 // of a reservation
	tree        tree

	queue    queue
	sessions sessions

	peers       []peer
	indexOfPeer table
	remote      table // (id, peer) -> slab
	graves      table // (id, peer) -> peer.buried
	journal     journal

	scratch scratch
	metrics Metrics
}

// New is a router without workers. The error has all faults of cfg.
func New(cfg Config) (*Router, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	seed := mix(cfg.Seed, 1)
	return &Router{
		cfg: cfg, chance: draw{mix(cfg.Seed, 2)}, ages: emptyList(byAge), tree: newTree(seed, cfg.MaxWorkers), clock: clock{nextLate: never},
		slotOfWorker: newTable(seed, 16), models: make([]model, fixedModels), indexOfModel: newTable(seed, 16), indexOfPeer: newTable(seed, 16), remote: newTable(seed, 16), graves: newTable(seed, 16),
		sessions: newSessions(seed, cfg.MaxSessions, cfg.SessionTTL),
	}, nil
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
