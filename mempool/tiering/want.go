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
	move   *entry // nil once the read has been answered
	tokens int
	here   bool // the read succeeded
}

// source is a tier from which an extent, or its first pages, can be read.
type source struct {
	tier   kv.Tier
	extent mempool.Extent // the stored extent, with only the tokens that the request can use
	early  bool           // its write to the tier is in flight
	// Seconds to fetch all sources up to this one, and to compute the same tokens.
	fetch, compute float64
}

// Part is one of the reads that Want starts.
type Part struct {
	Move   MoveID
	From   kv.Tier
	Start  int // position of the first token that it reads
	Tokens int
	// Deadline is on the clock of now. A read that has not ended at that time is abandoned.
	Deadline time.Duration
}

// Run is a run of a prompt's tokens in a tier below the device.
type Run struct {
	From   kv.Tier
	Start  int // position of its first token
	Tokens int
}

// Lookup returns dst with the runs appended in which lower tiers have the first tokens of xs, in
// order and without a gap, each in the fastest tier that has it; a tier to which a run is being
// written has it too. worth is the number of their first tokens that Want would fetch now,
// including tokens that the device has. xs and have are as for Want. It changes nothing.
func (b *Book) Lookup(now time.Duration, xs []mempool.Extent, have int, dst []Run) (runs []Run, worth int) {
	all := sources(b, xs)
	for i := range all {
		x := &all[i].extent
		dst = append(dst, Run{all[i].tier, x.Start, len(x.Tokens)})
	}
	if b.flushing {
		return dst, 0
	}
	for _, s := range b.worth(now, all, have) {
		worth += len(s.extent.Tokens)
	}
	return dst, worth
}

// Want begins to fetch extents of a request. xs are extents of its prompt, parents first. have is
// the number of the prompt's first tokens that the device has; it may end within xs[0]. Want
// fetches the first extents of xs that lower tiers have without a gap, as many as save most time
// compared with computing their tokens. It returns dst with the reads appended in order: of whole
// extents, and maybe of the first pages of one more. If it fetches nothing it returns dst. After a
// call that fetches, further calls for the same request do nothing until Forget.
func (b *Book) Want(now time.Duration, id RequestID, xs []mempool.Extent, have int, dst []Part) []Part {
	if b.wants[id] != nil || b.flushing {
		return dst
	}
	sources := b.worth(now, sources(b, xs), have)
	if len(sources) == 0 {
		return dst
	}
	w := &want{}
	b.wants[id] = w
	for i := range sources {
		m := readOf(b, now, &sources[i])
		m.waiters = append(m.waiters, w)
		w.parts = append(w.parts, part{move: m, tokens: len(m.Extent.Tokens)})
		dst = append(dst, Part{m.ID, m.From, m.Extent.Start, len(m.Extent.Tokens), m.Deadline})
	}
	return dst
}

// Fill sets the device's pages that Read id, which has not begun, fills. The owner keeps them free
// until the Read has ended; if it is given up before it begins, the owner may use them again.
func (b *Book) Fill(id MoveID, pages []kv.PageID) {
	for _, m := range b.reads {
		if m.ID == id {
			m.Pages = pages
		}
	}
}

// sources returns for each extent the fastest lower tier that has it, or else the fastest to which
// it is being written. It stops at the first extent for which there is no such tier. For that
// extent it adds the tier and the extent with the same parent that shares most first pages, if
// there is one.
func sources(b *Book, xs []mempool.Extent) (found []source) {
	for i := range xs {
		x := &xs[i]
		if at := b.fastest(x.Key, kv.TierHost, kv.Tiers); int(at) < kv.Tiers {
			found = append(found, source{tier: at, extent: *x})
			continue
		}
		if at := arriving(b, x.Key); int(at) < kv.Tiers {
			found = append(found, source{tier: at, extent: *x, early: true})
			continue
		}
		var best mempool.Hit
		var in kv.Tier
		for t := kv.TierHost; int(t) < kv.Tiers; t++ {
			if b.tiers[t] == nil {
				continue
			}
			if h, ok := b.tiers[t].index.Part(x); ok && h.Pages > best.Pages && !b.tiers[t].dropping[h.Key] {
				best, in = h, t
			}
		}
		if best.Pages > 0 {
			part, _ := b.tiers[in].index.Extent(best.Key)
			part.Tokens = part.Tokens[:best.Pages*b.cfg.Layout.PageTokens]
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

// arriving returns the fastest tier that an extent is being written to; kv.Tiers if there is
// none.
func arriving(b *Book, k mempool.Key) kv.Tier {
	for t := kv.TierHost; int(t) < kv.Tiers; t++ {
		if b.tiers[t] != nil && b.tiers[t].expects(k) {
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

// worth returns the first sources of all whose fetch saves most time: the number of them for which
// the time to compute their tokens minus the time to fetch them is largest. It returns all sources
// if the cost of computing is not known. have is as for Want: these tokens need not be computed.
// The time to fetch includes the reads that the tiers have in flight. For example, if an extent
// takes 10 ms to compute, the first two take 2 ms each to fetch from host memory and the third
// takes 15 ms from disk, worth returns the first two.
func (b *Book) worth(now time.Duration, all []source, have int) []source {
	cost := b.cost.at()
	var fetch, compute, best float64
	keep := 0
	var counted [kv.Tiers]bool
	for i := range all {
		s := &all[i]
		t := b.tiers[s.tier]
		if !counted[s.tier] { // reads in flight come first; writes don't delay reads, stores do them later
			counted[s.tier] = true
			fetch += t.fetchSeconds(now, t.kinds[Read]*b.cfg.Layout.ExtentBytes())
		}
		fetch += t.fetchSeconds(now, b.cfg.Layout.Bytes(&s.extent))
		compute += float64(float64(s.extent.Start+len(s.extent.Tokens)-max(s.extent.Start, have)) * cost)
		s.fetch, s.compute = fetch, compute
		if saved := compute - fetch; saved > best || cost == 0 {
			best, keep = saved, i+1
		}
	}
	return all[:keep]
}

// readOf returns the move that reads a source: one that is queued or in flight for the same
// tokens, or a new one.
func readOf(b *Book, now time.Duration, s *source) *entry {
	t, k := b.tiers[s.tier], s.extent.Key
	if m := t.reading[k]; m != nil && !m.canceled && len(m.Extent.Tokens) == len(s.extent.Tokens) {
		return m
	}
	m := &entry{Move: Move{ID: b.next(), Kind: Read, From: s.tier, To: kv.TierDevice, Extent: s.extent.Clone(), Deadline: now + patience(b, s)}, early: s.early}
	if !m.early {
		t.index.Pin(k)
	}
	if t.reading[k] == nil {
		t.reading[k] = m
	}
	b.reads = append(b.reads, m)
	return m
}

// patience returns how long the read of a source may take: Lateness times its expected time, or
// half the time of computing the same tokens if that is larger, but at least MinWait and at most
// Deadline.
//
// Each late read of a tier, until a read is in time again, halves the second of these times once
// more. So if a tier hangs, requests wait in sum less than 1/2 + 1/4 + … = 1 times the time of
// computing because of it; after that only Lateness and MinWait decide.
func patience(b *Book, s *source) time.Duration {
	compute := s.compute
	if b.cost.at() == 0 {
		compute = unknownCompute
	}
	most := b.cfg.Deadline.Seconds()
	half := math.Ldexp(min(compute/2, most), -b.tiers[s.tier].misses)
	return time.Duration(min(max(b.cfg.Lateness*s.fetch, half, b.cfg.MinWait.Seconds()), most) * 1e9)
}

// unknownCompute is the assumed time of computing a prefix, in seconds, while the cost of a token
// is not known. It is long because the first requests after a start read from a cold disk.
const unknownCompute = 2.0

// unread removes a read, which has ended or is given up, from its tier's state and unpins its extent.
func (b *Book) unread(m *entry) {
	t := b.tiers[m.From]
	if !m.early {
		t.index.Unpin(m.Extent.Key)
	}
	if t.reading[m.Extent.Key] == m {
		delete(t.reading, m.Extent.Key)
	}
	b.forget(m.Extent.Key)
}

// written lets the reads begin that waited for a write of extent k to tier of, after that write has
// succeeded, and pins the extent for each.
func written(b *Book, of kv.Tier, k mempool.Key) {
	for _, m := range b.reads {
		if m.early && !m.canceled && m.From == of && m.Extent.Key == k {
			m.early = false
			b.tiers[of].index.Pin(k)
		}
	}
}

// answer records for the requests that wait for read m whether it succeeded (ok). If it failed, such
// a request keeps its parts before m and abandons those after it.
func (b *Book) answer(m *entry, ok bool) {
	for _, w := range m.waiters {
		i := slices.IndexFunc(w.parts, func(x part) bool { return x.move == m })
		if i < 0 {
			continue
		}
		w.parts[i].move, w.parts[i].here = nil, ok
		if !ok {
			rest := w.parts[i+1:]
			w.parts = w.parts[:i]
			b.leave(w, rest)
		}
	}
	m.waiters = nil
}

// leave removes request w from the waiters of the reads of parts. It cancels a read that has no
// waiters left.
func (b *Book) leave(w *want, parts []part) {
	for _, x := range parts {
		m := x.move
		if m == nil {
			continue
		}
		m.waiters = slices.DeleteFunc(m.waiters, func(o *want) bool { return o == w })
		if len(m.waiters) > 0 || m.canceled {
			continue
		}
		if m.early {
			b.tiers[m.From].misses++ // the write that it waited for is slow
		}
		b.cancel(m)
	}
}

// Arrived returns how many tokens of a request have been fetched without a gap from the first,
// and reports whether more are on their way.
func (b *Book) Arrived(id RequestID) (tokens int, waiting bool) {
	w := b.wants[id]
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

// Forget ends the wait of a request, which has begun to run or has ended. It cancels the reads that
// no other request waits for.
func (b *Book) Forget(id RequestID) {
	if w := b.wants[id]; w != nil {
		delete(b.wants, id)
		b.leave(w, w.parts)
	}
}
