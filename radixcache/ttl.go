package radixcache

import (
	"slices"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// ages knows how old stamps are: at each mark the clock had a value. There
// are never more marks than steps of a TTL, so that the age of a walk is known
// within that; it is taken for younger than it is, not older.
type ages struct{ marks []ageMark }

type ageMark struct {
	now   time.Duration
	clock uint64
}

// ageSteps is into how many steps a TTL is cut.
const ageSteps = 64

// Expire removes what is not pinned and was not used for [Config.TTL]: no Pin,
// Insert or Extend ended at or below it, however long it was pinned. It also lets
// go of pinned prefixes whose time is over. The freed pages are appended to freed.
//
// now is the time since some fixed moment, the same in each call, and never less
// than in the call before. Call it once per step: what happened between two
// calls counts as of the later one. What was flushed is left to Evict. Cost:
// amortised O(1) for each node removed.
func (c *Cache) Expire(now time.Duration, freed []kv.PageID) []kv.PageID {
	c.expirePrefixes(now)
	if c.cfg.TTL == 0 {
		return freed
	}
	a := &c.ages
	if last := len(a.marks) - 1; last < 0 || now-a.marks[last].now >= max(1, c.cfg.TTL/ageSteps) {
		a.marks = append(a.marks, ageMark{now, c.clock})
	}
	over := 0
	for over < len(a.marks) && a.marks[over].now <= now-c.cfg.TTL {
		over++
	}
	if over == 0 {
		return freed
	}
	limit := a.marks[over-1].clock
	a.marks = slices.Delete(a.marks, 0, over-1) // the last one stays: it still holds
	before := len(freed)
	for round := -1; len(freed) > round; { // what goes may bare a public prefix in another order
		round = len(freed)
		for i := len(c.tenants) - 1; i >= 0; i-- { // an empty one leaves the list
			freed = c.expireIn(c.tenants[i], limit, freed)
		}
		freed = c.expireIn(c.common, limit, freed)
	}
	if len(freed) > before {
		c.tidy()
		c.verify("Expire")
	}
	return freed
}
