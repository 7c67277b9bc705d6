package carrier

import (
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

// ProbeID numbers a probe; the caller counts from 1 and uses no number twice.
type ProbeID uint64

// Probed answers a probe.
type Probed struct {
	ID    ProbeID
	Tier  kv.Tier
	Found []mempool.Extent // the first ones of those asked for, without a gap
}

// probe is one that is not answered.
type probe struct {
	tier    kv.Tier
	extents []mempool.Extent
	due     time.Time
}

// probing marks the operations that are probes.
const probing = 1 << 62

// Probe asks the store of a tier which of xs, parents first, it has: other processes may
// have written to a shared one. The answer comes by Probed, by the deadline: nothing is
// found where the store fails or is late. The slice is the carrier's until then, and goes
// back with the answer.
func (x *Carrier) Probe(id ProbeID, t kv.Tier, xs []mempool.Extent, deadline time.Time) {
	p := probe{t, xs, deadline}
	op := mempool.Op{ID: mempool.OpID(id) | probing, Kind: mempool.Probe, Deadline: deadline}
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

func (x *Carrier) answer(id ProbeID, p *probe, found int) {
	x.probed = append(x.probed, Probed{id, p.tier, p.extents[:min(found, len(p.extents))]})
	x.watch.wake()
}

// counted takes the ending of a probe's operation.
func (x *Carrier) counted(d *mempool.Done) {
	id := ProbeID(d.ID &^ probing)
	p, ok := x.probes[id]
	if !ok {
		return // it was given up
	}
	delete(x.probes, id)
	found := d.Found
	if d.Err != nil {
		found = 0
	}
	x.answer(id, &p, found)
}

// unanswered gives up the probes whose store has not ended them in time.
func (x *Carrier) unanswered(now time.Time) {
	for id, p := range x.probes { // each of them, in any order
		if !p.due.IsZero() && !now.Before(p.due.Add(x.cfg.Grace)) {
			delete(x.probes, id)
			x.answer(id, &p, 0)
		}
	}
}
