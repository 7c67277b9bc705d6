package schedtest

import (
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// checker watches a rig. Each method receives one kind of event and returns an error if a
// promise is broken. The book is updated after the checkers have run, so they see the state
// before the event.
type checker interface {
	name() string
	// added: Add returned; o describes the request, accepted or not.
	added(o *order, err error) error
	// aborted: Abort returned.
	aborted(o *order) error
	// expired: Expire returned at the current time.
	expired() error
	// planned: Next returned a plan, which has not been submitted yet.
	planned(p *scheduler.Plan, rows []rowView) error
	// resulted: the ticket of a flight is done, or Submit failed.
	resulted(f *flight, res *engine.Result, err error) error
	// told: one output for a caller; s is nil if its sample is not open.
	told(s *sample, o *scheduler.Output) error
	// completed: told was called for all outputs of a plan.
	completed(seq uint64) error
	// handed: pages move between the pool and the scheduler.
	handed(pages []kv.PageID, from, to place) error
	// posted: a message was sent.
	posted() error
	// heard: the cache's events since the previous call.
	heard(events []kv.Event) error
	// settled: nothing is left to do at the current time.
	settled() error
	// finished: no request is open, and the pool has every page back.
	finished() error
}

// blind is a checker that accepts everything; the others embed it.
type blind struct{}

func (blind) added(*order, error) error                     { return nil }
func (blind) aborted(*order) error                          { return nil }
func (blind) expired() error                                { return nil }
func (blind) planned(*scheduler.Plan, []rowView) error      { return nil }
func (blind) resulted(*flight, *engine.Result, error) error { return nil }
func (blind) told(*sample, *scheduler.Output) error         { return nil }
func (blind) completed(uint64) error                        { return nil }
func (blind) handed([]kv.PageID, place, place) error        { return nil }
func (blind) posted() error                                 { return nil }
func (blind) heard([]kv.Event) error                        { return nil }
func (blind) settled() error                                { return nil }
func (blind) finished() error                               { return nil }

// newCheckers returns all checkers in the order in which each event is passed to them. If
// several would fail, the first one reports, so those with the most informative errors come
// first.
func newCheckers(r *rig) []checker {
	return []checker{
		newLedger(r),
		&sanitizer{r: r},
		&door{r: r},
		&rowLimits{r: r},
		&promptFloor{r: r},
		&precedence{r: r},
		&endings{r: r},
		&outputs{r: r},
		&computed{r: r},
		newFailedKV(r),
		newMirror(r),
		r.lower.ledger,
		r.progress,
		newShares(r),
	}
}

// each calls ask with each checker. If ask returns an error, each records it as the rig's
// failure and stops.
func (r *rig) each(ask func(checker) error) {
	for _, c := range r.checkers {
		if r.failed != nil {
			return
		}
		if err := ask(c); err != nil {
			r.fail(c.name(), err)
		}
	}
}
