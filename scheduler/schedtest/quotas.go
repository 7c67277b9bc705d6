package schedtest

import "github.com/coppice-llm/coppice/kv"

// quotas checks that no namespace holds more of the cache than its quota while no request is
// open, unless the turn of a session is expected, which pins what it found, and nothing else is left. Public tokens stay while private ones follow them: so once a
// request has declared some, the namespace without a salt is not checked.
type quotas struct {
	watcher
	public bool
}

func (c *quotas) added(o *order, err error) {
	c.public = c.public || err == nil && o.req.Namespace.Salt != "" && o.req.PublicTokens > 0
}

func (c *quotas) settled() {
	r := c.r
	if r.cache == nil || r.cfg.Quotas == nil || r.lost != nil || len(r.book.live) > 0 {
		return
	}
	held, free := map[kv.Namespace]int{}, map[kv.Namespace]bool{}
	for v := range r.cache.Walk() {
		held[v.Namespace] += len(v.Pages)
		free[v.Namespace] = free[v.Namespace] || v.Pins == 0
	}
	for _, ns := range [...]kv.Namespace{{}, {Salt: "b"}} { // those to which drawBounds gives one
		if n, most := held[ns], r.cfg.Quotas[ns]/r.info.PageTokens; most > 0 && n > most && free[ns] && !(c.public && ns.Salt == "") {
			c.failf("namespace %+v holds %d pages at rest, its quota is %d", ns, n, most)
		}
	}
}
