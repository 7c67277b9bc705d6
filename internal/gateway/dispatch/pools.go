package dispatch

import (
	"fmt"
	"slices"
	"sync"

	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/internal/router/global"
	"github.com/coppice-llm/coppice/router"
)

// Pools are groups of workers, of which one is chosen for a request before its worker is: a
// grid that chooses by length and targets, or buckets. nil: there are none. The pools of a grid
// are replaced as a whole; a pool that is named again keeps its number, and no other pool gets
// the number of one that is gone.
type Pools struct {
	names  []string
	ids    []router.PoolID          // of names
	last   router.PoolID            // that was given out
	byName map[string]router.PoolID // as workers name it; nil with buckets
	grid   *global.Config           // nil with buckets
	stage  router.Staging           // of buckets

	prefixBlocks int
	sessions     bool
	turn         sync.Mutex // over buckets
	buckets      *router.Buckets
}

// newPools are the pools of a valid configuration.
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

// gridPools are the pools of a valid configuration, after others.
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

// String says what chooses a pool.
func (p *Pools) String() string {
	switch {
	case p == nil:
		return ""
	case p.grid != nil:
		return fmt.Sprintf("%d by length and targets", len(p.names))
	}
	return fmt.Sprintf("%d buckets by %v", len(p.names), p.stage)
}

// Names are all pools. The caller must not change them.
func (p *Pools) Names() []string {
	if p == nil {
		return nil
	}
	return p.names
}

// Name is that of a pool, "" of one that is not among these.
func (p *Pools) Name(id router.PoolID) string {
	if p == nil || id == 0 {
		return ""
	}
	if i := slices.Index(p.ids, id); i >= 0 {
		return p.names[i]
	}
	return ""
}

// Admit refuses a worker that is in none of the pools.
func (p *Pools) Admit(url string, c *card.Card) error {
	switch {
	case !p.Grid() || p.byName[c.Pool] != 0:
		return nil
	case c.Pool == "":
		return fmt.Errorf("worker %s is in no pool, so no request would go there: give it one of %.400q, by --pool or in the workers' file", url, p.names)
	}
	return fmt.Errorf("worker %s is in pool %q, which the pools' file does not name, so no request would go there: there are %.400q", url, c.Pool, p.names)
}
