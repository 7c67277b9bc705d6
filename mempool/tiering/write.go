package tiering

import (
	"slices"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

// outcome is the result of a call of write.
type outcome uint8

const (
	queued  outcome = iota // queued now or before, or already in the tier
	refused                // a parent is missing, or the queue or the namespace's quota is full
	noRoom                 // the tier is full; trim has begun to make room
)

// write queues the copy of extent k from tier from to the lower tier to, after copies of the parents
// that are missing there, and reserves room for all of them. urgent marks a final write of a
// shutdown: after Shutdown, write refuses all others. If it does not return queued, it has queued
// nothing.
func (b *Book) write(now time.Duration, k mempool.Key, from, to kv.Tier, urgent bool) outcome {
	if int(to) >= kv.Tiers || b.tiers[to] == nil || b.flushing && !urgent {
		return refused
	}
	t := b.tiers[to]
	var chain []*node // children first
	for at := k; !at.IsZero() && !b.on(to, at); {
		if m := t.writing[at]; m != nil && m.canceled {
			return refused // the canceled write may still be in flight
		} else if m != nil {
			break
		}
		n := b.nodes[at]
		if n == nil || t.dropping[at] || !b.on(from, at) || t.FullOnly && len(n.Tokens) < b.cfg.Layout.ExtentTokens() {
			return refused
		}
		chain = append(chain, n)
		at = n.Parent
	}
	if len(chain) == 0 {
		return queued
	}
	if !b.flushing && len(b.writes)+len(chain) > b.cfg.MaxQueue {
		return refused
	}
	ns, need := chain[0].Namespace, int64(len(chain))*int64(t.SlotBytes)
	full := !t.Kept && t.index.Bytes()+t.reserved+need > t.Bytes
	if full || t.index.NamespaceBytes(ns)+t.spaces[ns]+need > t.NamespaceBytes {
		if !b.flushing {
			b.trim(now, to, ns, need)
		}
		if full {
			return noRoom
		}
		return refused
	}
	for _, n := range slices.Backward(chain) {
		m := &entry{Move: Move{ID: b.next(), Kind: Write, From: from, To: to, Extent: n.Extent, Deadline: now + b.cfg.Deadline}, size: int64(t.SlotBytes)}
		if b.flushing {
			m.Deadline = b.flush
		}
		t.writing[n.Key] = m
		t.children[n.Parent] = append(t.children[n.Parent], m)
		t.reserved += m.size
		t.spaces[ns] += m.size
		if from != kv.TierDevice {
			b.tiers[from].index.Pin(n.Key)
		}
		b.writes = append(b.writes, m)
	}
	return queued
}

func (b *Book) next() MoveID {
	b.moves++
	return b.moves
}

// unwrite removes a write, which has ended or is given up, from the state of its tiers, and frees its
// reserved room.
func (b *Book) unwrite(m *entry) {
	t := b.tiers[m.To]
	delete(t.writing, m.Extent.Key)
	rest := slices.DeleteFunc(t.children[m.Extent.Parent], func(o *entry) bool { return o == m })
	if t.children[m.Extent.Parent] = rest; len(rest) == 0 {
		delete(t.children, m.Extent.Parent)
	}
	t.reserved -= m.size
	if t.spaces[m.Extent.Namespace] -= m.size; t.spaces[m.Extent.Namespace] == 0 {
		delete(t.spaces, m.Extent.Namespace)
	}
	if m.From != kv.TierDevice {
		b.tiers[m.From].index.Unpin(m.Extent.Key)
		delete(b.tiers[m.From].demoting, m.Extent.Key)
	}
}

// turn is the decision about a queued write.
type turn uint8

const (
	goes turn = iota
	waits
	dead // its source has gone, or its parent will not be in the tier
)

// turn decides about a queued write. It may begin when its parent is in the tier or the parent's
// write has begun.
func (b *Book) turn(m *entry) turn {
	from, to, x := b.tiers[m.From], b.tiers[m.To], &m.Extent
	parent := to.writing[x.Parent]
	switch {
	case m.canceled || !from.index.Has(x.Key):
		return dead
	case !x.Parent.IsZero() && !b.on(m.To, x.Parent) && (parent == nil || parent.canceled):
		return dead
	case !x.Parent.IsZero() && !b.on(m.To, x.Parent) && !parent.begun:
		return waits
	}
	return goes
}

// full reports whether the limits on moves prevent a write like m from beginning. Writes between
// lower tiers get half of the write moves; the rest is for the device, which may evict at any
// time.
func (b *Book) full(m *entry) bool {
	from, to := b.tiers[m.From], b.tiers[m.To]
	most := to.most()
	if m.From != kv.TierDevice && !b.flushing {
		most = (most + 1) / 2
	}
	return to.moves >= to.MaxMoves || to.kinds[Write] >= most || m.From != kv.TierDevice && from.moves >= from.MaxMoves
}

// trim begins drops from tier of so that need more bytes fit: until namespace ns with need more
// bytes is within NamespaceBytes, and then, if the tier with need more bytes is above High, until
// it is at Low. Extents that are already leaving count as gone. trim may stop earlier, when dropOne
// finds nothing to drop or the tier has no free move.
func (b *Book) trim(now time.Duration, of kv.Tier, ns kv.Namespace, need int64) {
	t := b.tiers[of]
	if t.Kept {
		return
	}
	held := t.index.Bytes() + t.reserved + need
	over := t.index.NamespaceBytes(ns) + t.spaces[ns] + need - t.NamespaceBytes - leaving(t, &ns)
	for over > 0 && dropOne(b, now, of, &ns) {
		over -= int64(t.SlotBytes)
	}
	held -= leaving(t, nil)
	if float64(held) <= t.High*float64(t.Bytes) {
		return
	}
	for float64(held) > t.Low*float64(t.Bytes) && dropOne(b, now, of, nil) {
		held -= int64(t.SlotBytes)
	}
}

// crowded handles a store that is full although its tier is below its quota, as on a disk without
// room. Unless extents are leaving the tier already, it begins drops until the tier is at Low of what
// it held, so that later writes find room.
func (b *Book) crowded(now time.Duration, of kv.Tier) {
	t := b.tiers[of]
	if t.Kept || b.flushing || leaving(t, nil) > 0 {
		return
	}
	held := t.index.Bytes()
	for low := t.Low * float64(held); float64(held) > low && dropOne(b, now, of, nil); {
		held -= int64(t.SlotBytes)
	}
}

// leaving returns the bytes of extents that are being dropped, or will be once they have been
// written to the tier below; of one namespace, or of all if ns is nil.
func leaving(t *tier, ns *kv.Namespace) (bytes int64) {
	if ns == nil {
		return int64(len(t.dropping)+len(t.demoting)) * int64(t.SlotBytes)
	}
	for _, keys := range [...]map[mempool.Key]bool{t.dropping, t.demoting} {
		for k := range keys { // a sum, in any order
			if x, ok := t.index.Extent(k); ok && x.Namespace == *ns {
				bytes += int64(t.SlotBytes)
			}
		}
	}
	return bytes
}

// awaited reports whether a child of the extent is on its way to the tier.
func (t *tier) awaited(k mempool.Key) bool { return len(t.children[k]) > 0 }

// lookAhead bounds how many leaves dropOne considers.
const lookAhead = 8

// dropOne begins to drop the least recently used leaf of tier of, in namespace ns or in all if ns is
// nil. If the leaf should be demoted, it queues the leaf's write to the tier below instead; the drop
// follows that write. A leaf whose child is on its way to the tier can't be dropped: dropOne makes it
// the most recently used and tries the next. It returns false if it began or queued nothing.
func dropOne(b *Book, now time.Duration, of kv.Tier, ns *kv.Namespace) bool {
	t := b.tiers[of]
	if t.moves >= t.MaxMoves {
		return false
	}
	for range lookAhead {
		k, ok := t.index.Victim(ns)
		if !ok {
			return false
		}
		if t.awaited(k) || t.orphans[k] > 0 {
			t.index.Touch(k)
			continue
		}
		if demotes(b, of, k) {
			return demoteFrom(b, now, of, k)
		}
		x, _ := t.index.Extent(k)
		t.index.Pin(k)
		t.dropping[k] = true
		b.begin(b.drop(of, &x))
		return true
	}
	return false
}

// drop returns a new move that drops an extent.
func (b *Book) drop(of kv.Tier, x *mempool.Extent) *entry {
	return &entry{Move: Move{ID: b.next(), Kind: Drop, From: of, To: of, Extent: *x}}
}

// begin counts a move as in flight and hands it to Next.
func (b *Book) begin(m *entry) {
	m.begun = true
	b.flights[m.ID] = m
	b.tiers[m.From].moves++
	switch m.Kind {
	case Write:
		if m.From == kv.TierDevice {
			b.Device.reads(m, b.nodes[m.Extent.Key])
		}
		b.tiers[m.To].moves++
		b.tiers[m.To].kinds[Write]++
	case Read:
		b.tiers[m.From].kinds[Read]++
		m.stalls = b.tiers[m.From].stalls
	}
	b.out = append(b.out, m.Move)
}
