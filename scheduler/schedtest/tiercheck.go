package schedtest

import (
	"bytes"
	"maps"
	"slices"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/tiering"
	"github.com/coppice-llm/coppice/scheduler"
)

func sortedKeys(store map[mempool.Key]*record) []mempool.Key {
	return slices.SortedFunc(maps.Keys(store), func(a, b mempool.Key) int { return bytes.Compare(a[:], b[:]) })
}

// tierLedger checks moves between tiers: parents are written before their children and dropped
// after them, every read has a waiting request, every move ends, and the scheduler knows the
// extents of each tier.
type tierLedger struct {
	watcher
	begun    map[tiering.MoveID]bool // since the world began
	canceled map[tiering.MoveID]bool
	gone     [kv.Tiers]map[mempool.Key]bool // lost by a tier or not written, as the scheduler was told since the latest plan
}

func newTierLedger(r *rig) *tierLedger {
	c := &tierLedger{watcher: watcher{r, "tiers"}, begun: map[tiering.MoveID]bool{}, canceled: map[tiering.MoveID]bool{}}
	for i := range c.gone {
		c.gone[i] = map[mempool.Key]bool{}
	}
	return c
}

// informed notes that the scheduler hears now that tier t has lost extents, or did not get them.
func (c *tierLedger) informed(t kv.Tier, keys []mempool.Key) {
	for _, k := range keys {
		c.gone[t][k] = true
	}
}

func (c *tierLedger) planned(p *scheduler.Plan, _ []rowView) {
	writes := map[mempool.Key][]kv.Tier{} // in this plan so far
	for i := range p.Moves {
		m := &p.Moves[i]
		if m.Kind == tiering.Cancel {
			c.canceled[m.ID] = true
			continue
		}
		if m.Kind == tiering.Write {
			c.written(m, writes)
			writes[m.Extent.Key] = append(writes[m.Extent.Key], m.To)
		}
		if (m.From == kv.TierDevice || m.To == kv.TierDevice) && len(m.Pages) != c.r.lower.layout.Pages(&m.Extent) {
			c.failf("move %d of %d pages has %d device pages", m.ID, c.r.lower.layout.Pages(&m.Extent), len(m.Pages))
		}
		if m.ID == 0 || c.begun[m.ID] {
			c.failf("move %d begins twice, or has no ID", m.ID)
		}
		c.begun[m.ID] = true
	}
	for i := range c.gone {
		clear(c.gone[i])
	}
	for _, id := range p.Batch.After {
		if !c.begun[tiering.MoveID(id)] {
			c.failf("plan %d waits for move %d, which has not begun", p.Batch.Seq, id)
		}
	}
}

func (c *tierLedger) written(m *tiering.Move, writes map[mempool.Key][]kv.Tier) {
	l := &c.r.lower
	if m.Extent.Parent.IsZero() || l.stores[m.To][m.Extent.Parent] != nil || slices.Contains(writes[m.Extent.Parent], m.To) || l.writing(m.Extent.Parent, m.To) {
		return
	}
	// The scheduler may not have been told yet that the parent was lost, or only after it had decided
	// on the write, which waits for the next plan: the store will refuse it.
	if l.messages > 0 || c.gone[m.To][m.Extent.Parent] {
		return
	}
	c.failf("move %d writes extent %s to %v before its parent %s", m.ID, m.Extent.Key.Short(), m.To, m.Extent.Parent.Short())
}

func (l *lower) writing(k mempool.Key, to kv.Tier) bool {
	for _, m := range l.moves { // the answer does not depend on the order
		if m.Kind == tiering.Write && m.To == to && m.Extent.Key == k {
			return true
		}
	}
	return false
}

// settled: the scheduler knows the extents of each tier, and each read has a waiting request, or a turn that is
// expected.
func (c *tierLedger) settled() {
	l := &c.r.lower
	if l.cfg == nil || c.r.lost != nil {
		return
	}
	waits := len(l.moves) == 0 || c.r.sched.Prefetching() > 0
	for _, w := range c.waiting(waits) {
		waits = waits || w.Cause == scheduler.AwaitsTier
	}
	for id, m := range l.moves { // any order: it does not matter which one is reported
		if m.Kind == tiering.Read && !waits && !c.canceled[id] && l.messages == 0 && len(c.r.flights) == 0 {
			c.failf("move %d reads extent %s for no request, and was not canceled", id, m.Extent.Key.Short())
		}
	}
	if l.busy() || c.r.sched.Flushing() || c.r.plans%compareEvery != 0 {
		return
	}
	c.holdings()
}

// waiting returns the scheduler's Waiting, or nil if known says that the result does not
// matter.
func (c *tierLedger) waiting(known bool) []scheduler.Wait {
	if known {
		return nil
	}
	return c.r.sched.Waiting(nil)
}

// holdings fails if the contents of a tier differ from the scheduler's figures or from its
// events, or exceed the quota.
func (c *tierLedger) holdings() {
	c.r.lower.lookAgain()
	l, m := &c.r.lower, c.r.sched.Metrics()
	for i := kv.TierHost; int(i) < kv.Tiers; i++ {
		t := &l.cfg.Tiers[i]
		if m.Tiers[i].Extents != len(l.stores[i]) {
			c.failf("%v holds %d extents, by the metrics %d", i, len(l.stores[i]), m.Tiers[i].Extents)
		}
		if !t.Kept && int64(len(l.stores[i]))*int64(t.SlotBytes) > t.Bytes {
			c.failf("%v holds %d extents of %d bytes, above its quota of %d", i, len(l.stores[i]), t.SlotBytes, t.Bytes)
		}
		if c.r.cfg.Events {
			c.compare(i)
		}
	}
}

// compare hashes the extents of a tier again, and compares the hashes with the events.
func (c *tierLedger) compare(t kv.Tier) {
	want := map[kv.BlockHash]int{}
	store := c.r.lower.stores[t]
	for _, rec := range store { // the result does not depend on the order
		var tokens []kv.Token
		plain := true
		for x := rec; x != nil; x = store[x.extent.Parent] {
			tokens = slices.Concat(x.extent.Tokens, tokens)
			plain = plain && len(x.extent.Media) == 0
		}
		if !plain {
			continue
		}
		h := kv.NewHasher(rec.extent.Namespace, c.r.cfg.BlockTokens)
		for n := c.r.cfg.BlockTokens; len(tokens) >= n; tokens = tokens[n:] {
			hash, _ := h.NextMedia(tokens[:n], nil)
			want[hash] = 1
		}
	}
	c.r.mirror.equal(t, want)
}

// closing checks that no move is left.
func (c *tierLedger) closing() {
	l := &c.r.lower
	if l.cfg == nil || c.r.lost != nil {
		return
	}
	if c.r.sched.Flushing() || l.busy() {
		c.failf("at the end, %d moves have not ended; the scheduler waits for some: %v", len(l.moves), c.r.sched.Flushing())
	}
	c.holdings()
}
