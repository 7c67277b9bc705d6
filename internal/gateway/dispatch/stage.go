package dispatch

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/coppice-llm/coppice/internal/router/global"
	"github.com/coppice-llm/coppice/router"
)

// Stage chooses the pool of a request, and those to try after it, among p. explains: the turn
// of buckets does not move on. The error says that no pool can be chosen by a.Query.
func (d *Dispatcher) Stage(a *Ask, p *Pools, explains bool) error {
	s, req := &a.stage, &a.Request
	s.pools = p
	switch {
	case p == nil:
		return nil
	case req.Pinned != nil:
		s.why = "the worker is pinned"
		return nil
	case p.grid != nil:
		pool, err := p.grid.AggregatedPool(a.Query)
		if err != nil {
			return err
		}
		for _, i := range p.grid.Retry(&p.grid.Aggregated, pool, nil) {
			s.ids = append(s.ids, p.ids[i])
		}
		if explains {
			s.why = describe(&a.Query)
		}
	default:
		first := d.bucket(a, p, explains)
		for i := range p.ids {
			s.ids = append(s.ids, p.ids[(first+i)%len(p.ids)])
		}
	}
	req.Pool = s.ids[0]
	return nil
}

// bucket is the first bucket to try: that of the session's worker, or as the staging has it.
func (d *Dispatcher) bucket(a *Ask, p *Pools, explains bool) int {
	s, req := &a.stage, &a.Request
	if p.sessions && req.Session != 0 {
		pool := router.PoolID(0)
		d.With(func(r *router.Router, now time.Duration) { pool = r.SessionPool(now, req) })
		if pool != 0 {
			s.why = "the session's worker is there"
			return int(pool) - 1
		}
	}
	p.turn.Lock()
	defer p.turn.Unlock()
	if !explains {
		return p.buckets.Pick(req.Hashes)
	}
	bucket, turn := p.buckets.Peek(req.Hashes)
	if s.why = fmt.Sprintf("by the hash of block %d of the prompt", min(len(req.Hashes), p.prefixBlocks)); turn {
		s.why = "it is its turn"
	}
	return bucket
}

// describe says what a grid was asked.
func describe(q *global.Query) string {
	target := func(v *float64) string {
		if v == nil {
			return "not given"
		}
		return strconv.FormatFloat(*v, 'g', -1, 64) + " ms"
	}
	text := fmt.Sprintf("%d prompt tokens, TTFT target %s, ITL target %s", q.Tokens, target(q.TTFT), target(q.ITL))
	if q.Priority != nil {
		text += fmt.Sprintf(", priority %d", *q.Priority)
	}
	return text
}

// Ascend moves a request on, after a failed attempt, to a faster pool that has a healthy worker
// for the model ("": any), if a grid chooses pools. It reports whether there is one.
func (d *Dispatcher) Ascend(a *Ask, model string) bool {
	s, g := &a.stage, d.groups.Load()
	if !s.pools.Grid() {
		return false
	}
	for at := s.at + 1; at < len(s.ids); at++ {
		if g.healthy[inPool{s.ids[at], model}] > 0 {
			a.leave(at)
			return true
		}
	}
	return false
}

// Reachable is how many healthy workers for the model ("": any) the request's pool, and those
// to try after it, have. staged: the request goes by pools.
func (d *Dispatcher) Reachable(a *Ask, model string) (n int, staged bool) {
	s, g := &a.stage, d.groups.Load()
	if len(s.ids) == 0 {
		return 0, false
	}
	for _, id := range s.ids[s.at:] {
		n += g.healthy[inPool{id, model}]
	}
	return n, true
}

// GridPools are the names of the pools that a grid chose for a request, nil if none did.
func (a *Ask) GridPools() (names []string) {
	if a.stage.pools.Grid() {
		for _, id := range a.stage.ids {
			names = append(names, a.stage.pools.Name(id))
		}
	}
	return names
}

// Explain says which worker would be chosen and why, and in words which pool.
func (d *Dispatcher) Explain(a *Ask) (e router.Explanation, pool string, err error) {
	s := &a.stage
	for {
		if e, err = d.explain(a); err == nil || !errors.Is(err, router.ErrNoWorkers) || s.at+1 >= len(s.ids) {
			break
		}
		s.at++
		a.Request.Pool = s.ids[s.at]
	}
	if s.pools == nil || err != nil {
		return e, "", err
	}
	if len(s.ids) == 0 {
		return e, "any pool: " + s.why + "\n", nil
	}
	pool = fmt.Sprintf("pool %s: %s\n", s.pools.Name(s.ids[0]), s.why)
	if s.at > 0 {
		pool += fmt.Sprintf("nobody there can take it, so pool %s\n", s.pools.Name(s.ids[s.at]))
	}
	if rest := s.ids[s.at+1:]; s.pools.Grid() && len(rest) > 0 {
		pool += "if that fails:"
		for _, id := range rest {
			pool += " " + s.pools.Name(id)
		}
		pool += "\n"
	}
	return e, pool, nil
}

func (d *Dispatcher) explain(a *Ask) (e router.Explanation, err error) {
	a.lookUp(d.index, d.BlockTokens())
	d.With(func(r *router.Router, now time.Duration) {
		d.find(a)
		e, err = r.Explain(now, &a.Request)
	})
	slices.SortStableFunc(e.Candidates, func(x, y router.Candidate) int { return cmp.Compare(x.Cost, y.Cost) })
	return e, err
}
