package tiering

import (
	"slices"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

// Demote says that the device is about to give up an extent: it is written to the fastest
// tier below that can take it now, after the parents that are missing there. Begun has the
// moves. The caller calls Evicted afterwards, whether a write began or not.
func (p *Policy) Demote(now time.Duration, k mempool.Key) {
	n, first := p.nodes[k], p.below(kv.TierDevice)
	if n == nil || p.flushing || int(first) == kv.Tiers || !p.serves(n, first) {
		return
	}
	for to := first; int(to) < kv.Tiers; to = p.below(to) {
		if p.on(to, k) || covered(p, to, &n.Extent) {
			return
		}
		if !p.serves(n, to) {
			continue
		}
		if p.write(now, k, kv.TierDevice, to, false); hasten(p, now, to, k) {
			return
		}
	}
	p.tiers[first].stats.Lost++
}

// serves reports whether an extent that the tier above gives up is worth a write to a tier.
func (p *Policy) serves(n *node, to kv.Tier) bool {
	return to < kv.TierDisk && p.cfg.Mode != Selective || p.cfg.Mode == Through || n.uses >= p.cfg.Uses || n.idle ||
		p.cfg.Mode == WriteBack && p.tiers[to].spare(n.Namespace)
}

// spare reports whether a tier has room below its low watermark, so that nothing leaves for
// what is written there: a disk fills with extents that were used once, and then takes only
// those that were used again.
func (t *tier) spare(ns kv.Namespace) bool {
	has := func(held, quota int64) bool { return float64(held+int64(t.SlotBytes)) <= t.Low*float64(quota) }
	return !t.Kept && has(t.index.Bytes()+t.reserved, t.Bytes) && has(t.index.NamespaceBytes(ns)+t.spaces[ns], t.NamespaceBytes)
}

// sinks reports whether an extent that a tier below the device is to drop is worth a write
// to the tier below it first. Each is tried once after its last use.
func sinks(p *Policy, of kv.Tier, k mempool.Key) bool {
	n, to := p.nodes[k], p.below(of)
	return n != nil && int(to) < kv.Tiers && !n.sunk && !p.flushing && p.tiers[to].writing[k] == nil && !p.on(to, k) &&
		p.serves(n, to) && !covered(p, to, &n.Extent)
}

// sink queues that write, and reports whether the drop is as good as begun: otherwise it
// has to wait for room in the queue.
func sink(p *Policy, now time.Duration, of kv.Tier, k mempool.Key) bool {
	if len(p.writes) >= p.cfg.MaxQueue/2 {
		return false
	}
	to := p.below(of)
	p.nodes[k].sunk = true
	if p.write(now, k, of, to, false); p.tiers[to].writing[k] != nil {
		p.tiers[of].sinking[k] = true
	} else {
		p.tiers[to].stats.Lost++
	}
	return true
}

// hasten begins a write that is queued, and those of its parents, or reports that they
// can't begin.
func hasten(p *Policy, now time.Duration, to kv.Tier, k mempool.Key) bool {
	t := p.tiers[to]
	var chain []*move // children first
	for at := k; ; {
		m := t.writing[at]
		if m == nil || m.begun {
			break
		}
		chain = append(chain, m)
		at = m.Extent.Parent
	}
	if len(chain) > 0 { // the parent may have failed since
		top := chain[len(chain)-1].Extent.Parent
		if parent := t.writing[top]; !top.IsZero() && !p.on(to, top) && (parent == nil || parent.canceled) {
			return false
		}
	}
	if m := t.writing[k]; m == nil || m.canceled || t.moves+len(chain) > t.MaxMoves || t.kinds[Write]+len(chain) > t.most() {
		return false
	}
	for _, m := range slices.Backward(chain) {
		m.Deadline = now + p.cfg.Deadline
		p.begin(m)
	}
	p.writes = slices.DeleteFunc(p.writes, func(m *move) bool { return m.begun })
	return true
}

// most is how many of a tier's moves may be writes to it, and how many reads, so that
// neither keeps the other out.
func (t *tier) most() int { return t.MaxMoves - t.MaxMoves/4 }

// Offer begins writes of what the device will evict next, as far as the tier below has
// moves and room to spare: once after each use of an extent. The owner calls it while the
// device is full beyond its watermark.
func (p *Policy) Offer(now time.Duration) {
	to := p.below(kv.TierDevice)
	if int(to) == kv.Tiers || p.cfg.Mode != WriteBack || p.flushing {
		return
	}
	t, device := p.tiers[to], p.tiers[kv.TierDevice].index
	for range offersPerCall {
		if len(p.writes)+t.kinds[Write] > t.most()/2 {
			return
		}
		k, ok := device.Victim(nil)
		if !ok {
			return
		}
		n := p.nodes[k]
		if p.serves(n, to) && !covered(p, to, &n.Extent) && p.write(now, k, kv.TierDevice, to, false) == noRoom && !spill(p, now, n, to) {
			return // room is being made; a later call offers the extent again
		}
		device.Pin(k)
		n.offered = true
	}
}

// spill writes an extent that a tier has no room for to the next one that takes it, and reports
// whether there is one.
func spill(p *Policy, now time.Duration, n *node, full kv.Tier) bool {
	for to := p.below(full); int(to) < kv.Tiers; to = p.below(to) {
		t := p.tiers[to]
		if p.on(to, n.Key) || covered(p, to, &n.Extent) {
			return true
		}
		if p.serves(n, to) && t.kinds[Write] <= t.most()/2 && p.write(now, n.Key, kv.TierDevice, to, false) == queued {
			return true
		}
	}
	return false
}

// offersPerCall bounds how many extents one Offer looks at.
const offersPerCall = 64
