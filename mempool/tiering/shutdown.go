package tiering

import (
	"slices"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

// lastWrite is a write of a shutdown that is not queued yet.
type lastWrite struct {
	key      mempool.Key
	from, to kv.Tier
}

// Shutdown starts the final writes: it gives up all queued reads, and from now on no writes but the
// final ones begin. These write all extents on the device and in host memory to the tiers that
// outlive the process, to disk first and newest extents first, as many as can begin before until.
// until is on the clock of now.
func (p *Policy) Shutdown(now, until time.Duration) {
	for _, m := range p.reads {
		if !m.canceled {
			p.unread(m)
			p.answer(m, false)
		}
	}
	for _, m := range p.writes {
		p.unwrite(m)
	}
	p.reads, p.writes = nil, nil
	p.flush, p.flushing = until, true
	for to := kv.TierDisk; int(to) < kv.Tiers; to++ {
		for from := kv.TierDevice; from < kv.TierDisk && p.tiers[to] != nil; from++ {
			if p.tiers[from] == nil {
				continue
			}
			for _, x := range slices.Backward(p.tiers[from].index.Contents(nil)) {
				p.last = append(p.last, lastWrite{x.Key, from, to})
			}
		}
	}
}

// nextLast queues final writes after Shutdown. Once the time until has come, it abandons those
// that have not begun and counts their extents as lost.
func nextLast(p *Policy, now time.Duration) {
	if p.flushing && now >= p.flush {
		for _, w := range p.last {
			p.tiers[w.to].stats.Lost++
		}
		for _, m := range p.writes {
			p.tiers[m.To].stats.Lost++
			p.unwrite(m)
		}
		p.last, p.writes = nil, nil
	}
	for len(p.last) > 0 && len(p.writes) < p.cfg.MaxQueue {
		w := p.last[0]
		p.last = p.last[1:]
		p.writeLast(now, w.key, w.from, w.to)
	}
}

// writeLast queues one write of the shutdown, if the tier exists and needs the extent.
func (p *Policy) writeLast(now time.Duration, k mempool.Key, from, to kv.Tier) {
	if n := p.nodes[k]; n != nil && p.tiers[to] != nil && p.on(from, k) && !covered(p, to, &n.Extent) {
		p.write(now, k, from, to, true)
	}
}
