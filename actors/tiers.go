package actors

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/internal/mempool/carrier"
	"github.com/coppice-llm/coppice/internal/mempool/dirmem"
	"github.com/coppice-llm/coppice/internal/mempool/diskmem"
	"github.com/coppice-llm/coppice/internal/mempool/hostmem"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/tiering"
	"github.com/coppice-llm/coppice/scheduler"
)

// Defaults of Tiers. Extents move through buffers of host memory: StagingBytes of them for
// each tier, as what a long prompt evicts at once is lost beyond that; an eighth of the
// tier where that is less, but at least tiering.DefaultMaxMoves extents if they fit.
const (
	DefaultFlush = 10 * time.Second
	StagingBytes = 128 << 20
	leastMoves   = 2
)

// Tiers say where KV goes that the device has no room for. The zero value: nowhere.
type Tiers struct {
	// HostBytes is how much host memory keeps KV; 0: none.
	HostBytes int64
	// Disk is a directory of DiskBytes at most, which one process uses at a time. What is
	// in it is found again after a restart.
	Disk      string
	DiskBytes int64
	// Share is a directory of ShareBytes at most that several processes use at once.
	Share      string
	ShareBytes int64
	// Stores are others, one for a tier at most. A System that started owns and closes them.
	Stores []mempool.Store
	// ExtentPages is how many pages move together, where one of the directories or
	// HostBytes is given. Default that of mempool.LayoutOf: as many as have 1 MiB.
	ExtentPages int
	// Write says when KV goes from the device to the tier below. Default tiering.WriteBack.
	Write tiering.Mode
	// Flush bounds how long Close writes what is on the device and in host memory to Disk
	// and Share.
	// Default DefaultFlush; negative: nothing is written.
	Flush time.Duration
	// TokenSeconds is how long computing a token of a prompt takes: a fetch that would take
	// longer is not made. Default 0: steps are measured.
	TokenSeconds float64
}

// TierStats are the figures of one tier below the device.
type TierStats struct {
	Tier kv.Tier
	scheduler.TierMetrics
	CapacityBytes int64
	Damaged       int64 // records whose bytes were wrong; they were computed again
}

func (t *Tiers) validate() error {
	var errs []error
	for _, d := range [...]struct {
		dir, name string
		bytes     int64
	}{{t.Disk, "Disk", t.DiskBytes}, {t.Share, "Share", t.ShareBytes}} {
		if (d.dir == "") != (d.bytes == 0) || d.bytes < 0 {
			errs = append(errs, fmt.Errorf("actors: Tiers.%s is %q and %sBytes %d, want both or none", d.name, d.dir, d.name, d.bytes))
		}
	}
	if t.ExtentPages < 0 {
		errs = append(errs, fmt.Errorf("actors: Tiers.ExtentPages is %d, want 0 (as many as have 1 MiB) or more", t.ExtentPages))
	}
	if t.HostBytes < 0 {
		errs = append(errs, fmt.Errorf("actors: Tiers.HostBytes is %d, want 0 (none) or more", t.HostBytes))
	}
	if t.Write > tiering.Through {
		errs = append(errs, fmt.Errorf("actors: Tiers.Write is %v", t.Write))
	}
	return errors.Join(errs...)
}

// none reports whether there is no tier below the device.
func (t *Tiers) none() bool {
	return t.HostBytes == 0 && t.Disk == "" && t.Share == "" && len(t.Stores) == 0
}

// identity is that of a backend's pages.
func identity(info *engine.Info) mempool.Identity {
	return mempool.Identity{
		ModelID: info.ModelID, NumericsID: info.NumericsID, KVType: info.KVType, PageLayout: mempool.PageLayout,
		Layout: mempool.LayoutOf(info.PageTokens, info.PageBytes),
	}
}

// open opens the stores; those of t.Stores are among them. If it fails, none that it opened
// is left open.
func (t *Tiers) open(info *engine.Info) ([]mempool.Store, error) {
	id := identity(info)
	if t.ExtentPages > 0 {
		id.Layout.ExtentPages = t.ExtentPages
	}
	var opened []mempool.Store
	add := func(s mempool.Store, err error) error {
		if err == nil {
			opened = append(opened, s)
		}
		return err
	}
	var errs []error
	if t.HostBytes > 0 {
		s, err := hostmem.Open(hostmem.Config{Identity: id, Bytes: t.HostBytes})
		errs = append(errs, add(s, err))
	}
	if t.Disk != "" {
		s, err := diskmem.Open(diskmem.Config{Dir: t.Disk, Identity: id, Bytes: t.DiskBytes})
		errs = append(errs, add(s, err))
	}
	if t.Share != "" {
		s, err := dirmem.Open(dirmem.Config{Dir: t.Share, Identity: id, Bytes: t.ShareBytes})
		errs = append(errs, add(s, err))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, closeStores(opened))
	}
	return append(opened, t.Stores...), nil
}

func closeStores(stores []mempool.Store) error {
	var errs []error
	for _, s := range stores {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// policy is what the scheduler is told of the stores, and how many extents are in flight at
// most.
func (t *Tiers) policy(stores []mempool.Store) (c tiering.Config, buffers int) {
	c = tiering.Config{Mode: t.Write, TokenSeconds: t.TokenSeconds}
	for _, s := range stores {
		info := s.Info()
		c.Layout = info.Identity.Layout
		extent := c.Layout.ExtentBytes()
		moves := max(min(StagingBytes/extent, max(int(info.CapacityBytes/8)/extent, tiering.DefaultMaxMoves), info.MaxOps/2), leastMoves)
		c.Tiers[info.Tier] = tiering.TierConfig{
			Bytes: info.CapacityBytes, SlotBytes: info.SlotBytes, MaxMoves: moves, FullOnly: info.Shared, Kept: info.Shared,
		}
		buffers += moves
	}
	return c, buffers
}

// hierarchy is the tiers of a system that has some.
type hierarchy struct {
	stores  []mempool.Store
	own     int // of them, those that open opened
	buffers int
	sharing int      // tokens of an extent, if there is a tier that other processes write to
	made    []string // directories that did not exist
	carrier *carrier.Carrier
}

// openTiers opens the stores, if there are any, and configures the scheduler for them.
func openTiers(c *Config) (*hierarchy, error) {
	if c.Tiers.none() {
		return nil, nil
	}
	info := c.Backend.Info()
	if _, ok := c.Backend.(engine.Mover); !ok {
		return nil, fmt.Errorf("actors: Tiers: the backend %s does not copy pages to host memory", info.Name)
	}
	if c.Scheduler.DisableCache {
		return nil, errors.New("actors: Tiers need a cache: leave out Scheduler.DisableCache")
	}
	made := missing(c.Tiers.Disk, c.Tiers.Share)
	stores, err := c.Tiers.open(&info)
	if err != nil {
		return nil, fmt.Errorf("actors: Tiers: %w", err)
	}
	h := &hierarchy{stores: stores, own: len(stores) - len(c.Tiers.Stores), made: made}
	policy, buffers := c.Tiers.policy(stores)
	c.Scheduler.Tiers, h.buffers = &policy, buffers
	for _, s := range stores {
		if s.Info().Shared {
			h.sharing = policy.Layout.ExtentTokens()
		}
	}
	return h, nil
}

// missing are those of some directories that do not exist.
func missing(dirs ...string) (names []string) {
	for _, dir := range dirs {
		if _, err := os.Stat(dir); dir != "" && errors.Is(err, fs.ErrNotExist) {
			names = append(names, dir)
		}
	}
	return names
}

// begin has the scheduler know what the stores have, and makes the carrier.
func (h *hierarchy) begin(s *System, core *scheduler.Scheduler) error {
	if h == nil {
		return nil
	}
	for _, name := range h.made {
		s.log.Info("made a directory for KV: it did not exist", zap.String("directory", name))
	}
	for _, store := range h.stores {
		info := store.Info()
		found := store.Contents(nil)
		core.Found(info.Tier, found)
		log := s.log.With(zap.Stringer("tier", info.Tier))
		log.Info("tier opened", zap.Int("extents", len(found)), zap.Int64("bytes", info.CapacityBytes), zap.Bool("direct", info.Direct))
		for _, name := range info.Others {
			log.Info("left alone: KV of another model, type or version", zap.String("directory", name))
		}
	}
	var err error
	h.carrier, err = carrier.Open(carrier.Config{
		Backend: s.cfg.Backend, Layout: h.stores[0].Info().Identity.Layout, Stores: h.stores, Buffers: h.buffers, Start: s.started,
	})
	return err
}

// shared are the extents of a request's prompt that may be in the shared tier, which other
// processes write to: whole ones. Nil where there is no such tier.
func (h *hierarchy) shared(req *scheduler.Request) []mempool.Extent {
	if h == nil || h.sharing == 0 || len(req.Prompt) <= h.sharing || req.PromptLogprobs {
		return nil
	}
	layout := h.stores[0].Info().Identity.Layout
	whole := kv.FloorPages(len(req.Prompt)-1, h.sharing) * h.sharing
	return layout.AppendExtents(nil, req.Namespace, req.Prompt[:whole], req.Media)
}

// abandon closes what openTiers opened, of a system that does not start.
func (h *hierarchy) abandon() error {
	if h == nil {
		return nil
	}
	return closeStores(h.stores[:h.own])
}

// stats are the figures of each tier, the fastest first.
func (h *hierarchy) stats(m *scheduler.Metrics) (all []TierStats) {
	if h == nil || h.carrier == nil {
		return nil
	}
	stores, there := h.carrier.Metrics()
	for t := range stores {
		if there[t] {
			all = append(all, TierStats{kv.Tier(t), m.Tiers[t], stores[t].CapacityBytes, stores[t].Damaged})
		}
	}
	return all
}

// flush has the scheduler write the cache to the tiers that outlive the process, within Tiers.Flush, before the devices
// are closed. A system that failed writes nothing.
func (s *System) flush() {
	limit := s.cfg.Tiers.Flush
	if s.tiers == nil || limit < 0 || !errors.Is(s.cause, ErrClosed) {
		return
	}
	m := &flush{until: s.now() + limit, done: make(chan struct{})}
	s.scheduler.tell(m)
	late := time.NewTimer(limit + lastMoves)
	defer late.Stop()
	select {
	case <-m.done:
	case <-s.scheduler.done:
	case <-s.engine.done:
	case <-late.C: // a device or store that does not end what it began
	}
}

// lastMoves is how long after the flush's limit the moves under way are waited for: the
// carrier gives them up within its grace.
const lastMoves = 2 * carrier.DefaultGrace
