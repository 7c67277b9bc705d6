package radixcache

import (
	"slices"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// ages converts a time to a stamp, the value of the tree's clock at a node's last use. The
// clock counts accesses, and nodes store no time. Each mark records the clock at one time:
// nodes with a stamp up to its clock were last used before that time.
//
// Marks are at least TTL/64 apart, so about 64 exist at a time. The age of a node is counted
// from the first mark after its last use. So a node is removed at most TTL/64 late if Expire
// is called often, and never early. With a TTL of 64 minutes there is a mark each minute,
// and a node is removed 64 to 65 minutes after its last use.
type ages struct{ marks []ageMark }

// ageMark states that walks with a stamp up to clock happened at now or before.
type ageMark struct {
	now   time.Duration
	clock uint64
}

// ageSteps is the number of steps into which a TTL is divided.
const ageSteps = 64

// Expire removes the nodes that are not pinned and were not used for [Config.TTL], and
// returns freed with their pages appended. A node is used when a Pin, Keep, Insert or
// Extend ends at it or below it; being pinned is no use. Expire also unpins prefixes
// whose time, as given to PinPrefix, is now or before.
//
// now is the time since some fixed moment, the same in each call, and never less than
// in the call before: a core package has no clock. Call Expire once per step; a use
// between two calls counts as if it happened at the later call. Expire leaves flushed
// trees to Evict. Cost: amortised O(1) for each node removed.
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
	a.marks = slices.Delete(a.marks, 0, over-1) // the last one stays, as its statement still holds
	before := len(freed)
	for round := -1; len(freed) > round; { // closing a private space may make a public prefix of another order a leaf
		round = len(freed)
		for i := len(c.tenants) - 1; i >= 0; i-- { // backwards, as an order that becomes empty leaves the list
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
