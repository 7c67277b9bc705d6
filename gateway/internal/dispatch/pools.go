package dispatch

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/gateway/internal/global"
	"github.com/coppice-llm/coppice/router"
)

// Partition divides the workers into pools. A pool is chosen for a request before its worker: by a
// grid of length and targets, or as a bucket. A nil *Partition stands for no pools. The pools of a
// grid can be replaced: a pool whose name stays keeps its number, and the number of a removed pool is
// never used again.
type Partition struct {
	names  []string
	ids    []router.PoolID          // parallel to names
	last   router.PoolID            // the last number given out
	byName map[string]router.PoolID // by name in workers' cards; nil with buckets
	grid   *global.Config           // nil with buckets
	stage  router.Staging           // for buckets

	prefixBlocks int
	sessions     bool
	turn         sync.Mutex // guards buckets
	buckets      *router.Buckets
}

// newPools makes the pools of a valid configuration. It returns nil if the configuration has
// none.
func newPools(cfg *Config) (*Partition, error) {
	switch {
	case cfg.Pools != nil:
		return gridPools(cfg.Pools, &Partition{}), nil
	case cfg.Buckets > 0:
		b, err := router.NewBuckets(cfg.Buckets, cfg.Stage, cfg.Router.PrefixBlocks)
		p := &Partition{buckets: b, stage: cfg.Stage, prefixBlocks: cfg.Router.PrefixBlocks, sessions: cfg.Router.SessionTTL > 0}
		for i := range cfg.Buckets {
			p.names, p.ids = append(p.names, fmt.Sprintf("bucket-%d", i)), append(p.ids, router.PoolID(i+1))
		}
		return p, err
	}
	return nil, nil
}

// gridPools makes the pools of a grid. A pool whose name is also in before keeps its number.
func gridPools(c *global.Config, before *Partition) *Partition {
	p := &Partition{grid: c, names: c.Aggregated.Names, byName: map[string]router.PoolID{}, last: before.last}
	for _, name := range p.names {
		id := before.byName[name]
		if id == 0 {
			p.last++
			id = p.last
		}
		p.byName[name] = id
		p.ids = append(p.ids, id)
	}
	return p
}

// Grid reports whether a grid chooses the pool.
func (p *Partition) Grid() bool { return p != nil && p.grid != nil }

// String describes how a pool is chosen.
func (p *Partition) String() string {
	switch {
	case p == nil:
		return ""
	case p.grid != nil:
		return fmt.Sprintf("%d by length and targets", len(p.names))
	}
	return fmt.Sprintf("%d buckets by %v", len(p.names), p.stage)
}

// Names returns the names of all pools. The caller must not change them.
func (p *Partition) Names() []string {
	if p == nil {
		return nil
	}
	return p.names
}

// Name returns the name of a pool, "" for an unknown one.
func (p *Partition) Name(id router.PoolID) string {
	if p == nil || id == 0 {
		return ""
	}
	if i := slices.Index(p.ids, id); i >= 0 {
		return p.names[i]
	}
	return ""
}

// Admit returns an error for a worker with this card if it belongs to none of the pools. Only a
// grid refuses workers. url is for the error's text.
func (p *Partition) Admit(url string, c *card.Card) error {
	switch {
	case !p.Grid() || p.byName[c.Pool] != 0:
		return nil
	case c.Pool == "":
		return fmt.Errorf("worker %s has no pool, so it would get no requests: give it one of %.400q by --pool or in the workers' file", url, p.names)
	}
	return fmt.Errorf("worker %s is in pool %q, which is not in the pools' file, so it would get no requests: the pools are %.400q", url, c.Pool, p.names)
}

// Stage chooses the pool of request a, and the pools to try after it, among p, which may be nil.
// A pinned request may go to any pool. With explains the turn of the buckets does not advance.
// The error means that a.Query is invalid for the grid.
func (d *Dispatcher) Stage(a *Ask, p *Partition, explains bool) error {
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
		for _, i := range p.grid.Retry(pool) {
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

// bucket returns the index of the first bucket to try: the one of the worker of the request's
// session, else the one that Config.Stage chooses.
func (d *Dispatcher) bucket(a *Ask, p *Partition, explains bool) int {
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

// describe returns the fields of q in words.
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

// Ascend moves a request, after a failed attempt, to the next of its pools with a healthy worker
// for the model ("": any). The next pools of a grid are the faster ones. It returns false, and
// moves nothing, if there is no such pool or no grid chooses pools.
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

// Reachable returns the number of healthy workers for the model ("": any) in the request's
// current pool and in the pools after it, or in the whole fleet if the request is assigned to no
// pool.
func (d *Dispatcher) Reachable(a *Ask, model string) (n int) {
	s, g := &a.stage, d.groups.Load()
	if len(s.ids) == 0 {
		return g.healthy[inPool{0, model}]
	}
	for _, id := range s.ids[s.at:] {
		n += g.healthy[inPool{id, model}]
	}
	return n
}

// GridPools returns the names of the pools that a grid chose for a request, preferred first.
// Without a grid it returns nil.
func (a *Ask) GridPools() (names []string) {
	if a.stage.pools.Grid() {
		for _, id := range a.stage.ids {
			names = append(names, a.stage.pools.Name(id))
		}
	}
	return names
}

// Explain returns the router's explanation of the choice that it would make for a, and in words
// how the pool was chosen ("" without pools). Errors are those of [router.Router.Explain].
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
		pool += fmt.Sprintf("no worker there can take it, so pool %s\n", s.pools.Name(s.ids[s.at]))
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

// explain is Explain for the current pool, with the candidates sorted by cost.
func (d *Dispatcher) explain(a *Ask) (e router.Explanation, err error) {
	a.lookUp(d.index, d.BlockTokens())
	d.With(func(r *router.Router, now time.Duration) {
		d.find(a)
		e, err = r.Explain(now, &a.Request)
	})
	slices.SortStableFunc(e.Candidates, func(x, y router.Candidate) int { return cmp.Compare(x.Cost, y.Cost) })
	return e, err
}
