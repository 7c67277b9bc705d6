package actors

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/carrier"
	"github.com/coppice-llm/coppice/mempool/tiering"
	"github.com/coppice-llm/coppice/scheduler"
)

// DefaultFlush is the default of Tiers.Flush.
const DefaultFlush = 10 * time.Second

// Tiers configures the storage below device memory, to which evicted KV is offloaded.
type Tiers struct {
	// Open opens stores for KV of the identity id, which is that of the backend's pages, the fastest
	// tier first; created lists the directories that it made. Config.Open of package mempool/stores
	// opens host memory, a disk and a shared directory. The Node closes the stores. Default: none.
	Open func(id mempool.Identity, log *slog.Logger) (opened []mempool.Store, created []string, err error)
	// Stores are further stores, at most one per tier. Once Open has succeeded, the Node owns
	// and closes them.
	Stores []mempool.Store
	// Write selects when KV is copied from the device to the tier below. Default:
	// tiering.WriteBack.
	Write tiering.Mode
	// Flush bounds the time for which Close writes KV from the device and host memory to the
	// tiers that survive the process. Default: 10 s; negative: nothing is written.
	Flush time.Duration
	// TokenSeconds is the time to compute one prompt token, used until steps have been measured.
	// KV whose fetch would take longer than computing it is not fetched. Default: 0, at first
	// everything is fetched.
	TokenSeconds float64
}

// TierStats holds the figures of a tier below the device.
type TierStats struct {
	Tier kv.Tier
	scheduler.TierMetrics
	CapacityBytes int64
	TierFailures
}

func (t *Tiers) validate() error {
	if t.Write > tiering.Through {
		return fmt.Errorf("actors: Tiers.Write is %v, want back, selective or through", t.Write)
	}
	return nil
}

// hierarchy holds the open tiers of a system.
type hierarchy struct {
	stores  []mempool.Store         // each a watchedStore
	watched [kv.Tiers]*watchedStore // the same, by tier
	own     int                     // the first own stores were opened by openTiers; the rest are the caller's
	buffers int
	sharing int      // tokens per extent, if a tier is shared with other processes; else 0
	made    []string // directories that openTiers created
	carrier *carrier.Carrier

	patience time.Duration // closeTime; tests set less
	until    atomic.Int64  // when stores that do not answer are given up, on System.now; 0: not ending yet
}

// openTiers opens the stores of c.Tiers and sets c.Scheduler.Tiers for them. It returns nil
// and no error if no tier is configured, or none that can be opened is required.
func openTiers(c *Config) (*hierarchy, error) {
	if c.Tiers.Open == nil && len(c.Tiers.Stores) == 0 {
		return nil, nil
	}
	info := c.Backend.Info()
	if _, ok := c.Backend.(engine.Mover); !ok {
		return nil, fmt.Errorf("actors: Tiers: the backend %s does not copy pages to host memory", info.Name)
	}
	if c.Scheduler.DisableCache {
		return nil, errors.New("actors: Tiers need a cache: leave out Scheduler.DisableCache")
	}
	var opened []mempool.Store
	var made []string
	if c.Tiers.Open != nil {
		var err error
		if opened, made, err = c.Tiers.Open(identity(&info), c.Log); err != nil {
			return nil, fmt.Errorf("actors: Tiers: %w", err)
		}
	}
	all := append(slices.Clip(opened), c.Tiers.Stores...)
	if len(all) == 0 {
		return nil, nil
	}
	h := &hierarchy{stores: all, own: len(opened), made: made, patience: closeTime}
	policy := tiering.Config{Mode: c.Tiers.Write, TokenSeconds: c.Tiers.TokenSeconds}
	policy.Layout, policy.Tiers, h.buffers = carrier.Budget(all)
	c.Scheduler.Tiers = &policy
	for i, s := range all {
		tier := s.Info().Tier
		h.watched[tier] = watchStore(s, c.Log)
		h.stores[i] = h.watched[tier]
		if s.Info().Shared {
			h.sharing = policy.Layout.ExtentTokens()
		}
	}
	return h, nil
}

// identity returns the identity of a backend's pages.
func identity(info *engine.Info) mempool.Identity {
	return mempool.Identity{
		ModelID: info.ModelID, NumericsID: info.NumericsID, KVType: info.KVType, PageLayout: mempool.PageLayout,
		Layout: mempool.LayoutOf(info.PageTokens, info.PageBytes),
	}
}

// begin tells core which extents the stores hold, and opens the carrier.
func (h *hierarchy) begin(s *System, core *scheduler.Scheduler) error {
	if h == nil {
		return nil
	}
	for _, name := range h.made {
		s.cfg.Log.Info("created the directory for KV", "directory", name)
	}
	for _, store := range h.stores {
		info := store.Info()
		found := store.Contents(nil)
		core.Found(info.Tier, found)
		log := s.cfg.Log.With("tier", info.Tier.String())
		log.Info("tier opened", "extents", len(found), "bytes", info.CapacityBytes, "direct", info.Direct)
		for _, name := range info.Others {
			log.Info("left alone: KV of another model, type, version or key", "directory", name)
		}
		for _, text := range info.Warnings {
			log.Warn("check the tier's directory", "reason", text)
		}
	}
	var err error
	h.carrier, err = carrier.New(carrier.Config{
		Backend: s.cfg.Backend, Layout: h.stores[0].Info().Identity.Layout, Stores: h.stores, Buffers: h.buffers, Start: s.started,
	})
	return err
}

// shared returns the whole extents of a request's prompt that a shared tier may hold. It
// returns nil if no tier is shared.
func (h *hierarchy) shared(req *scheduler.Request) []mempool.Extent {
	if h == nil || h.sharing == 0 || len(req.Prompt) <= h.sharing || req.PromptLogprobs {
		return nil
	}
	layout := h.stores[0].Info().Identity.Layout
	whole := kv.FloorPages(len(req.Prompt)-1, h.sharing) * h.sharing
	return layout.AppendExtents(nil, req.Namespace, req.Prompt[:whole], req.Media)
}

// abandon closes the stores that openTiers opened, for a system that failed to start.
func (h *hierarchy) abandon() error {
	if h == nil {
		return nil
	}
	return carrier.CloseStores(h.stores[:h.own], time.Now().Add(closeTime))
}

// stats returns the figures of each tier, the fastest tier first.
func (h *hierarchy) stats(m *scheduler.Metrics) (all []TierStats) {
	if h == nil || h.carrier == nil {
		return nil
	}
	figures, there := h.carrier.Metrics()
	for t := range figures {
		if there[t] {
			all = append(all, TierStats{kv.Tier(t), m.Tiers[t], figures[t].CapacityBytes, h.watched[t].counts()})
		}
	}
	return all
}

// flush has the scheduler write the cache to the tiers that survive the process, within
// Tiers.Flush, before the devices are closed. It writes nothing if the system has failed. It also sets
// the time at which tiers are given up that do not answer.
func (s *System) flush() {
	limit := s.cfg.Tiers.Flush
	if s.tiers == nil {
		return
	}
	s.tiers.until.Store(int64(s.now() + max(limit, 0) + lastMoves + s.tiers.patience))
	if limit < 0 || !errors.Is(s.cause, ErrClosed) {
		return
	}
	m := &flush{until: s.now() + limit, done: make(chan struct{})}
	s.engine.tell(&hasten{s.started.Add(m.until)})
	s.scheduler.tell(m)
	late := time.NewTimer(limit + lastMoves)
	defer late.Stop()
	select {
	case <-m.done:
	case <-s.scheduler.done:
	case <-s.engine.done:
	case <-late.C: // a device or store that does not complete its moves
	}
}

// close closes the carrier, by the time that flush has set.
func (h *hierarchy) close(s *System) error {
	until := time.Duration(h.until.Load())
	if until == 0 { // the engine's actor has ended before the shutdown began
		until = s.now() + h.patience
	}
	return h.carrier.Close(s.started.Add(until))
}

// lastMoves is how long flush waits after its limit for the moves in flight, whose deadline is then that
// limit. closeTime is how long the close of the tiers may take after that. Together they are less than
// the 5 s within which a process ends after --drain and --kv-flush.
const (
	lastMoves = time.Second
	closeTime = 3 * time.Second
)
