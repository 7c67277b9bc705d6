package schedtest

import (
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// place is where a page is.
type place uint8

const (
	inPool place = iota
	onTheWayIn
	inScheduler
	onTheWayBack
	atRival
)

var placeNames = [...]string{"in the pool", "on the way to the scheduler", "in the scheduler", "on the way to the pool", "with another scheduler"}

func (p place) String() string { return placeNames[p] }

// mail holds the messages between pool and scheduler. Each direction keeps its order,
// as mailboxes do.
type mail struct {
	delay     func() time.Duration // draws the delay of the next message
	last      [3]time.Duration     // latest delivery time to the pool, the scheduler and its rival
	underway  int
	sent      int
	delivered int
}

const (
	toPool = iota
	toScheduler
	toRival
)

// post sends a message in a direction: it calls deliver after a random delay, but not
// before earlier messages in the same direction have arrived.
func (r *rig) post(direction int, deliver func()) {
	m := &r.mail
	at := max(r.clock.Now()+m.delay(), m.last[direction])
	m.last[direction] = at
	m.underway++
	m.sent++
	r.clock.At(at, func() {
		m.underway--
		m.delivered++
		deliver()
	})
	r.each(func(c checker) { c.posted() })
}

// pump passes on the scheduler's page requests, page returns and events, as a shell does after
// each message.
func (r *rig) pump() {
	r.yield()
	if n := r.sched.Want(); n > 0 {
		r.rival.asked()
		r.post(toPool, func() { r.grant(n) })
	} else {
		r.rival.decline()
	}
	if pages := r.sched.Surplus(nil); len(pages) > 0 {
		r.giveBack(pages)
	}
	r.publish(r.sched.TakeEvents(r.events[:0]))
	r.lower.parks.look()
}

// grant answers a request for n pages with as many as are free.
func (r *rig) grant(n int) {
	if n = r.bug.asked(r, n); n == 0 {
		return
	}
	pages, free := r.lease(n)
	pages = r.bug.granted(r, pages)
	r.hand(pages, inPool, onTheWayIn)
	r.post(toScheduler, func() {
		r.hand(pages, onTheWayIn, inScheduler)
		r.note("granted %d pages, %d are left", len(pages), free)
		r.rival.answered()
		r.sched.Grant(pages, free)
		r.pump()
	})
}

// lease takes up to n pages from the pool, and returns them with the number of free pages.
func (r *rig) lease(n int) (pages []kv.PageID, free int) {
	if r.rival != nil {
		return r.rival.lease(n)
	}
	pages, err := r.pool.Grant(min(n, r.pool.FreePages()), nil)
	if err != nil {
		r.fail("ledger", "%v", err)
	}
	return pages, r.pool.FreePages()
}

// giveBack sends pages to the pool.
func (r *rig) giveBack(pages []kv.PageID) {
	r.hand(pages, inScheduler, onTheWayBack)
	r.post(toPool, func() {
		r.hand(pages, onTheWayBack, inPool)
		r.note("%d pages go back", len(pages))
		pages = r.bug.returned(r, pages)
		if r.rival != nil {
			r.rival.giveBack(self, pages)
			return
		}
		r.pool.Return(pages)
	})
}

func (r *rig) hand(pages []kv.PageID, from, to place) {
	r.each(func(c checker) { c.handed(pages, from, to) })
}

// publish passes events on to the checkers.
func (r *rig) publish(events []kv.Event) {
	r.events = events
	if len(events) == 0 {
		return
	}
	for i := range events {
		r.sum.add(events[i])
	}
	r.report.Events += len(events)
	if r.log != nil {
		*r.log = append(*r.log, events...)
	}
	events = r.bug.events(r, events)
	r.each(func(c checker) { c.heard(events) })
}
