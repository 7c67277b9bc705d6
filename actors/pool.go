package actors

import (
	"fmt"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

// poolActor owns the page pool and grants pages in bulk.
type poolActor struct {
	pool *mempool.Pool
	last []kv.PageID // the last grant; the scheduler's to write to, so a copy
}

func (a *poolActor) receive(self *process, message any) {
	switch m := message.(type) {
	case *want:
		a.want(self.sys, m)
	case *give:
		a.give(m)
	case *shutdown:
		a.shutdown(self)
	default:
		unknown(m)
	}
}

// want grants what there is: the scheduler plans with fewer, or evicts.
func (a *poolActor) want(s *System, m *want) {
	pages, err := a.pool.Grant(min(m.n, a.pool.FreePages()), nil)
	if err != nil {
		panic(fmt.Sprintf("pool actor: %v", err))
	}
	a.last = append(a.last[:0], pages...)
	s.scheduler.tell(&granted{pages, a.pool.FreePages()})
}

func (a *poolActor) give(m *give) {
	a.pool.Return(m.pages)
	if m.asked {
		a.pool.Return(a.last)
	}
}

// shutdown counts: the scheduler has given everything back by now, unless it
// panicked and its books are lost with it.
func (a *poolActor) shutdown(self *process) {
	if final := self.sys.final.Load(); final != nil {
		st := *final
		st.LeakedPages += a.pool.LeasedPages()
		self.sys.final.Store(&st)
	}
	self.quit()
}
