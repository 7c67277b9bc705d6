package tiering

import (
	"cmp"
	"maps"
	"slices"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

// Discard says that the KV of an extent is wrong: it, and what is below it, is found
// nowhere from now on, and is dropped from all tiers. Writes and reads of it that are in
// flight are canceled, and come to nothing.
func (p *Policy) Discard(k mempool.Key) {
	p.gone(kv.TierDevice, k)
	for i := range p.tiers {
		if i == int(kv.TierDevice) || p.tiers[i] == nil {
			continue
		}
		discardIn(p, kv.Tier(i), k)
	}
	p.forget(k)
}

func discardIn(p *Policy, of kv.Tier, k mempool.Key) {
	t := p.tiers[of]
	for _, x := range t.index.Subtree(k, nil) { // children first
		discardMoves(p, of, x.Key)
		if t.dropping[x.Key] {
			continue
		}
		t.index.Pin(x.Key)
		t.dropping[x.Key] = true
		p.drops = append(p.drops, p.drop(of, &x))
	}
	discardMoves(p, of, k) // not in the index yet
}

// discardMoves ends the moves of an extent that is discarded. Writes below it end with
// their parent: they are canceled, or find it missing.
func discardMoves(p *Policy, of kv.Tier, k mempool.Key) {
	if m := p.tiers[of].writing[k]; m != nil {
		p.void(m)
	}
	for _, m := range slices.Concat(p.reads, inFlight(p)) {
		if m.Kind != Read || m.From != of || m.Extent.Key != k || m.canceled {
			continue
		}
		m.canceled = true
		if m.begun {
			p.cancel(m)
		} else {
			p.unread(m) // Next takes it out of the queue
		}
		p.answer(m, false)
	}
}

// void makes a write come to nothing. Next takes it out of the queue if it has not begun.
func (p *Policy) void(m *move) {
	if m.begun && !m.canceled {
		p.cancel(m)
	}
	m.canceled, m.void = true, true
}

// cancel says that a move that has begun is needed no more.
func (p *Policy) cancel(m *move) {
	p.out = append(p.out, Move{ID: m.ID, Kind: Cancel, From: m.From, To: m.To, Extent: m.Extent})
}

// inFlight are the moves in flight, by number.
func inFlight(p *Policy) []*move {
	return slices.SortedFunc(maps.Values(p.flights), func(a, b *move) int { return cmp.Compare(a.ID, b.ID) })
}

// Clear forgets everything, as after new weights. Tiers that others keep are only
// forgotten; Found may tell of them again.
func (p *Policy) Clear() {
	for i, t := range p.tiers {
		if t == nil {
			continue
		}
		for _, x := range t.index.Contents(nil) {
			switch {
			case !x.Parent.IsZero():
			case i == int(kv.TierDevice) || t.Kept:
				p.gone(kv.Tier(i), x.Key)
			default:
				discardIn(p, kv.Tier(i), x.Key)
			}
		}
	}
	for _, m := range slices.Concat(p.writes, inFlight(p)) {
		if m.Kind == Write {
			p.void(m)
		}
	}
}
