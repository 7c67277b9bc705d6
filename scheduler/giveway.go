package scheduler

import "slices"

// What waiting sequences have fetched is pinned for them until they are admitted. This file
// decides who gives that up for whom: running sequences that need pages come first, and a
// sequence whose turn it is comes before those that wait with more than they need.

// take is room.take for running sequences, to which waiting ones give way.
func (s *Scheduler) take(n int) bool {
	return s.room.take(n) || s.fetches != nil && s.fetches.giveWay(n)
}

// giveWay makes n pages idle: waiting sequences give up what they have fetched, the last in
// precedence first; then what they are fetching, which frees pages when the moves have ended.
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

// ending is how many pages come free with the endings of Reads that nobody waits for.
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

// giveWayFor has others give up what they have fetched for q, whose turn it is, if q fits
// then, and reports whether they have.
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
