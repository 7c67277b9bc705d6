package schedtest

import (
	"errors"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/scheduler"
)

// retention checks the promise of the policy radixcache.Session: what a released session left makes room before
// the end of a session that may come back. It looks at the tree right before and right after each plan is made:
// if a leaf in which a session ends has lost pages to make room, then no leaf of a released session may be left
// that was unpinned and not used since its release. A plan protects the source of each copy that it makes for a
// moment, so as many may be left as it has copies.
//
// Namespaces with a quota have orders of their own, so worlds with quotas are not checked.
type retention struct {
	watcher
	released map[radixcache.NodeID]uint64 // leaves of released sessions, with their stamps
	stale    map[radixcache.NodeID]int    // before a plan: those of them that may be evicted, with their pages
	ends     map[kv.PageID]bool           // before a plan: the last pages of unpinned leaves in which a session ends
	evicted  uint64                       // before a plan: pages evicted to make room
}

// off reports whether nothing is checked.
func (c *retention) off() bool {
	r := c.r
	return r.cache == nil || r.lost != nil || r.cfg.Eviction != radixcache.Session || r.cfg.Quotas != nil || r.cfg.MinQuotas != nil
}

// release calls the given function, which releases a session of which tokens was a turn, without its last token, and
// notes the leaf that it leaves. An earlier turn of the session leaves none.
func (c *retention) release(ns kv.Namespace, tokens []kv.Token, release func() error) error {
	if c.off() {
		return release()
	}
	m := c.r.cache.Match(radixcache.Key{Namespace: ns, Tokens: tokens})
	before, _ := c.view(m.Node)
	if err := release(); err != nil {
		return err
	}
	if v, ok := c.view(m.Node); ok && v.Leaf && before.Current && !v.Current && m.Tokens == v.Start+len(v.Tokens) {
		c.released[v.ID] = v.Stamp
	}
	return nil
}

// told: where another request ends at or below what a released session left, requests may continue it again. The
// walk to it may have been before the release.
func (c *retention) told(s *sample, o *scheduler.Output) {
	if s == nil || o.Ending.Reason == scheduler.NotEnded || c.off() || len(c.released) == 0 {
		return
	}
	req := &s.of.req
	tokens := append(append([]kv.Token{}, req.Prompt...), s.got...)
	m := c.r.cache.Match(radixcache.Key{Namespace: req.Namespace, Tokens: tokens, PublicTokens: req.PublicTokens, Media: req.Media})
	for v, ok := c.view(m.Node); ok; v, ok = c.view(v.Parent) {
		delete(c.released, v.ID)
	}
}

// view returns the node with an id.
func (c *retention) view(id radixcache.NodeID) (v radixcache.NodeView, ok bool) {
	for v := range c.r.cache.Walk() {
		if v.ID == id {
			return v, true
		}
	}
	return v, false
}

// before is called before each plan is made.
func (c *retention) before() {
	if c.off() || len(c.released) == 0 {
		return
	}
	clear(c.stale)
	clear(c.ends)
	c.evicted = c.r.cache.Stats().EvictedPages[radixcache.ByCapacity]
	alive := map[radixcache.NodeID]uint64{}
	for v := range c.r.cache.Walk() {
		stamp, released := c.released[v.ID]
		switch {
		case released && stamp == v.Stamp && v.Leaf && !v.Current:
			if alive[v.ID] = stamp; v.Pins == 0 {
				c.stale[v.ID] = len(v.Pages)
			}
		case v.Leaf && v.Pins == 0 && v.Current && !v.Tail:
			c.ends[v.Pages[len(v.Pages)-1]] = true
		}
	}
	c.released = alive
}

func (c *retention) planned(p *scheduler.Plan, _ []rowView) {
	if c.off() || len(c.stale) == 0 || len(c.ends) == 0 || c.r.cache.Stats().EvictedPages[radixcache.ByCapacity] == c.evicted {
		return
	}
	left := 0
	for v := range c.r.cache.Walk() {
		if n, some := c.stale[v.ID]; some && v.Pins == 0 && len(v.Pages) == n && c.released[v.ID] == v.Stamp {
			left++
		}
		for _, page := range v.Pages {
			delete(c.ends, page)
		}
	}
	if left > len(p.Batch.Copies) && len(c.ends) > 0 {
		c.failf("%d leaves in which sessions end lost pages to make room, but %d leaves of released sessions are left", len(c.ends), left)
	}
}

// lastTurn is the last request of a session that has ended.
type lastTurn struct {
	ref    scheduler.SessionRef
	tokens []kv.Token
}

// nameSession makes req a turn of a session, in some worlds.
func (l *load) nameSession(req *scheduler.Request) {
	if l.sessions.on && !l.sessions.rng.one(3) {
		req.Session = pick(l.sessions.rng, "x", "y", "z", "u", "v")
	}
}

// hints draws the sessions of requests, and what the callers say about them.
type hints struct {
	rng  stream
	on   bool
	last []lastTurn // of each session that may be known, the latest at the end
}

// ended notes the end of a sample that may be the turn of a session.
func (h *hints) ended(s *sample) {
	if s.of.req.Session == "" || s.index != 0 {
		return
	}
	turn := lastTurn{scheduler.SessionRef{Namespace: s.of.req.Namespace, Tenant: s.of.req.Tenant, Name: s.of.req.Session}, nil}
	turn.tokens = append(append(turn.tokens, s.of.req.Prompt...), s.got...)
	if h.last = append(h.last, turn); len(h.last) > 8 {
		h.last = h.last[1:]
	}
}

// hint tells the scheduler something about a session, in some calls.
func (w *world) hint() {
	h := &w.load.sessions
	if !h.on || len(h.last) == 0 || !h.rng.one(3) {
		return
	}
	now, i := w.clock.Now(), h.rng.IntN(len(h.last))
	turn := h.last[i]
	var err error
	switch h.rng.IntN(5) {
	case 0, 1:
		err = w.retention.release(turn.ref.Namespace, turn.tokens[:max(len(turn.tokens)-1, 0)], func() error { return w.sched.ReleaseSession(turn.ref) })
		h.last = append(h.last[:i:i], h.last[i+1:]...)
	case 2:
		err = w.sched.ExpectSession(now, turn.ref, h.rng.wait(20*w.setup.stepTime))
	case 3:
		_, err = w.sched.PinSession(now, turn.ref, 1+h.rng.wait(20*w.setup.stepTime))
	case 4:
		err = w.sched.UnpinSession(turn.ref)
	}
	for _, known := range []error{nil, scheduler.ErrNoSession, scheduler.ErrNoCache, radixcache.ErrPinBudget, radixcache.ErrNotCached} {
		if errors.Is(err, known) {
			return
		}
	}
	w.fail("retention", "a hint about session %q: %v", turn.ref.Name, err)
}
