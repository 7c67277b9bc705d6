package carrier

import (
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/tiering"
)

// Extents move through buffers in host memory. The buffers of a tier take stagingBytes together, or an eighth of the
// tier's capacity if that is less. But a tier has at least tiering.DefaultMaxMoves buffers if stagingBytes has
// room for that many, at most one for every two operations that its store can run at a time, and never fewer
// than leastMoves. When one long prompt evicts more than fits into the buffers at once, the excess is lost.
const (
	stagingBytes = 128 << 20
	leastMoves   = 2
)

// Budget returns what a book must know of the stores, and the number of buffers that a carrier needs for
// them: the sum of the extents that may be in flight in each tier.
func Budget(stores []mempool.Store) (layout mempool.Layout, tiers [kv.Tiers]tiering.TierConfig, buffers int) {
	for _, s := range stores {
		info := s.Info()
		layout = info.Identity.Layout
		extent := layout.ExtentBytes()
		moves := max(min(stagingBytes/extent, max(int(info.CapacityBytes/8)/extent, tiering.DefaultMaxMoves), info.MaxOps/2), leastMoves)
		tiers[info.Tier] = tiering.TierConfig{
			Bytes: info.CapacityBytes, SlotBytes: info.SlotBytes, MaxMoves: moves, FullOnly: info.Shared, Kept: info.Shared,
		}
		buffers += moves
	}
	return layout, tiers, buffers
}
