package dispatch

import (
	"fmt"
	"slices"
	"sync"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/gateway/internal/global"
	"github.com/coppice-llm/coppice/router"
)

// Pools are groups of workers. A pool is chosen for a request before its worker: by a grid of
// length and targets, or as a bucket. A nil *Pools stands for no pools. The pools of a grid can
// be replaced: a pool whose name stays keeps its number, and the number of a removed pool is
// never used again.
type Pools struct {
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
func newPools(cfg *Config) (*Pools, error) {
	switch {
	case cfg.Pools != nil:
		return gridPools(cfg.Pools, &Pools{}), nil
	case cfg.Buckets > 0:
		b, err := router.NewBuckets(cfg.Buckets, cfg.Stage, cfg.Router.PrefixBlocks)
		p := &Pools{buckets: b, stage: cfg.Stage, prefixBlocks: cfg.Router.PrefixBlocks, sessions: cfg.Router.SessionTTL > 0}
		for i := range cfg.Buckets {
			p.names, p.ids = append(p.names, fmt.Sprintf("bucket-%d", i)), append(p.ids, router.PoolID(i+1))
		}
		return p, err
	}
	return nil, nil
}

// gridPools makes the pools of a grid. A pool whose name is also in before keeps its number.
func gridPools(c *global.Config, before *Pools) *Pools {
	p := &Pools{grid: c, names: c.Aggregated.Names, byName: map[string]router.PoolID{}, last: before.last}
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
func (p *Pools) Grid() bool { return p != nil && p.grid != nil }

// String describes how a pool is chosen.
func (p *Pools) String() string {
	switch {
	case p == nil:
		return ""
	case p.grid != nil:
		return fmt.Sprintf("%d by length and targets", len(p.names))
	}
	return fmt.Sprintf("%d buckets by %v", len(p.names), p.stage)
}

// Names returns the names of all pools. The caller must not change them.
func (p *Pools) Names() []string {
	if p == nil {
		return nil
	}
	return p.names
}

// Name returns the name of a pool, "" for an unknown one.
func (p *Pools) Name(id router.PoolID) string {
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
func (p *Pools) Admit(url string, c *card.Card) error {
	switch {
	case !p.Grid() || p.byName[c.Pool] != 0:
		return nil
	case c.Pool == "":
		return fmt.Errorf("worker %s has no pool, so it would get no requests: give it one of %.400q by --pool or in the workers' file", url, p.names)
	}
	return fmt.Errorf("worker %s is in pool %q, which is not in the pools' file, so it would get no requests: the pools are %.400q", url, c.Pool, p.names)
}
