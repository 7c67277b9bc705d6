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
func (p *Policy) Next(now time.Duration, dst []Move) []Move {
	nextLast(p, now)
	nextDrops(p)
	nextReads(p, now)
	for i, t := range p.tiers {
		if t != nil && i > 0 && !p.flushing {
			p.trim(now, kv.Tier(i), kv.Namespace{}, 0)
		}
	}
	nextWrites(p, now)
	dst = append(dst, p.out...)
	clear(p.out)
	p.out = p.out[:0]
	return dst
}

// nextDrops begins queued drops of extents that have no child in the tier or on its way there.
func nextDrops(p *Policy) {
	kept := p.drops[:0]
	for _, m := range p.drops {
		t, k := p.tiers[m.From], m.Extent.Key
		if t.moves >= t.MaxMoves || t.index.Children(k) > 0 || t.orphans[k] > 0 || t.awaited(k) {
			kept = append(kept, m)
			continue
		}
		p.begin(m)
	}
	clear(p.drops[len(kept):])
	p.drops = kept
}

// Lapse ends queued reads that can no longer begin, as failed: those past their deadline, those
// whose extent has gone, and those that waited for a write that has failed. The owner calls it
// before it decides anything, since requests that wait for such reads can go on at once. Next
// calls it too.
func (p *Policy) Lapse(now time.Duration) {
	kept := p.reads[:0]
	for _, m := range p.reads {
		switch t := p.tiers[m.From]; {
		case m.canceled:
		case now <= m.Deadline && (m.early && t.expects(m.Extent.Key) || !m.early && p.on(m.From, m.Extent.Key)):
			kept = append(kept, m)
		default:
			p.unread(m)
			p.answer(m, false)
		}
	}
	clear(p.reads[len(kept):])
	p.reads = kept
}

// nextReads begins queued reads, for each tier in the order of the requests. A read of an extent
// whose write is in flight waits for that write.
func nextReads(p *Policy, now time.Duration) {
	p.Lapse(now)
	kept := p.reads[:0]
	for _, m := range p.reads {
		switch t := p.tiers[m.From]; {
		case m.canceled: // by an answer of Lapse, which gives up the reads after the failed one
		case m.early || t.moves >= t.MaxMoves || t.kinds[Read] >= t.most():
			kept = append(kept, m)
		default:
			p.begin(m)
		}
	}
	clear(p.reads[len(kept):])
	p.reads = kept
}

// nextWrites begins queued writes, parents first, and gives up those that turn finds dead.
func nextWrites(p *Policy, now time.Duration) {
	kept := p.writes[:0]
	var lost []*move
	for _, m := range p.writes {
		if p.full(m) {
			kept = append(kept, m)
			continue
		}
		switch p.turn(m) {
		case waits:
			kept = append(kept, m)
		case dead:
			m.canceled = true // then turn finds its descendants dead as well: they come later in the queue
			lost = append(lost, m)
		default:
			if !p.flushing {
				m.Deadline = now + p.cfg.Deadline
			}
			p.begin(m)
		}
	}
	clear(p.writes[len(kept):])
	p.writes = kept
	for _, m := range lost {
		p.unwrite(m)
		p.forget(m.Extent.Key)
	}
}

// Moved tells the policy that move id has ended, with the error err or successfully after the time
// took. It ignores unknown numbers and moves that were answered before.
func (p *Policy) Moved(now time.Duration, id MoveID, err error, took time.Duration) {
	m := p.flights[id]
	if m == nil {
		return
	}
	if m.Kind == Write && m.From == kv.TierDevice {
		p.Device.Copied(id)
		p.Device.written = append(p.Device.written, m.Extent.Key)
	}
	delete(p.flights, id)
	from := p.tiers[m.From]
	from.moves--
	failed := err != nil && !errors.Is(err, mempool.ErrCanceled)
	switch m.Kind {
	case Write:
		to := p.tiers[m.To]
		to.moves--
		to.kinds[Write]--
		if to.stats.count(failed); err == nil {
			to.stats.Writes++
			to.stats.WriteBytes += uint64(p.cfg.Layout.Bytes(&m.Extent))
		}
		p.wrote(now, m, err)
	case Read:
		from.kinds[Read]--
		if from.stats.count(failed); err == nil {
			from.stats.Reads++
			from.stats.ReadBytes += uint64(p.cfg.Layout.Bytes(&m.Extent))
			from.stats.ReadNanos += uint64(max(took, 0))
		}
		p.read(now, m, err, took)
	case Drop:
		from.stats.count(failed && !errors.Is(err, mempool.ErrMiss))
		p.dropped(m)
	}
}

// wrote handles the end of a write. It does not repeat a failed write. After a successful write to
// host memory, it may queue writes of the extent to the tiers below.
func (p *Policy) wrote(now time.Duration, m *move, err error) {
	p.unwrite(m)
	x := &m.Extent
	switch {
	case errors.Is(err, mempool.ErrFull):
		p.crowded(now, m.To)
	case err != nil:
	case m.void || p.tiers[m.To].dropping[x.Parent]:
		dropUnknown(p, m.To, x)
	case p.add(m.To, x):
		written(p, m.To, x.Key)
		replaced(p, m.To, x)
	default: // its parent has gone meanwhile, so no lookup would reach it
		dropUnknown(p, m.To, x)
	}
	if err == nil && p.flushing && now < p.flush && m.To < kv.TierDisk { // it was in flight when Shutdown listed extents
		for to := kv.TierDisk; int(to) < kv.Tiers; to++ {
			p.writeLast(now, x.Key, m.To, to)
		}
	}
	if n := p.nodes[x.Key]; err == nil && n != nil && !m.void && m.To < kv.TierDisk && (n.uses >= p.cfg.Uses || n.idle) {
		p.admit(now, n)
	}
	p.forget(x.Key)
}

// dropUnknown queues the drop of an extent that a store has and the index has not.
func dropUnknown(p *Policy, of kv.Tier, x *mempool.Extent) {
	m := p.drop(of, x)
	m.orphan = true
	p.tiers[of].dropping[x.Key] = true
	p.tiers[of].orphans[x.Parent]++
	p.drops = append(p.drops, m)
}

// replaced queues the drop of a tail that the new extent x contains.
func replaced(p *Policy, of kv.Tier, x *mempool.Extent) {
	tail, ok := outgrown(p, of, x)
	t := p.tiers[of]
	if !ok || t.Kept || t.dropping[tail] || t.reading[tail] != nil || !p.flushing && t.moves >= t.MaxMoves {
		return
	}
	y, _ := t.index.Extent(tail)
	t.index.Pin(tail)
	t.dropping[tail] = true
	p.drops = append(p.drops, p.drop(of, &y))
}

// read handles the end of a read. After a deadline, a cancellation, ErrBusy, ErrClosed or ErrCopy
// the extent is still in the tier. After any other error it and its descendants are removed from
// the index.
func (p *Policy) read(now time.Duration, m *move, err error, took time.Duration) {
	p.unread(m)
	t := p.tiers[m.From]
	switch {
	case err == nil:
		t.measure(now, &p.cfg.Layout, p.cfg.Layout.Bytes(&m.Extent), took)
	case errors.Is(err, mempool.ErrDeadline), errors.Is(err, mempool.ErrCanceled), errors.Is(err, mempool.ErrBusy), errors.Is(err, mempool.ErrClosed), errors.Is(err, ErrCopy):
		if errors.Is(err, mempool.ErrDeadline) {
			t.late(now, m)
		}
	default:
		p.gone(m.From, m.Extent.Key)
	}
	p.answer(m, err == nil)
	p.forget(m.Extent.Key)
}

// dropped handles the end of a drop. The extent leaves the index even if the drop failed.
func (p *Policy) dropped(m *move) {
	t := p.tiers[m.From]
	delete(t.dropping, m.Extent.Key)
	if m.orphan {
		if t.orphans[m.Extent.Parent]--; t.orphans[m.Extent.Parent] == 0 {
			delete(t.orphans, m.Extent.Parent)
		}
	}
	t.index.Unpin(m.Extent.Key)
	p.gone(m.From, m.Extent.Key)
}
