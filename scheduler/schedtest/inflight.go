package schedtest

import (
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/scheduler"
)

// inflight checks that a plan in flight stays as it was launched. Backend and stores may read
// it until its ticket is done, on another goroutine than the scheduler's.
type inflight struct {
	watcher
	sums map[uint64]uint64 // digests of the plans in flight, by Seq
}

func (c *inflight) planned(p *scheduler.Plan, _ []rowView) { c.sums[p.Batch.Seq] = sumOf(p) }

func (c *inflight) resulted(f *flight, _ *engine.Result, _ error) {
	if sumOf(f.plan) != c.sums[f.seq] {
		c.failf("plan %d was changed while it was in flight", f.seq)
	}
	delete(c.sums, f.seq)
}

func sumOf(p *scheduler.Plan) uint64 {
	var d digest
	d.add(p.Batch, p.Moves)
	return d.sum
}
