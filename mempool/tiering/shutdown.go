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
func (b *Book) Shutdown(now, until time.Duration) {
	for _, m := range b.reads {
		if !m.canceled {
			b.unread(m)
			b.answer(m, false)
		}
	}
	for _, m := range b.writes {
		b.unwrite(m)
	}
	b.reads, b.writes = nil, nil
	b.flush, b.flushing = until, true
	for to := kv.TierDisk; int(to) < kv.Tiers; to++ {
		for from := kv.TierDevice; from < kv.TierDisk && b.tiers[to] != nil; from++ {
			if b.tiers[from] == nil {
				continue
			}
			for _, x := range slices.Backward(b.tiers[from].index.Contents(nil)) {
				b.last = append(b.last, lastWrite{x.Key, from, to})
			}
		}
	}
}

// nextLast queues final writes after Shutdown. Once the time until has come, it abandons those
// that have not begun and counts their extents as lost.
func nextLast(b *Book, now time.Duration) {
	if b.flushing && now >= b.flush {
		for _, w := range b.last {
			b.tiers[w.to].stats.Lost++
		}
		for _, m := range b.writes {
			b.tiers[m.To].stats.Lost++
			b.unwrite(m)
		}
		b.last, b.writes = nil, nil
	}
	for len(b.last) > 0 && len(b.writes) < b.cfg.MaxQueue {
		w := b.last[0]
		b.last = b.last[1:]
		b.writeLast(now, w.key, w.from, w.to)
	}
}

// writeLast queues one write of the shutdown, if the tier exists and needs the extent.
func (b *Book) writeLast(now time.Duration, k mempool.Key, from, to kv.Tier) {
	if n := b.nodes[k]; n != nil && b.tiers[to] != nil && b.on(from, k) && !covered(b, to, &n.Extent) {
		b.write(now, k, from, to, true)
	}
}
