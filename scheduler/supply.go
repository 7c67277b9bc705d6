package scheduler

import (
	"slices"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
)

// demand lists the needs of a sequence that is to start, or of a running one that is to go on.
type demand struct {
	q       *sequence
	match   radixcache.Match // what a waiting q found in the cache, and keeps
	partial bool             // it also copies the match's partial page
	pages   int              // to be held by q
	reserve int              // to be left over for what running sequences are expected to need
	slot    bool             // q needs a slot
	spared  *sequence        // is not preempted for it
}

// supply lists the pages that a sequence can get, by source.
type supply struct {
	idle      int  // in the lease
	evictable int  // in the cache, beside what the sequence itself found there
	granting  bool // the pool was asked for more, or can be: nothing is preempted before it answers
	slot      bool // a slot is free

	victims   []*sequence // to preempt for what is missing, in this order; valid until the next supply
	freed     int         // pages that become idle or evictable by that, shared ones once their last user goes
	freesSlot bool
}

// free returns the pages that can be had without preempting.
func (o *supply) free() int { return o.idle + o.evictable }

// fits reports whether d is met without preempting.
func (o *supply) fits(d *demand) bool {
	return o.free() >= d.pages+d.reserve && (o.slot || !d.slot)
}

// fitsOnce reports whether d is met once so many more pages can be evicted, and not before.
func (o *supply) fitsOnce(d *demand, coming int) bool {
	return coming > 0 && o.free() < d.pages+d.reserve && o.free()+coming >= d.pages+d.reserve && (o.slot || !d.slot)
}

// fitsByPreempting reports whether d is met once the victims are preempted.
func (o *supply) fitsByPreempting(d *demand) bool {
	return len(o.victims) > 0 && o.free()+o.freed >= d.pages+d.reserve && (o.slot || o.freesSlot || !d.slot)
}

// supply finds what d's sequence can get without preempting. It changes nothing.
// Cost: the part of the match's path that is not pinned.
func (l *room) supply(d *demand) supply {
	o := supply{idle: l.lease.IdlePages(), granting: l.waitsForGrant(), slot: len(l.slots) > 0}
	if l.cache != nil {
		o.evictable = l.cache.EvictableBeside(d.match, d.partial)
	}
	return o
}

// victims lists the running sequences that may be preempted for d, unsorted: those that
// were bound by plan last or before. The list is valid until the next call.
func (r *runningSet) victims(d *demand, last uint64) []*sequence {
	all := r.candidates[:0]
	for _, q := range r.all {
		if q.since <= last && q.preemptable() && d.mayPreempt(r.cfg, q) {
			all = append(all, q)
		}
	}
	r.candidates = all
	return all
}

// preemptable reports whether r may be preempted for anybody: it was not given up,
// and if it was preempted before it has sampled a token since, so that preemption
// can't cycle.
func (r *sequence) preemptable() bool {
	return r.abort == nil && (r.preemptions == 0 || r.sampled > 0)
}

// mayPreempt reports whether r, which runs, is preempted for d: for a waiting sequence if r
// is below it by the threshold; for a running one that needs a page if r is not above
// it, be it that one itself.
func (d *demand) mayPreempt(cfg *Config, r *sequence) bool {
	if d.q.place != running {
		return cfg.mayReplace(d.q, r)
	}
	return r.lead(d.q) <= 0 && r != d.spared
}

// preempting adds to o which of the candidates to preempt for d: the cheapest first,
// and none that is not needed. There are no victims if all of them are not enough. It
// changes nothing but the order of the candidates. Cost: sorting them, and the nodes
// that each victim alone pins.
func (l *room) preempting(d *demand, o *supply, candidates []*sequence) {
	if len(candidates) == 0 {
		return
	}
	slices.SortFunc(candidates, compareCost)
	l.count(d, o, nil)
	for i, r := range candidates {
		if r == d.q { // without q the page is not needed
			l.count(d, o, candidates[i:i+1])
			break
		}
		o.victims = candidates[:i+1]
		if l.countIn(o, r); o.fitsByPreempting(d) {
			break
		}
	}
	if !o.fitsByPreempting(d) {
		l.count(d, o, nil)
		return
	}
	victims := o.victims
	for i := len(victims) - 2; i >= 0; i-- { // the last one is needed: the search went on to it
		l.without = append(append(l.without[:0], victims[:i]...), victims[i+1:]...)
		if l.count(d, o, l.without); o.fitsByPreempting(d) {
			victims = append(victims[:0], l.without...)
		}
	}
	l.count(d, o, victims)
}

// count sums up in o what preempting victims gives. Pages that another running sequence
// shares are not among it, unless that one is a victim too.
func (l *room) count(d *demand, o *supply, victims []*sequence) {
	o.victims, o.freed, o.freesSlot = victims, 0, false
	if l.cache != nil {
		l.release.Reset(l.cache, d.match, d.partial)
	}
	for _, r := range victims {
		l.countIn(o, r)
	}
}

// countIn is count for one more.
func (l *room) countIn(o *supply, r *sequence) {
	o.freed += len(r.own())
	o.freesSlot = true
	if l.cache != nil {
		o.freed += l.release.Unpin(r.pin)
	}
}

// startDemand returns the needs of a waiting q that starts on the prefix it found.
func (l *room) startDemand(q *sequence, m radixcache.Match, partial bool, reserve int) demand {
	return demand{
		q: q, match: m, partial: partial, reserve: reserve, slot: true,
		pages: l.startPages(q, m.Tokens),
	}
}

// startPages is how many pages of its own a waiting q needs that found so many tokens.
func (l *room) startPages(q *sequence, cached int) int {
	return kv.CeilPages(len(q.tokens), l.pageTokens) - cached/l.pageTokens
}

// fits reports whether q can start on what it found, and whether the copy of its
// boundary page can be part of that: its source may be the very page that is missing.
// It changes nothing but what is asked of the pool.
func (l *room) fits(f *found, q *sequence, reserve int) (fits, copies bool) {
	d := l.startDemand(q, f.match, f.from == nil && f.boundary > 0, reserve)
	o := l.supply(&d)
	fits, copies = o.fits(&d), f.boundary > 0
	if !fits && d.partial {
		d.partial, copies = false, false
		o = l.supply(&d)
		fits = o.fits(&d)
	}
	if need := d.pages + d.reserve; o.idle < need && o.granting {
		l.demand = max(l.demand, need)
		return false, false // the pool is asked before anything is evicted
	}
	return fits, copies
}
