package schedtest

import "github.com/coppice-llm/coppice/kv"

// quotas checks that no namespace holds more of the cache than its quota while no request is
// open, and so nothing is pinned.
type quotas struct{ watcher }

func (c *quotas) settled() {
	r := c.r
	if r.cache == nil || r.lost != nil || len(r.book.live) > 0 {
		return
	}
	for _, ns := range [...]kv.Namespace{{}, {Salt: "b"}} { // those to which drawBounds gives one
		u, most := r.cache.PrivateUsage(ns), r.cfg.Quotas[ns]/r.info.PageTokens
		if n := u.EvictablePages + u.ProtectedPages; most > 0 && n > most {
			c.failf("namespace %+v holds %d pages at rest, its quota is %d", ns, n, most)
		}
	}
}
