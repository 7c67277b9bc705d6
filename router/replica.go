package router

import (
	"fmt"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// Verdict is what became of an event.
type Verdict uint8

// The verdicts. Nothing is wrong with any but Rejected.
const (
	Applied   Verdict = iota
	Made              // applied, and a reservation of it that was not known
	Duplicate         // nothing new
	Early             // about a reservation that is not known yet; remembered for a while
	Stale             // of an earlier epoch, or about what has ended, or one's own
	Rejected          // malformed, beyond a limit, or about an unknown worker
)

var verdictNames = [...]string{"applied", "made", "duplicate", "early", "stale", "rejected"}

func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return fmt.Sprintf("verdict(%d)", uint8(v))
}

func (m *Metrics) verdict(v Verdict) Verdict {
	switch v {
	case Applied, Made:
		m.Applied++
	case Duplicate:
		m.Duplicate++
	case Early:
		m.Early++
	case Stale:
		m.Stale++
	case Rejected:
		m.Rejected++
	}
	return v
}

// Apply takes an event of a replica. Events may come twice and in any order: what
// is left in the end is the same. One of a higher epoch ends all that the replica
// reserved before its restart.
func (r *Router) Apply(now time.Duration, ev *Event) Verdict {
	r.advance(now)
	at, v := r.peerOf(ev.Replica, ev.Epoch)
	if v != Applied {
		return r.metrics.verdict(v)
	}
	if ev.Seq == 0 || ev.ID == 0 {
		return r.metrics.verdict(Rejected)
	}
	r.peers[at].see(ev.Seq)
	return r.metrics.verdict(r.apply(at, ev))
}

func (r *Router) apply(at int32, ev *Event) Verdict {
	if ev.ComputedTokens < 0 || ev.ComputedTokens > MaxPromptTokens || ev.OutputTokens < 0 || ev.OutputTokens > MaxPromptTokens ||
		ev.Session != 0 && (ev.Stamp < 1 || ev.Stamp > MaxStamp) {
		return Rejected
	}
	known := r.remote.get(key{ev.ID, uint32(at)})
	switch ev.Kind {
	case Reserved:
		if known == noEntry {
			return r.applyReserved(at, ev)
		}
		return r.catchUp(known, ev)
	case Progressed:
		if known == noEntry {
			return r.foretell(at, buried{id: ev.ID, computed: ev.ComputedTokens, output: ev.OutputTokens})
		}
		return r.catchUp(known, ev)
	case Released:
		v := Applied
		if known == noEntry {
			v = r.foretell(at, buried{id: ev.ID, released: true, said: ev.Session != 0})
		} else {
			r.end(known, released)
		}
		if v == Applied || v == Early {
			r.heedEvent(ev)
		}
		return v
	}
	return Rejected
}

// catchUp brings a known reservation to where an event has it.
func (r *Router) catchUp(known int32, ev *Event) Verdict {
	e := &r.slab[known]
	news := ev.Kind == Progressed || ev.OutputTokens > e.outputTokens || ev.ComputedTokens > e.computed
	if !news {
		return Duplicate
	}
	r.unstall(&r.workers[e.slot])
	r.progress(known, ev.ComputedTokens, ev.OutputTokens)
	return Applied
}

func (r *Router) applyReserved(at int32, ev *Event) Verdict {
	whole := kv.FloorPages(ev.PromptTokens, r.cfg.BlockTokens)
	if ev.PromptTokens < 1 || ev.PromptTokens > MaxPromptTokens || ev.UncachedTokens < 0 || ev.UncachedTokens > ev.PromptTokens ||
		len(ev.Hashes) > whole || ev.UnsharedBlocks < 0 || ev.UnsharedBlocks > whole {
		return Rejected
	}
	p := &r.peers[at]
	grave := r.graves.get(key{ev.ID, uint32(at)})
	var before buried
	if grave != noEntry {
		before = p.buried[grave]
	}
	if before.released {
		if !before.said { // it is late, and not here again
			p.buried[grave].said = true
			r.heedEvent(ev)
		}
		return Stale
	}
	if grave == noEntry && ev.ID <= p.floor {
		return Stale
	}
	slot := r.slotOf(ev.Worker)
	if slot == noEntry || r.active >= r.cfg.MaxActive {
		return Rejected
	}
	if grave != noEntry {
		r.graves.delete(key{ev.ID, uint32(at)})
		p.buried[grave] = buried{}
	}
	a := asked{hashes: ev.Hashes, promptTokens: ev.PromptTokens, uncached: ev.UncachedTokens, privatePart: ev.UnsharedBlocks, decodeOnly: ev.DecodeOnly, untold: ev.Untold, known: kv.FloorPages(ev.PromptTokens-ev.UncachedTokens, r.cfg.BlockTokens)}
	if !ev.DecodeOnly {
		profile := &r.workers[slot].spec.Profile
		a.predicted = seconds(profile.prefill(float64(ev.UncachedTokens), float64(ev.PromptTokens-ev.UncachedTokens)))
	}
	made := r.reserve(slot, at, ev.ID, &a)
	r.remote.put(key{ev.ID, uint32(at)}, made)
	r.progress(made, max(ev.ComputedTokens, before.computed), max(ev.OutputTokens, before.output))
	r.heedEvent(ev)
	return Made
}

// foretell remembers news of a reservation that is not here.
func (r *Router) foretell(at int32, news buried) Verdict {
	p := &r.peers[at]
	grave := r.graves.get(key{news.id, uint32(at)})
	if grave == noEntry {
		if news.id <= p.floor {
			return Stale
		}
		r.dig(at, news)
		return Early
	}
	b := &p.buried[grave]
	switch {
	case b.released && news.released:
		return Duplicate
	case b.released:
		return Stale
	}
	b.released, b.said, b.computed, b.output = news.released, news.said, max(b.computed, news.computed), max(b.output, news.output)
	return Early
}

// bury remembers that a reservation has ended.
func (r *Router) bury(at int32, id uint64) { r.dig(at, buried{id: id, released: true, said: true}) }

// dig puts b into the ring; what it drives out is forgotten, and with it all that
// came before.
func (r *Router) dig(at int32, b buried) {
	p := &r.peers[at]
	grave := len(p.buried)
	if grave < r.cfg.MaxBuried {
		p.buried = append(p.buried, b)
	} else {
		grave = p.oldest
		if old := p.buried[grave]; old.id != 0 {
			r.graves.delete(key{old.id, uint32(at)})
			p.floor = max(p.floor, old.id)
		}
		p.buried[grave] = b
		p.oldest = (p.oldest + 1) % len(p.buried)
	}
	r.graves.put(key{b.id, uint32(at)}, int32(grave))
}

// ApplySnapshot takes all that a replica has reserved: what it does not have ends
// here, what is missing is made. Applied if it is of the replica's epoch; then what
// became of each of its events is counted and appended to dst.
func (r *Router) ApplySnapshot(now time.Duration, s *Snapshot, dst []Verdict) ([]Verdict, Verdict) {
	r.advance(now)
	at, v := r.peerOf(s.Replica, s.Epoch)
	if v != Applied {
		return dst, r.metrics.verdict(v)
	}
	ids := make([]uint64, 0, len(s.Events))
	for i := range s.Events {
		ids = append(ids, s.Events[i].ID)
	}
	slices.Sort(ids)
	for e := r.ages.head; e != none; {
		next := r.slab[e].links[byAge].next
		if id := r.slab[e].id; r.slab[e].peer == at && id <= s.LastID {
			if _, has := slices.BinarySearch(ids, id); !has {
				r.end(e, released)
			}
		}
		e = next
	}
	floor := r.peers[at].floor
	r.peers[at].floor = 0 // what is in the snapshot has not ended, however old it is
	for i := range s.Events {
		v := Rejected
		if ev := &s.Events[i]; ev.Kind == Reserved && ev.ID != 0 && ev.ID <= s.LastID && ev.Session == 0 {
			v = r.apply(at, ev)
		}
		dst = append(dst, r.metrics.verdict(v))
	}
	p := &r.peers[at]
	p.floor = max(p.floor, floor)
	if s.Seq+1 >= p.next {
		p.missing = 0
		for p.next <= s.Seq {
			if p.window == 0 {
				p.next = s.Seq + 1
				break
			}
			p.next++
			p.slide()
		}
	}
	return dst, Applied
}
