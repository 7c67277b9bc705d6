package view

import (
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/internal/figures"
	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/scheduler"
)

// TestEveryCountIsAFigure: every count of a node is in Stats by its name, or is listed here with
// the reason.
func TestEveryCountIsAFigure(t *testing.T) {
	for _, tc := range []struct {
		into      any
		from      any
		elsewhere map[string]string
	}{
		{new(Totals), scheduler.Metrics{}, map[string]string{
			"Endings": "an array; Totals.Endings is a map", "Cache": "Stats.Tree", "Drafts": "arrays; maps of Totals", "Tiers": "Stats.Tiers",
			"IdlePages": "of the lease; Pool.IdlePages is of the pool", "HeldPages": "Pool", "CachedPages": "Pool", "PoolPages": "Pool.Pages", "LeakedPages": "Pool",
		}},
		{new(Tree), radixcache.Stats{}, map[string]string{
			"EvictablePages": "Pool", "ProtectedPages": "Pool", "EvictedTokens": "an array; Tree.EvictedTokens is a map", "EvictedPages": "likewise",
			"EvictedAges": "counted in accesses, which mean nothing to an operator",
		}},
		{new(Tier), coppice.TierStats{}, map[string]string{"Tier": "Tier.Name", "ReadNanos": "Tier.ReadSeconds"}},
		{new(Tenant), scheduler.TenantUsage{}, map[string]string{"Deficit": "Tenant.ShareLeft"}},
	} {
		for _, name := range figures.Copy(tc.into, tc.from) {
			if tc.elsewhere[name] == "" {
				t.Errorf("%T.%s is no field of %T: add it there with its tags, or say here why not", tc.from, name, tc.into)
			}
		}
	}
}
