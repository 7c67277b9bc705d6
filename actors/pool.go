package actors

import (
	"fmt"
	"sync"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

// Pool is a pool of pages that the schedulers of several Systems lease from; see Config.Pool.
// It is safe for concurrent use, and holds its mutex only for the time of a grant.
type Pool struct {
	mu       sync.Mutex
	pages    int
	division *mempool.Division
	members  map[mempool.Owner]*System
	news     []mempool.Notice // scratch
}

// NewPool makes a pool of that many pages, for at most as many Systems at a time as systems
// says. It fails if mempool.NewPool or mempool.Divide refuses the numbers.
func NewPool(pages, systems int) (*Pool, error) {
	ledger, err := mempool.NewPool(pages)
	if err != nil {
		return nil, err
	}
	d, err := mempool.Divide(ledger, systems)
	if err != nil {
		return nil, err
	}
	return &Pool{pages: pages, division: d, members: map[mempool.Owner]*System{}}, nil
}

// SharePages returns the number of pages guaranteed to each System; no request may need more.
func (p *Pool) SharePages() int { return p.division.SharePages() }

// joinPool joins cfg.Pool, or makes a pool for this System alone, and returns the pool and
// the new owner. pages is the number of pages of the backend; it fails if cfg.Pool has
// another number.
func joinPool(cfg *Config, pages int) (*Pool, mempool.Owner, error) {
	p := cfg.Pool
	if p == nil {
		var err error
		if p, err = NewPool(pages, 1); err != nil {
			return nil, 0, err
		}
	} else if p.pages != pages {
		return nil, 0, fmt.Errorf("actors: Pool has %d pages, the backend %d", p.pages, pages)
	}
	owner, err := p.join()
	return p, owner, err
}

// join adds an owner, for a System that is about to start, and returns it. Notices for the
// owner are dropped until tell is called for it.
func (p *Pool) join() (mempool.Owner, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.division.Join()
}

// tell routes the notices for an owner to s.
func (p *Pool) tell(o mempool.Owner, s *System) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.members[o] = s
}

// poolActor leases pages in bulk from the pool for the scheduler of its System.
type poolActor struct {
	pool  *Pool
	owner mempool.Owner
	last  []kv.PageID // the last grant: a copy, as the scheduler may write to the granted slice
}

func (a *poolActor) receive(self *process, message any) {
	switch m := message.(type) {
	case *want:
		a.want(self.sys, m)
	case *give:
		a.give(m)
	case *decline:
		a.pool.do(func(d *mempool.Division) { d.Decline(a.owner) })
	case *shutdown:
		a.shutdown(self)
	default:
		unknown(m)
	}
}

// want grants as many of the pages asked for as are available. If they are fewer, the
// scheduler plans smaller steps or evicts.
func (a *poolActor) want(s *System, m *want) {
	var g granted
	a.pool.do(func(d *mempool.Division) { g.pages, g.poolFree = d.Ask(a.owner, m.n, nil) })
	a.last = append(a.last[:0], g.pages...)
	s.scheduler.tell(&g)
}

func (a *poolActor) give(m *give) {
	a.pool.do(func(d *mempool.Division) {
		d.Give(a.owner, m.pages)
		if m.asked {
			d.Give(a.owner, a.last)
		}
	})
}

// shutdown leaves the pool. Pages that the actor's System has not returned count as leaked
// in its final figures. The scheduler has returned all of its pages by now, unless it
// panicked and lost its record of them. This System runs no further step, so the
// leaked pages can safely go to other Systems. If this actor itself panicked, shutdown does
// not run, and the System's share of the pool stays taken.
func (a *poolActor) shutdown(self *process) {
	left := a.pool.leave(a.owner)
	if final := self.sys.final.Load(); final != nil {
		st := *final
		st.LeakedPages += left
		self.sys.final.Store(&st)
	}
	self.quit()
}

// leave removes an owner and returns the number of pages that it still held.
func (p *Pool) leave(o mempool.Owner) (pages int) {
	p.do(func(d *mempool.Division) {
		delete(p.members, o)
		pages = d.Leave(o)
	})
	return pages
}

// do calls change with the mutex held, and then sends the division's new notices to the schedulers
// that they are for. Nothing in it blocks.
func (p *Pool) do(change func(d *mempool.Division)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p.division)
	p.news = p.division.Notices(p.news[:0])
	for _, n := range p.news {
		if s := p.members[n.Owner]; s != nil {
			s.scheduler.tell(&poolNews{recall: n.Recall, offer: n.Offer})
		}
	}
}
