package scheduler

import "slices"

// Fetched prefixes are pinned for waiting sequences until admission. They give way: a running
// sequence that needs pages takes any pin, a waiting sequence takes pins at its turn if it
// fits then.

// take is room.take for a running sequence, to which waiting ones give way.
func (s *Scheduler) take(n int) bool {
	return s.room.take(n) || s.fetches != nil && s.fetches.giveWay(n)
}

// giveWay makes n pages idle. It unpins fetched prefixes, the last sequence in precedence
// first, then ends fetches, which frees pages when their reads have ended.
func (fs *fetches) giveWay(n int) bool {
	if fs.room.waitsForGrant() {
		return false
	}
	for len(fs.keepers) > 0 {
		if fs.unpin(lastOf(fs.keepers)); fs.room.take(n) {
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

// ending counts the pages that come free when reads end that no sequence waits for.
func (fs *fetches) ending() (n int) {
	for _, a := range fs.reading { // a sum, in any order
		if a.q == nil {
			n += count(a.pages)
		}
	}
	return n
}

// lastOf is the last of some sequences in precedence.
func lastOf(all []*sequence) *sequence { return slices.MaxFunc(all, comparePrecedence) }

// giveWayFor is called at the turn of q. It unpins fetched prefixes of others if q fits then,
// and reports whether it did.
func (fs *fetches) giveWayFor(q *sequence, f *found, reserve int) bool {
	if fs == nil || len(fs.keepers) == 0 {
		return false
	}
	l := fs.room
	d := l.startDemand(q, f.match, false, reserve)
	o := l.supply(&d)
	if o.granting || !o.slot {
		return false
	}
	others := slices.DeleteFunc(slices.SortedFunc(slices.Values(fs.keepers), comparePrecedence), func(o *sequence) bool { return o == q })
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
