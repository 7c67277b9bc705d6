package scheduler

import (
	"slices"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/scheduler/internal/planted"
)

// demand describes the needs of a waiting sequence that may start, or of a running one
// that must grow.
type demand struct {
	q       *sequence
	match   radixcache.Match // cached prefix of a waiting q; q will use it, so its pages are not evictable for q
	partial bool             // q also copies from the match's partial page, which must not be evicted either
	pages   int              // pages that q will hold
	reserve int              // pages to leave over for the expected growth of running sequences
	slot    bool             // q needs a slot
	spared  *sequence        // a running sequence that is never preempted for q
}

// supply counts the pages that a sequence can get, by source. Admission, preemption and
// Why use the same figures, so that what one of them promises, another finds.
type supply struct {
	idle      int  // pages in the lease
	evictable int  // pages in the cache, without what the sequence itself found there
	granting  bool // the pool was asked for more, or can be: nothing is preempted before it answers
	slot      bool // a slot is free

	victims   []*sequence // to preempt for the rest, in this order; valid until the next supply
	freed     int         // pages that become idle or evictable when victims are preempted; a shared page only if all its users are victims
	freesSlot bool        // a victim has a slot to give
}

// free returns the pages that can be had without preempting.
func (o *supply) free() int { return o.idle + o.evictable }

// fits reports whether d is met without preempting.
func (o *supply) fits(d *demand) bool {
	return o.free() >= d.pages+d.reserve && (o.slot || !d.slot)
}

// fitsOnce reports whether d is met if as many more pages come free as coming says, but not
// without them.
func (o *supply) fitsOnce(d *demand, coming int) bool {
	return coming > 0 && o.free() < d.pages+d.reserve && o.free()+coming >= d.pages+d.reserve && (o.slot || !d.slot)
}

// fitsByPreempting reports whether d is met once the victims are preempted.
func (o *supply) fitsByPreempting(d *demand) bool {
	return len(o.victims) > 0 && o.free()+o.freed >= d.pages+d.reserve && (o.slot || o.freesSlot || !d.slot)
}

// supply returns what the sequence of d can get without preempting. It changes nothing.
// Cost: one step for each unpinned node on the path of d.match.
func (l *room) supply(d *demand) supply {
	o := supply{idle: l.lease.IdlePages(), granting: l.waitsForGrant(), slot: len(l.slots) > 0}
	if l.cache != nil {
		o.evictable = l.cache.EvictableBeside(d.match, d.partial)
	}
	return o
}

// victims lists the running sequences that may be preempted for d, unsorted. last is the
// Seq of the latest plan that was launched. Sequences that got their slot in a later plan
// are left out: that plan is still being made, and its batch has their binding already. The
// list is valid until the next call.
func (r *runningSet) victims(d *demand, last uint64) []*sequence {
	all := r.candidates[:0]
	for _, q := range r.all {
		if q.table.since <= last && q.preemptable(r.fault) && d.mayPreempt(r.cfg, q) {
			all = append(all, q)
		}
	}
	r.candidates = all
	return all
}

// preemptable reports whether r may be preempted at all. An aborted sequence leaves
// anyway. One that was preempted before must have sampled a token since; otherwise two
// sequences could preempt each other for ever without progress. fault is a planted bug.
func (r *sequence) preemptable(fault planted.Fault) bool {
	return r.abort == nil && (r.bill.preemptions == 0 || r.rows.sampled > 0 || fault == planted.PreemptAgain)
}

// mayPreempt reports whether a running r may be preempted for d. If the sequence d.q waits,
// the policy must be Priority, and r's priority must be below that of d.q by
// PreemptThreshold. If d.q runs and needs a page, r's priority must not be above that of
// d.q; r may then be d.q itself, but not d.spared.
func (d *demand) mayPreempt(cfg *Config, r *sequence) bool {
	if d.q.place != running {
		return cfg.mayReplace(d.q, r)
	}
	return r.lead(d.q) <= 0 && r != d.spared
}

// preempting adds to o the candidates that must be preempted for d: the cheapest first,
// and none that is not needed. It sets no victims if all candidates together are not
// enough. It changes nothing but the order of candidates.
//
// First it takes candidates by cost until d is met. Then it drops each that is not needed
// after all: if d lacks 10 pages and the candidates free 3, 2 and 10, the first two are
// dropped. If d's own sequence is the next in cost, it alone is the victim, as it then
// needs no page.
//
// Cost: sorting, and for each attempt the nodes that the victims pin.
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

// count sets o.victims to victims and o.freed to the number of pages that preempting them
// frees. Pages that another running sequence shares count only if that one is a victim too:
// as long as it runs, it pins them.
func (l *room) count(d *demand, o *supply, victims []*sequence) {
	o.victims, o.freed, o.freesSlot = victims, 0, false
	if l.cache != nil {
		l.release.Reset(l.cache, d.match, d.partial)
	}
	for _, r := range victims {
		l.countIn(o, r)
	}
}

// countIn adds the pages and the slot that preempting r frees to o.freed and o.freesSlot.
func (l *room) countIn(o *supply, r *sequence) {
	o.freed += len(r.table.own())
	o.freesSlot = true
	if l.cache != nil {
		o.freed += l.release.Unpin(r.table.pin)
	}
}

// startDemand returns the demand of a waiting q that starts on its cached prefix m. partial
// and reserve are the demand's fields of these names.
func (l *room) startDemand(q *sequence, m radixcache.Match, partial bool, reserve int) demand {
	return demand{
		q: q, match: m, partial: partial, reserve: reserve, slot: true,
		pages: l.startPages(q, m.Tokens),
	}
}

// startPages returns how many pages of its own a waiting q needs after cached tokens: with
// pages of 16, 120 tokens of which 100 are cached need 8 - 6 = 2.
func (l *room) startPages(q *sequence, cached int) int {
	return kv.CeilPages(len(q.tokens), l.pageTokens) - cached/l.pageTokens
}

// fits reports whether q can start with the prefix f without preempting, so that reserve
// pages are left, and whether it can copy the boundary page of f too. It can't copy that
// page if the very page would have to be evicted to make room for q. fits changes nothing
// except the demand: if too few pages are idle and the pool may still give some, fits notes
// the demand and returns false, since the pool is asked before anything is evicted.
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
		return false, false
	}
	return fits, copies
}
