package tiering

import (
	"cmp"
	"maps"
	"slices"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

// Discard removes extent k, whose KV is wrong, and all its descendants from all tiers. They are
// not found from now on. It cancels reads and writes of these extents that are in flight. If such
// a write succeeds all the same, the book drops its extent.
func (b *Book) Discard(k mempool.Key) {
	b.gone(kv.TierDevice, k)
	for i := range b.tiers {
		if i == int(kv.TierDevice) || b.tiers[i] == nil {
			continue
		}
		discardIn(b, kv.Tier(i), k)
	}
	b.forget(k)
}

// Parts returns dst with the keys of extents appended that have the parent of x and share a page
// or more with x, in tiers below the device or on their way there. They may be copies of KV of x
// under other keys: a request that reads the first pages of x, and ends within them, stores these
// as an extent of its own.
func (b *Book) Parts(x *mempool.Extent, dst []mempool.Key) []mempool.Key {
	for i, t := range b.tiers {
		if t == nil || i == int(kv.TierDevice) {
			continue
		}
		dst = t.index.Parts(x, dst)
		for _, m := range t.children[x.Parent] {
			if m.Extent.Key != x.Key && b.cfg.Layout.SharedPages(&m.Extent, x) > 0 {
				dst = append(dst, m.Extent.Key)
			}
		}
	}
	return dst
}

// discardIn queues drops of an extent and its descendants in one tier, and ends their moves.
func discardIn(b *Book, of kv.Tier, k mempool.Key) {
	t := b.tiers[of]
	for _, x := range t.index.Subtree(k, nil) { // children first
		discardMoves(b, of, x.Key)
		if t.dropping[x.Key] {
			continue
		}
		t.index.Pin(x.Key)
		t.dropping[x.Key] = true
		b.drops = append(b.drops, b.drop(of, &x))
	}
	discardMoves(b, of, k) // k may have a write in flight without being in the index
}

// discardMoves cancels the write of a discarded extent to tier of, and its reads from there.
// Writes of its descendants end too: discardIn cancels them, or turn finds their parent missing.
func discardMoves(b *Book, of kv.Tier, k mempool.Key) {
	if m := b.tiers[of].writing[k]; m != nil {
		b.cancel(m)
		m.void = true
	}
	for _, m := range slices.Concat(b.reads, inFlight(b)) {
		if m.Kind != Read || m.From != of || m.Extent.Key != k || m.canceled {
			continue
		}
		b.cancel(m)
		b.answer(m, false)
	}
}

// cancel gives a move up. If it has begun, cancel emits a Cancel, and Moved must still answer the move;
// otherwise Next takes it out of its queue.
func (b *Book) cancel(m *entry) {
	switch {
	case m.canceled:
		return
	case m.begun:
		b.out = append(b.out, Move{ID: m.ID, Kind: Cancel, From: m.From, To: m.To, Extent: m.Extent})
	case m.Kind == Read:
		b.unread(m)
	}
	m.canceled = true
}

// inFlight returns the moves in flight in ascending order of their numbers.
func inFlight(b *Book) []*entry {
	return slices.SortedFunc(maps.Values(b.flights), func(a, b *entry) int { return cmp.Compare(a.ID, b.ID) })
}

// Clear discards everything, for example after new weights were loaded. The extents of Kept
// tiers are only forgotten, not dropped; Found may add them again.
func (b *Book) Clear() {
	for i, t := range b.tiers {
		if t == nil {
			continue
		}
		for _, x := range t.index.Contents(nil) {
			switch {
			case !x.Parent.IsZero():
			case i == int(kv.TierDevice) || t.Kept:
				b.gone(kv.Tier(i), x.Key)
			default:
				discardIn(b, kv.Tier(i), x.Key)
			}
		}
	}
	for _, m := range slices.Concat(b.writes, inFlight(b)) {
		if m.Kind == Write {
			b.cancel(m)
			m.void = true
		}
	}
}
