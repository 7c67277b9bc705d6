package tiering

import (
	"slices"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

// demote is called before the device evicts an extent. It begins a write to the fastest lower tier
// that can take it now, preceded by writes of the parents that are missing there. If no tier takes it,
// the extent counts as lost. Descendants on the device are written first, since they leave with the
// extent.
func (b *Book) demote(now time.Duration, k mempool.Key) {
	first := b.below(kv.TierDevice)
	if b.flushing || int(first) == kv.Tiers {
		return
	}
	for _, x := range b.tiers[kv.TierDevice].index.Subtree(k, nil) {
		if n := b.nodes[x.Key]; b.serves(n, first) && !saved(b, now, n, first) {
			b.tiers[first].stats.Lost++
		}
	}
}

// saved begins the write of an extent on the device to a lower tier, the tier first or one below,
// and reports whether it could, or a tier has the extent's KV already.
func saved(b *Book, now time.Duration, n *node, first kv.Tier) bool {
	for to := first; int(to) < kv.Tiers; to = b.below(to) {
		if b.on(to, n.Key) || covered(b, to, &n.Extent) {
			return true
		}
		if !b.serves(n, to) {
			continue
		}
		if b.write(now, n.Key, kv.TierDevice, to, false); hasten(b, now, to, n.Key) {
			return true
		}
	}
	return false
}

// serves reports whether an extent that leaves the tier above should be written to tier to. It
// should if the mode is Through, the extent has Config.Uses uses or it is idle. Host memory
// also takes it in the mode WriteBack, and other tiers take it in that mode if they have room
// to spare.
func (b *Book) serves(n *node, to kv.Tier) bool {
	return to < kv.TierDisk && b.cfg.Mode != Selective || b.cfg.Mode == Through || n.uses >= b.cfg.Uses || n.idle ||
		b.cfg.Mode == WriteBack && b.tiers[to].spare(n.Namespace)
}

// spare reports whether one more extent fits below the tier's low watermark, so that it
// displaces nothing. A disk thus fills with extents that were used once, and from then on
// admits only those with enough uses.
func (t *tier) spare(ns kv.Namespace) bool {
	has := func(held, quota int64) bool { return float64(held+int64(t.SlotBytes)) <= t.Low*float64(quota) }
	return !t.Kept && has(t.index.Bytes()+t.reserved, t.Bytes) && has(t.index.NamespaceBytes(ns)+t.spaces[ns], t.NamespaceBytes)
}

// demotes reports whether an extent that a tier below the device would drop should first be
// written to the next lower tier. That is tried only once after each use of the extent.
func demotes(b *Book, of kv.Tier, k mempool.Key) bool {
	n, to := b.nodes[k], b.below(of)
	return n != nil && int(to) < kv.Tiers && !n.demoted && !b.flushing && b.tiers[to].writing[k] == nil && !b.on(to, k) &&
		b.serves(n, to) && !covered(b, to, &n.Extent)
}

// demoteFrom queues a write of extent k of tier of to the next lower tier, after which the extent is
// dropped from tier of. It returns false and does nothing while half of the queue is taken;
// otherwise it returns true. If the write is refused, the extent counts as lost, and a later
// dropOne drops it.
func demoteFrom(b *Book, now time.Duration, of kv.Tier, k mempool.Key) bool {
	if len(b.writes) >= b.cfg.MaxQueue/2 {
		return false
	}
	to := b.below(of)
	b.nodes[k].demoted = true
	if b.write(now, k, of, to, false); b.tiers[to].writing[k] != nil {
		b.tiers[of].demoting[k] = true
	} else {
		b.tiers[to].stats.Lost++
	}
	return true
}

// hasten begins the queued write of extent k to tier to now, after the queued writes of its
// parents, and reports whether it could. It needs enough free moves for all these writes. The
// parent of the topmost one must be in the tier, or its write must have begun.
func hasten(b *Book, now time.Duration, to kv.Tier, k mempool.Key) bool {
	t := b.tiers[to]
	var chain []*entry // children first
	for at := k; ; {
		m := t.writing[at]
		if m == nil || m.begun {
			break
		}
		chain = append(chain, m)
		at = m.Extent.Parent
	}
	if len(chain) > 0 { // the write of the parent above the chain may have failed
		top := chain[len(chain)-1].Extent.Parent
		if parent := t.writing[top]; !top.IsZero() && !b.on(to, top) && (parent == nil || parent.canceled) {
			return false
		}
	}
	if m := t.writing[k]; m == nil || m.canceled || t.moves+len(chain) > t.MaxMoves || t.kinds[Write]+len(chain) > t.most() {
		return false
	}
	for _, m := range slices.Backward(chain) {
		m.Deadline = now + b.cfg.Deadline
		b.begin(m)
	}
	b.writes = slices.DeleteFunc(b.writes, func(m *entry) bool { return m.begun })
	return true
}

// most returns how many of a tier's moves may be writes to it, and how many may be reads: three
// quarters, so that neither kind blocks the other.
func (t *tier) most() int { return t.MaxMoves - t.MaxMoves/4 }

// Offer queues writes of the extents that the device will evict next, as far as the tier below
// has moves and room to spare. It offers an extent once after each use. The owner calls it while
// the device is above its watermark, so that evictions find their extents already written.
func (b *Book) Offer(now time.Duration) {
	to := b.below(kv.TierDevice)
	if int(to) == kv.Tiers || b.cfg.Mode != WriteBack || b.flushing {
		return
	}
	t, device := b.tiers[to], b.tiers[kv.TierDevice].index
	for range offersPerCall {
		if len(b.writes)+t.kinds[Write] > t.most()/2 {
			return
		}
		k, ok := device.Victim(nil)
		if !ok {
			return
		}
		n := b.nodes[k]
		if b.serves(n, to) && !covered(b, to, &n.Extent) && b.write(now, k, kv.TierDevice, to, false) == noRoom && !spill(b, now, n, to) {
			return // the write started to make room; a later call offers the extent again
		}
		device.Pin(k)
		n.offered = true
	}
}

// spill queues the write of an extent to the first tier below tier full that takes it, and
// reports whether there is such a tier. It also returns true if a tier below full has the extent
// already.
func spill(b *Book, now time.Duration, n *node, full kv.Tier) bool {
	for to := b.below(full); int(to) < kv.Tiers; to = b.below(to) {
		t := b.tiers[to]
		if b.on(to, n.Key) || covered(b, to, &n.Extent) {
			return true
		}
		if b.serves(n, to) && t.kinds[Write] <= t.most()/2 && b.write(now, n.Key, kv.TierDevice, to, false) == queued {
			return true
		}
	}
	return false
}

// offersPerCall bounds the extents that one Offer considers.
const offersPerCall = 64
