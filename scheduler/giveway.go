package scheduler

import "slices"

// Fetched prefixes are pinned for waiting sequences until admission. These pins give way: a
// running sequence that needs pages takes any pin, and a waiting sequence takes pins at
// its turn if it fits then. So waiting sequences can't block each other with their pins.

// giveWay makes n pages idle for a running sequence and reports whether it did. The waiting
// sequences whose pins it takes lose nothing that can't be fetched again; a running sequence
// would have to be preempted. First it unpins prefixes that
// waiting sequences have fetched, of the last sequence in precedence first. Then it ends
// fetches in progress. The pages of a fetch come free only when its reads have ended, so
// giveWay stops once n pages are on their way, although it returns false then.
func (fs *fetches) giveWay(n int) bool {
	if fs == nil || fs.room.waitsForGrant() {
		return false
	}
	for len(fs.pinning) > 0 {
		if fs.unpin(lastOf(fs.pinning)); fs.room.take(n) {
			return true
		}
	}
	for len(fs.waiting) > 0 && fs.ending() < n {
		q := lastOf(fs.waiting)
		fs.goOn(q)
		if fs.unpin(q); fs.room.take(n) {
			return true
		}
	}
	return false
}

// ending counts the pages that come free when reads in flight end: those of reads for which
// no sequence waits.
func (fs *fetches) ending() (n int) {
	for _, a := range fs.tiers.reading { // a sum, in any order
		if a.q == nil {
			n += count(a.pages)
		}
	}
	return n
}

// lastOf returns the last of some sequences in precedence.
func lastOf(all []*sequence) *sequence { return slices.MaxFunc(all, comparePrecedence) }

// giveWayFor is called at the turn of q, which does not fit with the prefix f and reserve
// pages left over. If q fits once fetched prefixes of other waiting sequences are unpinned,
// it unpins them, last in precedence first, and returns true. It adds up what each pin
// would free before it releases any, so a failed attempt changes nothing.
func (fs *fetches) giveWayFor(q *sequence, f *found, reserve int) bool {
	if fs == nil || len(fs.pinning) == 0 {
		return false
	}
	l := fs.room
	d := l.startDemand(q, f.match, false, reserve)
	o := l.supply(&d)
	if o.granting || !o.slot {
		return false
	}
	others := slices.DeleteFunc(slices.SortedFunc(slices.Values(fs.pinning), comparePrecedence), func(o *sequence) bool { return o == q })
	slices.Reverse(others)
	l.release.Reset(l.cache, f.match, false)
	for i, other := range others {
		o.evictable += l.release.Unpin(other.fetch.pin)
		if o.fits(&d) {
			for _, other := range others[:i+1] {
				fs.unpin(other)
			}
			return true
		}
	}
	return false
}
