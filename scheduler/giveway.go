package scheduler

import "slices"

// What waiting sequences have fetched is pinned for them until they are admitted. This file
// is who gives that up for whom: running sequences that need pages come first, and a
// sequence whose turn it is comes before those that wait with more than they need.

// takeYielding is room.take for running sequences, for which waiting ones give up what they
// have fetched, the last in precedence first; then what they are fetching, which frees pages
// when the moves have ended.
func takeYielding(s *Scheduler, n int) bool {
	if s.room.take(n) {
		return true
	}
	t := s.tiers
	if t == nil || s.room.waitsForGrant() {
		return false
	}
	for len(t.keepers) > 0 {
		if yield(s, lastOf(t.keepers)); s.room.take(n) {
			return true
		}
	}
	for len(t.fetches) > 0 && t.ending() < n {
		q := lastOf(t.fetches)
		goOn(s, q)
		if yield(s, q); s.room.take(n) {
			return true
		}
	}
	return false
}

// ending is how many pages come free with the endings of Reads that nobody waits for.
func (t *tiers) ending() (n int) {
	for _, a := range t.reading { // a sum, in any order
		if a.q == nil {
			n += count(a.pages)
		}
	}
	return n
}

// lastOf is the last of some sequences in precedence.
func lastOf(all []*sequence) *sequence { return slices.MaxFunc(all, comparePrecedence) }

// yieldFor has others give up what they have fetched for q, whose turn it is, if q fits
// then, and reports whether they have.
func yieldFor(s *Scheduler, q *sequence, f *found, reserve int) bool {
	t := s.tiers
	if t == nil || len(t.keepers) == 0 {
		return false
	}
	d := s.room.startDemand(q, f.match, false, reserve)
	o := s.room.supply(&d)
	if o.granting || !o.slot {
		return false
	}
	others := slices.DeleteFunc(slices.SortedFunc(slices.Values(t.keepers), comparePrecedence), func(o *sequence) bool { return o == q })
	slices.Reverse(others)
	s.room.release.Reset(s.cache, f.match, false)
	for i, other := range others {
		o.evictable += s.room.release.Unpin(other.fetch.pin)
		if o.fits(&d) {
			for _, other := range others[:i+1] {
				yield(s, other)
			}
			return true
		}
	}
	return false
}
