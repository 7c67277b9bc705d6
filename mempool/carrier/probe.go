package carrier

import (
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

// ProbeID numbers a probe. The caller counts from 1 and uses no number twice.
type ProbeID uint64

// Probed answers a probe.
type Probed struct {
	ID    ProbeID
	Tier  kv.Tier
	Found []mempool.Extent // the longest prefix of the probed extents that the tier has
}

// probe is a probe that has not been answered.
type probe struct {
	tier    kv.Tier
	extents []mempool.Extent
	due     time.Time
}

// probing marks the IDs of operations that are probes.
const probing = 1 << 62

// Probe asks the store of tier t how many of the extents xs, parents first, it has without a gap. It
// is for shared tiers, to which other processes write. Probed returns the answer at the latest at
// the deadline; if the store fails or is late, the answer has no extents. The
// carrier owns xs until the answer, which is a part of the same slice.
func (x *Carrier) Probe(id ProbeID, t kv.Tier, xs []mempool.Extent, deadline time.Time) {
	p := probe{t, xs, deadline}
	op := mempool.Op{ID: mempool.OpID(id) | probing, Kind: mempool.Probe}
	if len(xs) == 0 || t >= kv.Tiers || x.stores[t] == nil || x.closed {
		x.answer(id, &p, 0)
		return
	}
	op.Extent = xs[0]
	for i := range xs[1:] {
		op.Then = append(op.Then, xs[1+i].Key)
	}
	if x.stores[t].Submit(op) != nil {
		x.answer(id, &p, 0)
		return
	}
	x.probes[id] = p
	x.arm()
}

// Probed appends the answers since the last call. Call it after Poll.
func (x *Carrier) Probed(dst []Probed) []Probed {
	dst = append(dst, x.probed...)
	clear(x.probed)
	x.probed = x.probed[:0]
	return dst
}

// answer queues the answer of a probe; found is the number of extents that the store has.
func (x *Carrier) answer(id ProbeID, p *probe, found int) {
	x.probed = append(x.probed, Probed{id, p.tier, p.extents[:min(found, len(p.extents))]})
	x.watch.wake()
}

// counted handles the end of a probe's operation.
func (x *Carrier) counted(d *mempool.Done) {
	id := ProbeID(d.ID &^ probing)
	p, ok := x.probes[id]
	if !ok {
		return // the probe was given up
	}
	delete(x.probes, id)
	found := d.Found
	if d.Err != nil {
		found = 0
	}
	x.answer(id, &p, found)
}

// unanswered gives up probes that the store has not ended at their deadline.
func (x *Carrier) unanswered(now time.Time) {
	for id, p := range x.probes { // each ends alike, in any order
		if !p.due.IsZero() && !now.Before(p.due) {
			delete(x.probes, id)
			x.stores[p.tier].Cancel(mempool.OpID(id)|probing, mempool.ErrDeadline)
			x.answer(id, &p, 0)
		}
	}
}
