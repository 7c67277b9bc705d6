package scheduler

import (
	"maps"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/internal/invariants"
	"github.com/coppice-llm/coppice/internal/scheduler/planted"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
)

// Scheduler decides what runs next. It belongs to one goroutine.
type Scheduler struct {
	cfg  Config
	info engine.Info
	sharing

	open     map[RequestID]*group
	accounts accounts
	classes  classes
	arrived  uint64 // arrivals so far
	work     uint64 // tokens in plans so far: the clock by which waiting is counted

	queue    queue
	running  runningSet
	plans    plans
	expiries expiries
	cache    *radixcache.Cache // nil with DisableCache
	prefixes prefixes
	room     room
	tiers    *tiers   // nil: nothing below the device
	fetches  *fetches // nil as well
	budget   budget

	metrics Metrics
}

// New makes a scheduler for a backend described by info. It holds no pages yet:
// ask Want, and Grant what the pool gives.
func New(cfg Config, info engine.Info) (*Scheduler, error) {
	cfg = cfg.WithDefaults(info)
	if err := cfg.Validate(info); err != nil {
		return nil, err
	}
	s := &Scheduler{
		cfg:     cfg,
		info:    info,
		open:    make(map[RequestID]*group),
		classes: newClasses(),
	}
	s.sharing.s = s
	if !cfg.DisableCache {
		cache, err := cfg.newCache(info)
		if err != nil {
			return nil, err
		}
		s.cache = cache
	}
	s.plans.masks = newMaskTable(&info)
	s.cfg.Tenants = maps.Clone(cfg.Tenants) // the caller's may change
	s.room = newRoom(info, s.cache, cfg.MaxRunning)
	tiers, err := newTiers(&s.cfg, &info, &s.room)
	if err != nil {
		return nil, err
	}
	s.tiers, s.room.below = tiers, tiers
	s.running = runningSet{cfg: &s.cfg, classes: &s.classes, pageTokens: info.PageTokens}
	s.prefixes = prefixes{cfg: &s.cfg, cache: s.cache, room: &s.room, queue: &s.queue, running: &s.running, plans: &s.plans, tiers: tiers}
	if tiers != nil {
		s.fetches = &fetches{tiers: tiers, prefixes: &s.prefixes, queue: &s.queue, running: &s.running}
	}
	s.budget.cfg = &s.cfg
	s.budget.time = newStepTime(&s.cfg, &info)
	s.accounts = newAccounts(&s.cfg)
	s.queue = newQueue(&s.cfg, info.PageTokens, s.cache, &s.accounts)
	return s, nil
}

// Config is the configuration in force, defaults filled in.
func (s *Scheduler) Config() Config { return s.cfg }

// Open is the number of requests that were accepted and have not ended.
func (s *Scheduler) Open() int { return len(s.open) }

// Cache is the prefix tree, to look at: Walk, Explain, Stats. Nil with
// DisableCache. Only the scheduler may change it.
func (s *Scheduler) Cache() *radixcache.Cache { return s.cache }

// TakeEvents appends the cache events since the last call to dst; Seq is left 0.
func (s *Scheduler) TakeEvents(dst []kv.Event) []kv.Event {
	if s.cache == nil {
		return dst
	}
	dst = s.cache.TakeEvents(dst)
	if s.tiers != nil {
		dst = s.tiers.takeEvents(dst)
	}
	return dst
}

// Plant puts a fault in, for package schedtest to find. No other package can name its type.
func (s *Scheduler) Plant(fault planted.Fault) { s.accounts.fault, s.plans.masks.fault = fault, fault }

// verify runs the full walks after a mutation, under -tags invariants.
func (s *Scheduler) verify() {
	if invariants.Enabled {
		if err := s.Check(); err != nil {
			panic(err.Error())
		}
	}
}
