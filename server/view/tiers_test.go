package view

import (
	"slices"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// TestTiers: the device comes first, and has the cached tokens that no lower tier had.
func TestTiers(t *testing.T) {
	st := coppice.Stats{Tiers: []coppice.TierStats{{Tier: kv.TierDisk, CapacityBytes: 10_000}}}
	st.Scheduler.PoolPages, st.Scheduler.HeldPages, st.Scheduler.CachedPages, st.Scheduler.CachedTokens = 10, 2, 3, 100
	d := &st.Tiers[0].TierMetrics
	d.HeldBytes, d.HitTokens, d.Reads, d.ReadNanos, d.Writes, d.Errors, d.Lost = 2500, 60, 4, 8_000_000, 5, 1, 2
	st.Tiers[0].TierFailures = coppice.TierFailures{Late: 1, Busy: 2, Full: 3, Foreign: 4, Damaged: 5, IOErrors: 6, Failing: 1}
	want := []Tier{
		{Name: "device", Pages: 10, UsedPages: 5, HitTokens: 40},
		{Name: "disk", Pages: 100, UsedPages: 25, HitTokens: 60, CapacityBytes: 10_000, HeldBytes: 2500, Reads: 4, Writes: 5, ReadSeconds: 0.008, ReadMillis: 2, Errors: 1, Lost: 2,
			Late: 1, Busy: 2, Full: 3, Foreign: 4, Damaged: 5, IOErrors: 6, Failing: 1},
	}
	got := StatsOf(&engine.Info{PageBytes: 100}, &st)
	if !slices.Equal(got.Pool.Tiers, want) || !slices.Equal(got.Tiers, want[1:]) || got.Totals.DeviceTokens != 40 {
		t.Errorf("%+v, want %+v", got, want)
	}
}
