package tiering

import (
	"errors"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

// Next appends the moves to begin now. Those of kind Cancel and Abandon are not answered;
// all others are, by Moved.
func (p *Policy) Next(now time.Duration, dst []Move) []Move {
	if p.flushing && now >= p.flush {
		p.writes = p.abandon(p.writes)
	}
	p.nextReads(now)
	p.nextWrites(now)
	for i, t := range p.tiers {
		if t != nil && i > 0 && !p.flushing {
			p.trim(kv.Tier(i), kv.Namespace{}, 0)
		}
	}
	dst = append(dst, p.out...)
	p.out = p.out[:0]
	return dst
}

// nextReads begins reads, in the order in which they were asked for, of each tier.
func (p *Policy) nextReads(now time.Duration) {
	kept := p.reads[:0]
	for _, m := range p.reads {
		switch t := p.tiers[m.From]; {
		case m.canceled:
		case !p.on(m.From, m.Extent.Key) || now > m.Deadline:
			p.unread(m)
			p.answer(m, false)
		case t.moves >= t.MaxMoves:
			kept = append(kept, m)
		default:
			p.begin(m)
		}
	}
	clear(p.reads[len(kept):])
	p.reads = kept
}

// nextWrites begins writes, parents first.
func (p *Policy) nextWrites(now time.Duration) {
	kept := p.writes[:0]
	var lost []*move
	for _, m := range p.writes {
		switch p.turn(m) {
		case waits:
			kept = append(kept, m)
		case dead:
			m.canceled = true // so are those below it, which come after it
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
	p.abandon(lost)
	for _, m := range lost {
		p.forget(m.Extent.Key)
	}
}

// Moved says how a move has ended: with err, or after how long. An unknown number is
// ignored, as is that of one answered before.
func (p *Policy) Moved(now time.Duration, id MoveID, err error, took time.Duration) {
	m := p.flights[id]
	if m == nil {
		return
	}
	delete(p.flights, id)
	p.tiers[m.From].moves--
	switch m.Kind {
	case Write:
		p.tiers[m.To].moves--
		p.wrote(now, m, err)
	case Read:
		p.read(now, m, err, took)
	case Drop:
		p.dropped(m)
	}
}

// wrote ends a write. One that failed is not tried again.
func (p *Policy) wrote(now time.Duration, m *move, err error) {
	p.unwrite(m)
	x := &m.Extent
	if err == nil && !p.add(m.To, x, p.tiers[m.To].SlotBytes) {
		// Its parent went meanwhile, so nobody would find it.
		p.begin(&move{Move: Move{ID: p.next(), Kind: Drop, From: m.To, To: m.To, Extent: *x}})
	}
	if n := p.nodes[x.Key]; err == nil && n != nil && m.To < kv.TierDisk && (n.uses >= p.cfg.Uses || n.idle) {
		p.admit(now, n)
	}
	p.forget(x.Key)
}

// read ends a read. After a failure the extent, and what is below it, is in the tier no
// more; after a deadline or a cancellation it still is.
func (p *Policy) read(now time.Duration, m *move, err error, took time.Duration) {
	p.unread(m)
	t := p.tiers[m.From]
	switch {
	case err == nil:
		if took > 0 {
			t.bandwidth = smooth(t.bandwidth, float64(p.cfg.Layout.Bytes(&m.Extent))/took.Seconds())
		}
		if n := p.nodes[m.Extent.Key]; n != nil && !m.canceled && len(n.Tokens) == len(m.Extent.Tokens) {
			p.add(kv.TierDevice, &n.Extent, 0)
			p.use(now, n)
		}
	case errors.Is(err, mempool.ErrDeadline), errors.Is(err, mempool.ErrCanceled), errors.Is(err, mempool.ErrBusy), errors.Is(err, mempool.ErrClosed):
		if errors.Is(err, mempool.ErrDeadline) { // slower than it was believed to be
			t.bandwidth /= 2
		}
	default:
		p.gone(m.From, m.Extent.Key)
	}
	p.answer(m, err == nil)
	p.forget(m.Extent.Key)
}

// dropped ends a removal. Whatever the store says, the extent is not offered any more.
func (p *Policy) dropped(m *move) {
	t := p.tiers[m.From]
	delete(t.dropping, m.Extent.Key)
	t.index.Unpin(m.Extent.Key)
	p.gone(m.From, m.Extent.Key)
}
