package schedtest

import (
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

// rival is another scheduler that leases from the same pool. It takes and returns pages at random,
// so that the pool recalls pages from the scheduler under test, and offers it some. A nil rival does
// nothing.
type rival struct {
	r        *rig
	rng      stream
	division *mempool.Division
	pages    []kv.PageID
	waits    bool // the scheduler's question is not answered yet
	offered  bool // the scheduler has not answered an offer yet
}

// The owners of the pool.
const (
	self mempool.Owner = iota
	other
)

func newRival(r *rig) (*rival, error) {
	d, err := mempool.Divide(r.pool, 2)
	if err != nil {
		return nil, err
	}
	for range 2 {
		if _, err := d.Join(); err != nil {
			return nil, err
		}
	}
	return &rival{r: r, rng: newStream(r.opts.Seed, "rival's pages"), division: d}, nil
}

// act sometimes takes pages or gives some back. It is called after each plan.
func (v *rival) act() {
	switch {
	case v == nil || v.r.lost != nil || !v.rng.one(3):
	case len(v.pages) > 0 && v.rng.one(2):
		v.give(v.rng.between(1, len(v.pages)))
	default:
		v.take(v.rng.between(1, v.r.info.NumPages))
	}
}

func (v *rival) take(n int) {
	pages, _ := v.division.Ask(other, n, nil)
	v.r.hand(pages, inPool, atRival)
	v.pages = append(v.pages, pages...)
	v.notify()
}

// give gives up to n pages back.
func (v *rival) give(n int) {
	left := len(v.pages) - min(n, len(v.pages))
	back := v.pages[left:]
	v.pages = v.pages[:left]
	v.r.hand(back, atRival, inPool)
	v.giveBack(other, back)
}

func (v *rival) leave() {
	if v != nil {
		v.give(len(v.pages))
	}
}

// lease takes up to n pages for the scheduler.
func (v *rival) lease(n int) (pages []kv.PageID, free int) {
	pages, free = v.division.Ask(self, n, nil)
	v.notify()
	return pages, free
}

func (v *rival) giveBack(from mempool.Owner, pages []kv.PageID) {
	v.division.Give(from, pages)
	v.notify()
}

// notify sends the pool's notices.
func (v *rival) notify() {
	if err := v.division.Check(); err != nil {
		v.r.fail("ledger", "%v", err)
	}
	for _, n := range v.division.Notices(nil) {
		to, answer := toScheduler, v.tell
		if n.Owner == other {
			to, answer = toRival, v.hear
		}
		v.r.post(to, func() {
			if !v.r.closed {
				answer(n)
			}
		})
	}
}

// tell passes a notice on to the scheduler.
func (v *rival) tell(n mempool.Notice) {
	v.r.note("the pool recalls %d pages and offers %d", n.Recall, n.Offer)
	v.r.report.Recalled += n.Recall
	v.r.sched.Recall(n.Recall)
	if n.Offer > 0 {
		v.offered = true
		v.r.sched.Offer(n.Offer)
	}
	v.r.pump()
}

// hear answers a notice to the rival itself.
func (v *rival) hear(n mempool.Notice) {
	v.give(n.Recall)
	switch {
	case n.Offer == 0:
	case v.rng.one(2):
		v.take(v.rng.between(1, n.Offer))
	default:
		v.division.Decline(other)
		v.notify()
	}
}

// asked notes that the scheduler asks for pages, which answers an offer, too.
func (v *rival) asked() {
	if v != nil {
		v.waits, v.offered = true, false
	}
}

// answered notes that the answer has arrived.
func (v *rival) answered() {
	if v != nil {
		v.waits = false
	}
}

// decline declines an offer, unless the scheduler has asked for pages meanwhile.
func (v *rival) decline() {
	if v == nil || !v.offered || v.waits {
		return
	}
	v.offered = false
	v.r.post(toPool, func() {
		v.division.Decline(self)
		v.notify()
	})
}

// yield gives pages back that the pool has recalled. If wait is true, no plan may be made until a
// plan or a Write in flight has ended.
func (r *rig) yield() (wait bool) {
	if r.rival == nil || r.lost != nil || r.closed {
		return false
	}
	back, wait := r.sched.Return(nil)
	if len(back) > 0 {
		r.giveBack(back)
	}
	return wait
}
