package tiering

import (
	"math"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

// want is a request that waits for extents.
type want struct {
	parts []part
}

// part is an extent that a request waits for.
type part struct {
	move   *move // nil once it is answered
	tokens int
	here   bool
}

// source is where an extent, or its first pages, can be read.
type source struct {
	tier   kv.Tier
	extent mempool.Extent // with the record's key, and as many tokens as serve
	early  bool           // it is being written to the tier
	// Seconds to fetch it, after those before it, and to compute as much.
	fetch, compute float64
}

// Part is one of the reads that Want promises.
type Part struct {
	Move   MoveID
	From   kv.Tier
	Start  int // the first token that it reads
	Tokens int
	// Deadline, on the clock of now: without an answer by then it is not worth waiting for.
	Deadline time.Duration
}

// Worth is how many tokens Want would fetch now, to the end of the last extent. It changes
// nothing.
func (p *Policy) Worth(now time.Duration, xs []mempool.Extent, have int) (tokens int) {
	if p.flushing {
		return 0
	}
	for _, s := range p.worth(now, sources(p, xs), have) {
		tokens += len(s.extent.Tokens)
	}
	return tokens
}

// Want begins the fetch of a request's extents: those after the have tokens that the device
// has, parents first; have may end within the first of them. It takes as many, from the first, as are in lower tiers, and stops where
// computing the rest is as fast. It appends the reads that are to come, in order: of whole
// extents, and at last maybe of the first pages of one. A request wants once; Forget ends it.
func (p *Policy) Want(now time.Duration, id RequestID, xs []mempool.Extent, have int, dst []Part) []Part {
	if p.wants[id] != nil || p.flushing {
		return dst
	}
	sources := p.worth(now, sources(p, xs), have)
	if len(sources) == 0 {
		return dst
	}
	w := &want{}
	p.wants[id] = w
	for i := range sources {
		m := readOf(p, now, &sources[i])
		m.waiters = append(m.waiters, w)
		w.parts = append(w.parts, part{move: m, tokens: len(m.Extent.Tokens)})
		dst = append(dst, Part{m.ID, m.From, m.Extent.Start, len(m.Extent.Tokens), m.Deadline})
	}
	return dst
}

// sources finds the extents in the lower tiers, the fastest first, up to the first that is
// nowhere; of that one the pages that a brother shares.
func sources(p *Policy, xs []mempool.Extent) (found []source) {
	for i := range xs {
		x := &xs[i]
		if at := p.fastest(x.Key, kv.TierHost, kv.Tiers); int(at) < kv.Tiers {
			found = append(found, source{tier: at, extent: *x})
			continue
		}
		if at := arriving(p, x.Key); int(at) < kv.Tiers {
			found = append(found, source{tier: at, extent: *x, early: true})
			continue
		}
		var best mempool.Hit
		var in kv.Tier
		for t := kv.TierHost; int(t) < kv.Tiers; t++ {
			if p.tiers[t] == nil {
				continue
			}
			if h, ok := p.tiers[t].index.Part(x); ok && h.Pages > best.Pages && !p.tiers[t].dropping[h.Key] {
				best, in = h, t
			}
		}
		if best.Pages > 0 {
			part, _ := p.tiers[in].index.Extent(best.Key)
			part.Tokens = part.Tokens[:best.Pages*p.cfg.Layout.PageTokens]
			end := part.Start + len(part.Tokens)
			n := 0
			for n < len(part.Media) && part.Media[n].At < end {
				n++
			}
			part.Media = part.Media[:n]
			found = append(found, source{tier: in, extent: part})
		}
		break
	}
	return found
}

// arriving is the first tier that an extent is being written to, kv.Tiers if there is none.
func arriving(p *Policy, k mempool.Key) kv.Tier {
	for t := kv.TierHost; int(t) < kv.Tiers; t++ {
		if p.tiers[t] != nil && p.tiers[t].expects(k) {
			return t
		}
	}
	return kv.Tiers
}

// expects reports whether a write of an extent to the tier is in flight.
func (t *tier) expects(k mempool.Key) bool {
	m := t.writing[k]
	return m != nil && m.begun && !m.canceled && !t.dropping[m.Extent.Parent]
}

// worth cuts sources where fetching stops to pay: it keeps the beginning that saves most
// time, of computing less of fetching.
func (p *Policy) worth(now time.Duration, all []source, have int) []source {
	cost := p.cost.at()
	var fetch, compute, best float64
	keep := 0
	var counted [kv.Tiers]bool
	for i := range all {
		s := &all[i]
		t := p.tiers[s.tier]
		if !counted[s.tier] { // the reads before it; stores do writes after reads
			counted[s.tier] = true
			fetch += t.fetchSeconds(now, t.kinds[Read]*p.cfg.Layout.ExtentBytes())
		}
		fetch += t.fetchSeconds(now, p.cfg.Layout.Bytes(&s.extent))
		compute += float64(float64(s.extent.Start+len(s.extent.Tokens)-max(s.extent.Start, have)) * cost)
		s.fetch, s.compute = fetch, compute
		if saved := compute - fetch; saved > best || cost == 0 {
			best, keep = saved, i+1
		}
	}
	return all[:keep]
}

// readOf is the move that reads a source: one that is under way already, or a new one.
func readOf(p *Policy, now time.Duration, s *source) *move {
	t, k := p.tiers[s.tier], s.extent.Key
	if m := t.reading[k]; m != nil && !m.canceled && len(m.Extent.Tokens) == len(s.extent.Tokens) {
		return m
	}
	m := &move{Move: Move{ID: p.next(), Kind: Read, From: s.tier, To: kv.TierDevice, Extent: s.extent.Clone(), Deadline: now + patience(p, s)}, early: s.early}
	if !m.early {
		t.index.Pin(k)
	}
	if t.reading[k] == nil {
		t.reading[k] = m
	}
	p.reads = append(p.reads, m)
	return m
}

// patience is how long a source may take: Lateness times what it should, or half as long as
// computing would take, if that is more. The half is halved with each late read of the tier
// in a row, so all waiting for a tier that hangs costs no more than computing once.
func patience(p *Policy, s *source) time.Duration {
	compute := s.compute
	if p.cost.at() == 0 {
		compute = unknownCompute
	}
	most := p.cfg.Deadline.Seconds()
	half := math.Ldexp(min(compute/2, most), -p.tiers[s.tier].misses)
	return time.Duration(min(max(p.cfg.Lateness*s.fetch, half, p.cfg.MinWait.Seconds()), most) * 1e9)
}

// unknownCompute is how many seconds computing a prefix is believed to take while nothing is
// known of it: the first requests after a start read from a disk that is cold.
const unknownCompute = 2.0

// unread takes a read out of the ledger.
func (p *Policy) unread(m *move) {
	t := p.tiers[m.From]
	if !m.early {
		t.index.Unpin(m.Extent.Key)
	}
	if t.reading[m.Extent.Key] == m {
		delete(t.reading, m.Extent.Key)
	}
	p.forget(m.Extent.Key)
}

// written pins an extent for the reads that have waited for its write.
func written(p *Policy, of kv.Tier, k mempool.Key) {
	for _, m := range p.reads {
		if m.early && !m.canceled && m.From == of && m.Extent.Key == k {
			m.early = false
			p.tiers[of].index.Pin(k)
		}
	}
}

// answer tells the requests that wait for a read. After a failure a request keeps what has
// arrived before it, and gives up what comes after.
func (p *Policy) answer(m *move, ok bool) {
	for _, w := range m.waiters {
		i := slices.IndexFunc(w.parts, func(x part) bool { return x.move == m })
		if i < 0 {
			continue
		}
		w.parts[i].move, w.parts[i].here = nil, ok
		if !ok {
			rest := w.parts[i+1:]
			w.parts = w.parts[:i]
			p.leave(w, rest)
		}
	}
	m.waiters = nil
}

// leave takes a request from reads that it waits for. A read that nobody waits for is
// canceled.
func (p *Policy) leave(w *want, parts []part) {
	for _, x := range parts {
		m := x.move
		if m == nil {
			continue
		}
		m.waiters = slices.DeleteFunc(m.waiters, func(o *want) bool { return o == w })
		if len(m.waiters) > 0 || m.canceled {
			continue
		}
		m.canceled = true
		if m.early {
			p.tiers[m.From].misses++ // its write takes long
		}
		if m.begun {
			p.cancel(m)
		} else {
			p.unread(m) // Next takes it out of the queue
		}
	}
}

// Arrived says how many tokens of a request's prefix have come, from the first without a
// gap, and whether more are on their way.
func (p *Policy) Arrived(id RequestID) (tokens int, waiting bool) {
	w := p.wants[id]
	if w == nil {
		return 0, false
	}
	for i, x := range w.parts {
		if !x.here {
			return tokens, slices.ContainsFunc(w.parts[i:], func(x part) bool { return x.move != nil })
		}
		tokens += x.tokens
	}
	return tokens, false
}

// Forget ends what a request waits for: it has begun, or has ended.
func (p *Policy) Forget(id RequestID) {
	if w := p.wants[id]; w != nil {
		delete(p.wants, id)
		p.leave(w, w.parts)
	}
}
