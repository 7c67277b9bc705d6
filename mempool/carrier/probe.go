package carrier

import (
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/tiering"
)

// ProbeID numbers a probe. The caller counts from 1 and uses no number twice.
type ProbeID uint64

// Probed answers a probe.
type Probed struct {
	ID    ProbeID
	Tier  kv.Tier
	Found []mempool.Extent // the longest prefix of the probed extents that the tier has
}

// probing marks the IDs of probes among those of moves.
const probing = 1 << 62

// Probe asks the store of tier t how many of the extents xs, parents first, it has without a gap. It
// is for shared tiers, to which other processes write. Probed returns the answer at the latest at
// the deadline, which is on the scheduler's clock like those of moves; if the store fails or is late, the
// answer has no extents. The carrier owns xs until the answer, which is a part of the same slice.
func (x *Carrier) Probe(id ProbeID, t kv.Tier, xs []mempool.Extent, deadline time.Duration) {
	c := &carry{Move: tiering.Move{ID: tiering.MoveID(id) | probing, Kind: tiering.Read, From: t, Deadline: deadline}, stage: looking, probed: xs}
	x.track(c)
	if len(xs) == 0 || t >= kv.Tiers || x.stores[t] == nil || x.closed {
		x.finish(c, mempool.ErrInvalid)
	} else {
		x.submit(c, t, mempool.Probe)
	}
	x.watched(c)
}

// Probed appends the answers since the last call. Call it after Poll.
func (x *Carrier) Probed(dst []Probed) []Probed {
	dst = append(dst, x.probed...)
	clear(x.probed)
	x.probed = x.probed[:0]
	return dst
}
