package scheduler

import (
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/internal/invariants"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/radixcache"
)

// Scheduler decides what runs next. It belongs to one goroutine.
type Scheduler struct {
	cfg  Config
	info engine.Info

	open    map[RequestID]*sequence // waiting or running
	waiting []*sequence             // by arrival, oldest first
	running []*sequence             // by admission, oldest first
	arrived uint64                  // arrivals so far

	cache *radixcache.Cache // nil with DisableCache
	pages ledger
	slots []engine.Slot // free, a stack

	inflight *Plan   // the plan that runs, nil if none
	idle     []*Plan // plans to reuse
	planned  uint64  // Seq of the last plan

	metrics Metrics
	order   []*sequence // scratch of the policy
}

// New makes a scheduler for a backend described by info. It holds no pages yet:
// ask Want, and Grant what the pool gives.
func New(cfg Config, info engine.Info) (*Scheduler, error) {
	cfg = cfg.WithDefaults(info)
	if err := cfg.Validate(info); err != nil {
		return nil, err
	}
	s := &Scheduler{
		cfg:   cfg,
		info:  info,
		open:  make(map[RequestID]*sequence),
		pages: newLedger(info.NumPages),
	}
	if !cfg.DisableCache {
		cache, err := radixcache.New(cfg.cache(info))
		if err != nil {
			return nil, err
		}
		s.cache = cache
	}
	for slot := cfg.MaxRunning - 1; slot >= 0; slot-- {
		s.slots = append(s.slots, engine.Slot(slot))
	}
	return s, nil
}

// Config is the configuration in force, defaults filled in.
func (s *Scheduler) Config() Config { return s.cfg }

// Open is the number of requests that were accepted and have not ended.
func (s *Scheduler) Open() int { return len(s.open) }

// TakeEvents appends the cache events since the last call to dst; Seq is the
// publisher's to set.
func (s *Scheduler) TakeEvents(dst []kv.Event) []kv.Event {
	if s.cache == nil {
		return dst
	}
	return s.cache.TakeEvents(dst)
}

// verify runs the full walks after a mutation, under -tags invariants.
func (s *Scheduler) verify() {
	if invariants.Enabled {
		if err := s.Check(); err != nil {
			panic(err.Error())
		}
	}
}

// ledger is the scheduler's view of its pages: the lease, and what the pool may
// still give.
type ledger struct {
	lease    *mempool.Lease
	poolFree int         // free in the pool as last heard, less what is asked for
	asked    int         // asked for and not granted yet
	demand   int         // idle pages wanted at the last refusal
	freed    []kv.PageID // scratch of what the tree gives back
}

func newLedger(capacity int) ledger {
	return ledger{lease: mempool.NewLease(capacity), poolFree: capacity}
}
