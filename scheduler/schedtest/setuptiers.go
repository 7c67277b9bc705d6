package schedtest

import (
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/tiering"
)

// entryBytes is the size of a token's KV in a page of the simulated device.
const entryBytes = 16

// drawTiers adds tiers below the device to one world of three, with faults to half of the worlds,
// or to each if requested.
func (w *setup) drawTiers(o Options, rng stream) {
	w.storeFault, w.speedup = func(*tiering.Move) (error, bool) { return nil, false }, 1
	some := rng.one(3) || o.Tiers
	if o.Faults { // (1/3 + 2/3 * 5/14) of the worlds with a cache, which are 7 of 8
		some = newStream(o.Seed, "tiers with faults").IntN(14) < 5 || some
	}
	if !some || w.cfg.DisableCache {
		return
	}
	w.tier(rng)
	more := newStream(o.Seed, "restart")
	if !more.one(3) {
		w.roomy(more)
	}
	w.restarts = more.one(2) && w.cfg.Tiers.Tiers[kv.TierDisk].Bytes+w.cfg.Tiers.Tiers[kv.TierShared].Bytes > 0
	one := pick(rng, 0, 6, 12, 4)
	if !o.Faults || one == 0 {
		return
	}
	failing := newStream(o.Seed, "failing moves")
	w.device.Faults.Move = func(engine.MoveID) error {
		if failing.one(4 * one) {
			return errMove
		}
		return nil
	}
	w.storeFault = func(*tiering.Move) (error, bool) {
		if !failing.one(one) {
			return nil, false
		}
		err := pick(failing, nil, errIO, mempool.ErrCorrupt, mempool.ErrMiss, mempool.ErrFull)
		return err, err == nil
	}
}

// tier draws the tiers themselves.
func (w *setup) tier(rng stream) {
	size := w.device.PageTokens
	l := mempool.Layout{PageTokens: size, PageBytes: entryBytes * size, ExtentPages: pick(rng, 1, 1, 2, 4)}
	c := &tiering.Config{Layout: l, Mode: pick(rng, tiering.WriteBack, tiering.WriteBack, tiering.Selective, tiering.Through), Uses: rng.between(1, 2)}
	if rng.one(2) {
		c.TokenGuess = w.stepTime.Seconds() * rng.Float64()
	}
	tier := func() tiering.TierConfig {
		n := 1 + int(float64(w.device.Pages)*5*rng.Float64())/l.ExtentPages
		t := tiering.TierConfig{
			SlotBytes: l.ExtentBytes(), Bytes: int64(n * l.ExtentBytes()), MaxMoves: rng.between(1, 8),
			Bandwidth: float64(l.ExtentBytes()) / max(w.stepTime.Seconds(), 1e-9) * 4 * rng.Float64(),
		}
		if rng.one(3) {
			t.NamespaceBytes = t.Bytes/2 + 1
		}
		return t
	}
	if !rng.one(4) {
		c.Tiers[kv.TierHost] = tier()
	}
	if c.Tiers[kv.TierHost].Bytes == 0 || rng.one(2) {
		c.Tiers[kv.TierDisk] = tier()
	}
	if rng.one(4) {
		c.Tiers[kv.TierShared] = tier()
		c.Tiers[kv.TierShared].Kept, c.Tiers[kv.TierShared].FullOnly = true, rng.one(2)
	}
	c.MinWait, c.Deadline = w.stepTime*time.Duration(rng.between(1, 40)), 40*w.stepTime
	w.cfg.Tiers = c
	w.store = time.Duration(float64(w.stepTime) * 8 * rng.Float64())
}

// roomy makes tiers so large and fast that most of the KV that leaves the small device is found
// again and is worth a fetch: stores report times that are far too short.
func (w *setup) roomy(rng stream) {
	c, size := w.cfg.Tiers, w.device.PageTokens
	w.device.Pages = min(w.device.Pages, kv.CeilPages(2*w.largest, size))
	w.cfg.LeaseLowPages, w.cfg.LeaseBulkPages, w.cfg.LeaseHighPages = 0, 0, 0
	c.Layout.ExtentPages = max(c.Layout.ExtentPages, 4/size)
	c.Mode, c.Uses, w.speedup = pick(rng, tiering.WriteBack, tiering.Through), 1, 100
	for i := range c.Tiers {
		t := &c.Tiers[i]
		if t.Bytes > 0 {
			t.SlotBytes, t.MaxMoves = c.Layout.ExtentBytes(), rng.between(8, 64)
			t.Bytes = int64(t.SlotBytes * rng.between(1, 10) * kv.CeilPages(w.device.Pages, c.Layout.ExtentPages))
			t.NamespaceBytes, t.Bandwidth = 0, 100*t.Bandwidth
		}
	}
}
