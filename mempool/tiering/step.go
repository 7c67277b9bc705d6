package tiering

import (
	"errors"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

// ErrCopy reports that the pages of a Read could not be copied to the device. The extent in the
// lower tier is intact.
var ErrCopy = errors.New("tiering: pages were not copied to the device")

// Next returns dst with the moves appended that the owner must begin now, in this order, also those
// that other calls have begun. The owner answers each move with Moved, except Cancels.
func (b *Book) Next(now time.Duration, dst []Move) []Move {
	nextLast(b, now)
	nextDrops(b)
	nextReads(b, now)
	for i, t := range b.tiers {
		if t != nil && i > 0 && !b.flushing {
			b.trim(now, kv.Tier(i), kv.Namespace{}, 0)
		}
	}
	nextWrites(b, now)
	dst = append(dst, b.out...)
	clear(b.out)
	b.out = b.out[:0]
	return dst
}

// nextDrops begins queued drops of extents that have no child in the tier or on its way there.
func nextDrops(b *Book) {
	kept := b.drops[:0]
	for _, m := range b.drops {
		t, k := b.tiers[m.From], m.Extent.Key
		if t.moves >= t.MaxMoves || t.index.Children(k) > 0 || t.orphans[k] > 0 || t.awaited(k) {
			kept = append(kept, m)
			continue
		}
		b.begin(m)
	}
	clear(b.drops[len(kept):])
	b.drops = kept
}

// Lapse ends queued reads that can no longer begin, as failed: those past their deadline, those
// whose extent has gone, and those that waited for a write that has failed. The owner calls it
// before it decides anything, since requests that wait for such reads can go on at once. Next
// calls it too.
func (b *Book) Lapse(now time.Duration) {
	kept := b.reads[:0]
	for _, m := range b.reads {
		switch t := b.tiers[m.From]; {
		case m.canceled:
		case now <= m.Deadline && (m.early && t.expects(m.Extent.Key) || !m.early && b.on(m.From, m.Extent.Key)):
			kept = append(kept, m)
		default:
			b.unread(m)
			b.answer(m, false)
		}
	}
	clear(b.reads[len(kept):])
	b.reads = kept
}

// nextReads begins queued reads, for each tier in the order of the requests. A read of an extent
// whose write is in flight waits for that write.
func nextReads(b *Book, now time.Duration) {
	b.Lapse(now)
	kept := b.reads[:0]
	for _, m := range b.reads {
		switch t := b.tiers[m.From]; {
		case m.canceled: // by an answer of Lapse, which gives up the reads after the failed one
		case m.early || t.moves >= t.MaxMoves || t.kinds[Read] >= t.most():
			kept = append(kept, m)
		default:
			b.begin(m)
		}
	}
	clear(b.reads[len(kept):])
	b.reads = kept
}

// nextWrites begins queued writes, parents first, and gives up those that turn finds dead.
func nextWrites(b *Book, now time.Duration) {
	kept := b.writes[:0]
	var lost []*entry
	for _, m := range b.writes {
		if b.full(m) {
			kept = append(kept, m)
			continue
		}
		switch b.turn(m) {
		case waits:
			kept = append(kept, m)
		case dead:
			m.canceled = true // then turn finds its descendants dead as well: they come later in the queue
			lost = append(lost, m)
		default:
			if !b.flushing {
				m.Deadline = now + b.cfg.Deadline
			}
			b.begin(m)
		}
	}
	clear(b.writes[len(kept):])
	b.writes = kept
	for _, m := range lost {
		b.unwrite(m)
		b.forget(m.Extent.Key)
	}
}

// Moved tells the book that move id has ended, with the error err or successfully after the time
// took. It ignores unknown numbers and moves that were answered before.
func (b *Book) Moved(now time.Duration, id MoveID, err error, took time.Duration) {
	m := b.flights[id]
	if m == nil {
		return
	}
	if m.Kind == Write && m.From == kv.TierDevice {
		b.Device.Copied(id)
		if !b.cfg.NoChanges {
			b.Device.written = append(b.Device.written, m.Extent.Key)
		}
	}
	delete(b.flights, id)
	from := b.tiers[m.From]
	from.moves--
	failed := err != nil && !errors.Is(err, mempool.ErrCanceled)
	switch m.Kind {
	case Write:
		to := b.tiers[m.To]
		to.moves--
		to.kinds[Write]--
		if to.stats.count(failed); err == nil {
			to.stats.Writes++
			to.stats.WriteBytes += uint64(b.cfg.Layout.Bytes(&m.Extent))
		}
		b.wrote(now, m, err)
	case Read:
		from.kinds[Read]--
		if from.stats.count(failed); err == nil {
			from.stats.Reads++
			from.stats.ReadBytes += uint64(b.cfg.Layout.Bytes(&m.Extent))
			from.stats.ReadNanos += uint64(max(took, 0))
		}
		b.read(now, m, err, took)
	case Drop:
		from.stats.count(failed && !errors.Is(err, mempool.ErrMiss))
		b.dropped(m)
	}
}

// wrote handles the end of a write. It does not repeat a failed write. After a successful write to
// host memory, it may queue writes of the extent to the tiers below.
func (b *Book) wrote(now time.Duration, m *entry, err error) {
	b.unwrite(m)
	x := &m.Extent
	switch {
	case errors.Is(err, mempool.ErrFull):
		b.crowded(now, m.To)
	case err != nil:
	case m.void || b.tiers[m.To].dropping[x.Parent]:
		dropUnknown(b, m.To, x)
	case b.add(m.To, x):
		written(b, m.To, x.Key)
		replaced(b, m.To, x)
	default: // its parent has gone meanwhile, so no lookup would reach it
		dropUnknown(b, m.To, x)
	}
	if err == nil && b.flushing && now < b.flush && m.To < kv.TierDisk { // it was in flight when Shutdown listed extents
		for to := kv.TierDisk; int(to) < kv.Tiers; to++ {
			b.writeLast(now, x.Key, m.To, to)
		}
	}
	if n := b.nodes[x.Key]; err == nil && n != nil && !m.void && m.To < kv.TierDisk && (n.uses >= b.cfg.Uses || n.idle) {
		b.admit(now, n)
	}
	b.forget(x.Key)
}

// dropUnknown queues the drop of an extent that a store has and the index has not.
func dropUnknown(b *Book, of kv.Tier, x *mempool.Extent) {
	m := b.drop(of, x)
	m.orphan = true
	b.tiers[of].dropping[x.Key] = true
	b.tiers[of].orphans[x.Parent]++
	b.drops = append(b.drops, m)
}

// replaced queues the drop of a tail that the new extent x contains.
func replaced(b *Book, of kv.Tier, x *mempool.Extent) {
	tail, ok := outgrown(b, of, x)
	t := b.tiers[of]
	if !ok || t.Kept || t.dropping[tail] || t.reading[tail] != nil || !b.flushing && t.moves >= t.MaxMoves {
		return
	}
	y, _ := t.index.Extent(tail)
	t.index.Pin(tail)
	t.dropping[tail] = true
	b.drops = append(b.drops, b.drop(of, &y))
}

// read handles the end of a read. After a deadline, a cancellation, ErrBusy, ErrClosed or ErrCopy
// the extent is still in the tier. After any other error it and its descendants are removed from
// the index.
func (b *Book) read(now time.Duration, m *entry, err error, took time.Duration) {
	b.unread(m)
	t := b.tiers[m.From]
	switch {
	case err == nil:
		t.measure(now, &b.cfg.Layout, b.cfg.Layout.Bytes(&m.Extent), took)
	case errors.Is(err, mempool.ErrDeadline), errors.Is(err, mempool.ErrCanceled), errors.Is(err, mempool.ErrBusy), errors.Is(err, mempool.ErrClosed), errors.Is(err, ErrCopy):
		if errors.Is(err, mempool.ErrDeadline) {
			t.late(now, m)
		}
	default:
		b.gone(m.From, m.Extent.Key)
	}
	b.answer(m, err == nil)
	b.forget(m.Extent.Key)
}

// dropped handles the end of a drop. The extent leaves the index even if the drop failed.
func (b *Book) dropped(m *entry) {
	t := b.tiers[m.From]
	delete(t.dropping, m.Extent.Key)
	if m.orphan {
		if t.orphans[m.Extent.Parent]--; t.orphans[m.Extent.Parent] == 0 {
			delete(t.orphans, m.Extent.Parent)
		}
	}
	t.index.Unpin(m.Extent.Key)
	b.gone(m.From, m.Extent.Key)
}
