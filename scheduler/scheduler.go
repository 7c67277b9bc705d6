package scheduler

import (
	"maps"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/internal/invariants"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/scheduler/internal/accounts"
	"github.com/coppice-llm/coppice/scheduler/internal/drafts"
	"github.com/coppice-llm/coppice/scheduler/internal/masks"
	"github.com/coppice-llm/coppice/scheduler/internal/planted"
	"github.com/coppice-llm/coppice/scheduler/internal/predict"
)

// Scheduler decides what runs next. One goroutine at a time may call it. Its parts own
// their state and refer to each other by pointers; methods of Scheduler itself connect
// them.
type Scheduler struct {
	cfg  Config
	info engine.Info

	open     map[RequestID]*group // requests that have not ended
	accounts *accounts.Accounts
	lengths  predict.Lengths
	arrived  uint64 // samples added so far
	work     uint64 // tokens in plans so far: the clock by which policies measure waiting time

	queue    queue      // waiting
	running  runningSet // with a slot
	plans    plans
	expiries expiries
	cache    *radixcache.Cache // nil with DisableCache
	prefixes prefixes
	sessions sessions
	room     room
	tiers    *tiers   // nil: no tiers below the device
	fetches  *fetches // nil if tiers is
	budget   budget
	drafter  drafter

	metrics Metrics
}

// New makes a scheduler for a backend described by info. It fills in defaults and returns
// all faults of cfg in one error. The scheduler holds no pages yet: ask Want, and pass the
// pages that the pool gives to Grant.
func New(cfg Config, info engine.Info) (*Scheduler, error) {
	cfg = cfg.WithDefaults(info)
	if err := cfg.Validate(info); err != nil {
		return nil, err
	}
	s := &Scheduler{
		cfg:     cfg,
		info:    info,
		open:    make(map[RequestID]*group),
		lengths: predict.NewLengths(),
	}
	if !cfg.DisableCache {
		cache, err := cfg.newCache(info)
		if err != nil {
			return nil, err
		}
		s.cache = cache
	}
	s.plans.masks = masks.New(&info, cfg.MaxRunning*cfg.MaxInflight)
	s.cfg.Tenants = maps.Clone(cfg.Tenants) // the caller may change its own map
	s.room = newRoom(info, s.cache, cfg.MaxRunning)
	tiers, err := newTiers(&s.cfg, &info, &s.room)
	if err != nil {
		return nil, err
	}
	s.tiers, s.room.below = tiers, tiers
	s.running = runningSet{cfg: &s.cfg, lengths: &s.lengths, pageTokens: info.PageTokens}
	s.prefixes = prefixes{cfg: &s.cfg, cache: s.cache, room: &s.room, queue: &s.queue, running: &s.running, plans: &s.plans}
	if s.cache != nil && cfg.Speculate != SpeculateOff {
		s.prefixes.texts = drafts.NewTexts(s.cache, info.NumPages*info.PageTokens)
	}
	if tiers != nil {
		s.fetches = &fetches{tiers: tiers, room: &s.room, prefixes: &s.prefixes, queue: &s.queue, running: &s.running}
		s.prefixes.fetches = s.fetches
	}
	s.budget.cfg = &s.cfg
	s.budget.time = predict.NewSteps(info.Cost, cfg.ITLTarget, cfg.Tiers != nil || cfg.Speculate != SpeculateOff)
	s.drafter = drafter{cfg: &s.cfg, info: &s.info, running: &s.running, budget: &s.budget, room: &s.room, texts: s.prefixes.texts}
	s.accounts = accounts.New(accounts.Config{Quantum: cfg.Quantum, MaxDebtors: cfg.MaxDebtors, DebtAge: cfg.DebtAge})
	s.sessions = newSessions(info.NumPages * info.PageTokens)
	s.queue = newQueue(&s.cfg, info.PageTokens, s.cache, s.accounts)
	return s, nil
}

// Config returns the configuration in force, with defaults filled in.
func (s *Scheduler) Config() Config { return s.cfg }

// Open returns the number of requests that were accepted and have not ended.
func (s *Scheduler) Open() int { return len(s.open) }

// Cache returns the prefix tree for reading: Walk, Stats, HitRates. It is nil with
// DisableCache. Only the scheduler may change it, since each page that the tree takes or
// gives up must agree with the lease.
func (s *Scheduler) Cache() *radixcache.Cache { return s.cache }

// TakeEvents appends to dst the cache events since the last call, those of the device
// first, then those of lower tiers. Seq is left 0: the publisher numbers them.
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

// Dump appends to dst Stored events of all blocks that the cache and the tiers below
// hold, parents first: the blocks that TakeEvents has announced and not removed.
// Block.Local may be 0. A new subscriber begins with these events.
func (s *Scheduler) Dump(dst []kv.Event) []kv.Event {
	if s.cache == nil {
		return dst
	}
	dst = s.cache.Dump(dst)
	if s.tiers != nil && s.tiers.blocks != nil {
		dst = s.tiers.blocks.dump(dst)
	}
	return dst
}

// Plant puts a fault into s that package schedtest must find. No package outside
// internal/scheduler can name its type.
func (s *Scheduler) Plant(fault planted.Fault) {
	s.accounts.Plant(fault)
	s.plans.masks.Plant(fault)
	s.running.fault, s.room.fault = fault, fault
	if s.tiers != nil {
		s.tiers.fault = fault
	}
	if s.prefixes.texts != nil {
		s.prefixes.texts.Plant(fault)
	}
}

// verify runs Check after each mutation, under -tags invariants, and panics with the first
// faults. Without the tag it compiles to nothing.
func (s *Scheduler) verify() {
	if invariants.Enabled {
		if err := s.Check(); err != nil {
			panic(err.Error())
		}
	}
}
