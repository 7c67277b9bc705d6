package schedtest

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool/tiering"
	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/scheduler"
)

// The injected faults.
var (
	errRow    = fmt.Errorf("schedtest: this row fails: %w", engine.ErrLogits)
	errDevice = errors.New("schedtest: the device is lost")
	errMove   = errors.New("schedtest: this move fails")
	errOver   = errors.New("schedtest: the process ends")
)

// arrivals is the arrival pattern of requests.
type arrivals uint8

const (
	poisson arrivals = iota
	bursts
	closedLoop
)

var arrivalNames = [...]string{"poisson", "bursts", "closed loop"}

func (a arrivals) String() string { return arrivalNames[a] }

// setup is the configuration of a world.
type setup struct {
	profile string
	device  sim.Config
	cfg     scheduler.Config

	largest  int           // prompt and output tokens of the largest usual request
	stepTime time.Duration // approximate duration of a step
	arrivals arrivals
	gap      time.Duration // mean time between arrivals, or pause of a client
	group    int           // requests per burst, or number of clients
	pool     time.Duration // mean delay of a message
	notice   time.Duration // mean delay between the end of a step and Complete
	store    time.Duration // mean duration of an operation of a lower tier's store
	// storeFault draws the error of a move's store operation, nil if it succeeds, and reports
	// whether the operation takes longer than its deadline.
	storeFault func(*tiering.Move) (error, bool)
	speedup    time.Duration // see lower
	restarts   bool          // the process restarts in the middle, and finds the extents of disk and shared tiers
	aborts     int           // one request in this number is aborted; 0: none
	ending     ending
	callers    []*caller // the tenants of a fair world, which send all its requests
	guesses    stream    // predictions
	embeds     *stream   // chooses requests for embeddings; nil: none
	unexpected bool      // no request has a prediction
}

// ending is the fate of open requests when no more arrive.
type ending uint8

const (
	drains      ending = iota // they are served
	shutsDown                 // they fail: the process ends
	losesDevice               // they have failed: the device was lost at some step
)

// newSetup draws a world. About half of them are small, so that pages are always scarce.
func newSetup(o Options, b bug) setup {
	rng := newStream(o.Seed, "setup")
	w := setup{largest: rng.between(12, 40)}
	if rng.one(2) {
		w.largest = rng.between(40, 180)
	}
	w.drawDevice(rng, o.Seed)
	w.drawConfig(rng)
	w.drawLoad(rng)
	w.drawPriority(newStream(o.Seed, "priority"))
	if o.Faults {
		w.drawFaults(o, rng)
	}
	w.drawTarget(newStream(o.Seed, "target"))
	w.drawQuotas(newStream(o.Seed, "quotas"))
	w.drawBounds(newStream(o.Seed, "upper quotas"))
	w.drawTiers(o, newStream(o.Seed, "moves"))
	w.drawDrafts(newStream(o.Seed, "drafts"))
	if rng := newStream(o.Seed, "eviction"); rng.one(2) {
		w.cfg.Eviction = radixcache.Session
	}
	w.guesses = newStream(o.Seed, "guesses")
	if o.Fair {
		w.fair(o.Seed)
	}
	if rng := newStream(o.Seed, "two schedulers"); rng.one(5) {
		w.share()
	}
	b.setup(&w)
	return w
}

func (w *setup) drawDevice(rng stream, seed uint64) {
	pageTokens := pick(rng, 1, 2, 4, 16)
	room := 1 + 2*rng.Float64()*rng.Float64()
	if rng.one(4) {
		room = 1
	} else if rng.one(4) {
		room = 10
	}
	w.device = sim.Config{
		PageTokens:   pageTokens,
		Pages:        kv.CeilPages(int(float64(w.largest)*room), pageTokens),
		MaxSlots:     8,
		MaxRows:      8,
		MaxTokens:    512,
		MaxInflight:  3,
		MaxPositions: w.largest,
		Vocab:        64,
		Sanitize:     sim.Full,
		Clock:        sim.NewClock(),
		Seed:         seed,
	}
	if rng.one(2) {
		w.device.MaxPositions = 4096
	}
	if w.profile = pick(rng, "", "", "h200", "cpu2"); w.profile != "" {
		// Drawn from the names that the backend has; an unknown one fails in Open.
		w.device.Profile, _ = sim.ProfileByName(w.profile)
	}
}

func (w *setup) drawConfig(rng stream) {
	pages := w.device.Pages
	w.cfg = scheduler.Config{
		Policy:           pick(rng, scheduler.Policies()...),
		StepTokens:       pick(rng, 1, 2, 3, 7, 16, 64, w.largest, 512),
		MaxRunning:       rng.between(1, 8),
		MaxQueued:        rng.between(3, 24),
		DefaultMaxTokens: rng.between(1, 20),
		ShareTokens:      rng.between(1, 20),
		MaxBypass:        rng.between(1, 6),
		DisableCache:     rng.one(8),
		Events:           rng.one(2),
		BlockTokens:      max(w.device.PageTokens, pick(rng, 1, 2, 4, 16)),
	}
	w.cfg.MaxInflight = rng.between(1, 3)
	w.cfg.MaxPrefilling = rng.between(1, 8)
	w.cfg.AttentionTokens = pick(rng, -1, 0, 4, 64)
	w.cfg.OldestEvery, w.cfg.Aging = rng.between(1, 16), pick(rng, 1, 16, 256)
	w.cfg.Quantum, w.cfg.Seed = pick(rng, 1, 16, 256), rng.Uint64()
	if rng.one(4) {
		w.cfg.Tenant.MaxQueued, w.cfg.Tenant.MaxRunning = rng.between(0, 8), rng.between(0, 4)
	}
	if rng.one(2) {
		w.cfg.LeaseLowPages = rng.between(1, min(8, pages))
		w.cfg.LeaseBulkPages = rng.between(1, min(12, pages))
		w.cfg.LeaseHighPages = rng.between(w.cfg.LeaseLowPages, min(pages, w.cfg.LeaseLowPages+12))
	}
}

func (w *setup) drawLoad(rng stream) {
	w.stepTime = time.Microsecond
	if w.profile != "" {
		batch := engine.Batch{Rows: []engine.Row{{Tokens: make([]kv.Token, min(w.cfg.StepTokens, w.largest)), Sample: true}}}
		w.stepTime = w.device.Profile.Step(&batch, 0) + w.device.Profile.Host(1)
	}
	beats := func(lo, hi float64) time.Duration {
		return time.Duration((lo + (hi-lo)*rng.Float64()) * float64(w.stepTime))
	}
	switch w.arrivals = pick(rng, poisson, bursts, closedLoop); w.arrivals {
	case poisson:
		w.gap, w.group = beats(0.5, 30), 1
	case bursts:
		w.group = rng.between(2, 10)
		w.gap = time.Duration(w.group) * beats(0.5, 20)
	case closedLoop:
		w.group, w.gap = rng.between(1, 12), beats(0, 4)
	}
	w.pool = pick(rng, 0, beats(0, 0.5), beats(0, 3))
	w.notice = pick(rng, 0, 0, beats(0, 0.5))
	w.aborts = pick(rng, 0, 3, 10)
	w.ending = pick(rng, drains, drains, drains, shutsDown)
}

func (w *setup) drawFaults(o Options, rng stream) {
	if rng.one(3) {
		w.pool = w.stepTime * time.Duration(rng.between(5, 40))
	}
	if one := pick(rng, 0, 20, 100); one > 0 {
		w.failRows(o, one)
	}
	if rng.one(2) {
		slow := newStream(o.Seed, "slow steps")
		w.device.Faults.Slow = func(uint64) float64 {
			if slow.one(20) {
				return float64(slow.between(2, 50))
			}
			return 1
		}
	}
	if rng.one(5) && o.Steps > 0 {
		w.ending = losesDevice
		at := uint64(rng.between(1, o.Steps))
		w.device.Faults.Device = func(seq uint64) error {
			if seq >= at {
				return errDevice
			}
			return nil
		}
	}
}

// failRows makes rows fail at random, each with probability 1/one.
func (w *setup) failRows(o Options, one int) {
	rows := newStream(o.Seed, "failing rows")
	w.device.Faults.Row = func(uint64, int) error {
		if rows.one(one) {
			return errRow
		}
		return nil
	}
}

// drawPriority uses its own stream, so that it changes no other draw.
func (w *setup) drawPriority(rng stream) {
	w.cfg.Displace, w.cfg.PreemptThreshold = rng.one(3), pick(rng, 1, 1, 2, 3)
}

// drawTarget limits steps by time in some worlds.
func (w *setup) drawTarget(rng stream) {
	if w.profile != "" && rng.one(3) {
		w.cfg.ITLTarget = max(time.Duration(float64(w.stepTime)*3*rng.Float64()), 1)
	}
}

// drawBounds bounds the parts of the cache that namespaces keep in some worlds.
func (w *setup) drawBounds(rng stream) {
	if all := w.device.Pages * w.device.PageTokens; rng.one(4) {
		w.cfg.Quotas = map[kv.Namespace]int{{}: rng.between(w.device.PageTokens, all), {Salt: "b"}: rng.between(w.device.PageTokens, all)}
	}
}

// drawQuotas reserves parts of the cache for namespaces in some worlds.
func (w *setup) drawQuotas(rng stream) {
	if all := w.device.Pages * w.device.PageTokens; rng.one(4) {
		w.cfg.MinQuotas = map[kv.Namespace]int{{Salt: "a"}: rng.between(0, all/2), {LoRA: "a"}: rng.between(0, all)}
	}
}

// share lets another scheduler lease from the pool; see rival. The pool becomes twice as large: the
// share equals the pool of a world without a rival.
func (w *setup) share() {
	w.cfg.SharePages = w.device.Pages
	w.device.Pages *= 2
}

func (w *setup) String() string {
	c := &w.cfg
	cache := "cache"
	if c.DisableCache {
		cache = "no cache"
	}
	if c.SharePages > 0 {
		cache += fmt.Sprintf(", a share of %d pages", c.SharePages)
	}
	if c.Speculate != scheduler.SpeculateOff {
		cache += fmt.Sprintf(", drafts %v", c.Speculate)
	}
	return fmt.Sprintf("%d pages of %d, requests to %d tokens, %v, %d tokens a step, %d run, %d wait, %d in flight, %s, %s, %v by %d every %v",
		w.device.Pages, w.device.PageTokens, w.largest, c.Policy, c.StepTokens, c.MaxRunning, c.MaxQueued, max(c.MaxInflight, 1), cache, cmp.Or(w.profile, "no cost"),
		w.arrivals, w.group, w.gap)
}
