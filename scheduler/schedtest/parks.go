package schedtest

import (
	"errors"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/scheduler"
)

// parks checks the promises of Park in a world with tiers: each park ends once, the tier then has what the end says, and
// pages of the device that only the prefix needs are free.
type parks struct {
	watcher
	rng   stream
	begun scheduler.ParkID
	open  map[scheduler.ParkID]*parked
}

// parked is an open park.
type parked struct {
	key  radixcache.Key
	last radixcache.NodeView // at the last look: the leaf in which the prefix ended, if nothing else needed it; else Pages is nil
}

func newParks(r *rig, rng stream) *parks {
	return &parks{watcher: watcher{r, "parks"}, rng: rng, open: map[scheduler.ParkID]*parked{}}
}

// begin begins to park a prefix.
func (c *parks) begin(ns kv.Namespace, tokens []kv.Token) {
	c.begun++
	p := &parked{key: radixcache.Key{Namespace: ns, Tokens: append([]kv.Token(nil), tokens...)}}
	c.note(p)
	switch err := c.r.sched.Park(c.r.clock.Now(), c.begun, ns, tokens, 0); {
	case err == nil:
		c.open[c.begun] = p
		c.r.note("park %d: %d tokens", c.begun, len(tokens))
		c.look()
	case !errors.Is(err, scheduler.ErrNoTier) && !errors.Is(err, scheduler.ErrInvalid) && !errors.Is(err, scheduler.ErrQueueFull):
		c.failf("a park of %d tokens: %v", len(tokens), err)
	}
}

// giveUp gives up a park, which may have ended.
func (c *parks) giveUp(id scheduler.ParkID) {
	c.r.sched.Unpark(id)
	delete(c.open, id)
}

// look takes the parks that have ended. It is called after each call of the scheduler that may end one.
func (c *parks) look() {
	if c == nil || len(c.open) == 0 && c.r.cfg.Tiers == nil {
		return
	}
	for _, e := range c.r.sched.Unparked(nil) {
		p := c.open[e.ID]
		delete(c.open, e.ID)
		if p == nil || e.Tokens > len(p.key.Tokens) || e.Tokens%c.r.info.PageTokens != 0 {
			c.failf("park %d ends with %d tokens in %v, %v; it was open: %v", e.ID, e.Tokens, e.Tier, e.Err, p != nil)
		}
		if c.r.report.Parks++; e.Err == nil {
			c.freed(p)
			c.written(p, &e)
		}
	}
	for _, p := range c.open { // each for itself, in any order
		c.note(p)
	}
}

// note writes down the leaf in which p's prefix ends, unless something else needs the leaf.
func (c *parks) note(p *parked) {
	p.last = radixcache.NodeView{}
	if v, ok := c.end(p); ok && v.Leaf && v.Pins == 0 {
		p.last = v
	}
}

// end returns the node in which the part of p's prefix that the tree holds ends. It reports false if there is none, or
// if the node goes on.
func (c *parks) end(p *parked) (v radixcache.NodeView, ok bool) {
	if c.r.cache == nil {
		return v, false
	}
	m := c.r.cache.Match(p.key)
	if v, ok = c.r.retention.view(m.Node); !ok {
		return v, false
	}
	return v, v.Start+len(v.Tokens) <= m.Tokens
}

// freed checks that the device no longer has the end of p's prefix, if nothing needed it before the call that ended
// the park.
func (c *parks) freed(p *parked) {
	if p.last.Pages == nil {
		return
	}
	if v, ok := c.end(p); ok && v.ID == p.last.ID && v.Stamp == p.last.Stamp && v.Leaf && v.Pins == 0 {
		c.failf("a prefix of %d tokens is parked, but its leaf with pages %s is still on the device", len(p.key.Tokens), formatPages(v.Pages))
	}
}

// written checks that the tier has what the end of a park says: each extent, or one that contains it. A tier may have lost a part of which
// the scheduler has not heard yet.
func (c *parks) written(p *parked, e *scheduler.Parked) {
	l := &c.r.lower
	if l.messages > 0 {
		return
	}
	for _, x := range l.layout.AppendExtents(nil, p.key.Namespace, p.key.Tokens[:e.Tokens], nil) {
		if !l.contains(e.Tier, &x) {
			c.failf("%d tokens are parked in %v, but it has no extent for token %d", e.Tokens, e.Tier, x.Start)
		}
	}
}

// contains reports whether the store of a tier has an extent, or a longer one that begins with it.
func (l *lower) contains(t kv.Tier, x *mempool.Extent) bool {
	for _, r := range l.stores[t] {
		if l.layout.SharedPages(&r.extent, x) == l.layout.Pages(x) {
			return true
		}
	}
	return false
}

// finished: at the end no park is open.
func (c *parks) finished() {
	if c.look(); len(c.open) > 0 {
		c.failf("at the end %d parks are open", len(c.open))
	}
}

// park parks the prompt of an earlier request, in some calls, or gives up an open park.
func (w *world) park() {
	c := w.lower.parks
	if w.setup.cfg.Tiers == nil || len(w.load.past) == 0 || w.lost != nil || !c.rng.one(8) {
		return
	}
	if c.rng.one(6) && c.begun > 0 {
		c.giveUp(1 + scheduler.ParkID(c.rng.IntN(int(c.begun))))
		return
	}
	q := pick(c.rng, w.load.past...)
	c.begin(q.ns, append([]kv.Token(nil), q.prompt...))
}
