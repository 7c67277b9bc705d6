package schedtest

import (
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// checker watches a rig. Each method receives one kind of event and fails, see [watcher], if a
// promise is broken. The book is updated after the checkers have run, so they see the state
// before the event.
type checker interface {
	// added: Add returned; o describes the request, accepted or not.
	added(o *order, err error)
	// aborted: Abort returned.
	aborted(o *order)
	// expired: Expire returned at the current time.
	expired()
	// planned: Next returned a plan, which has not been submitted yet.
	planned(p *scheduler.Plan, rows []rowView)
	// resulted: the ticket of a flight is done, or Submit failed.
	resulted(f *flight, res *engine.Result, err error)
	// told: one output for a caller; s is nil if its sample is not open.
	told(s *sample, o *scheduler.Output)
	// completed: told was called for all outputs of a plan.
	completed(seq uint64)
	// handed: pages move between the pool and the scheduler.
	handed(pages []kv.PageID, from, to place)
	// posted: a message was sent.
	posted()
	// heard: the cache's events since the previous call.
	heard(events []kv.Event)
	// settled: nothing is left to do at the current time.
	settled()
	// finished: no request is open, and the pool has every page back.
	finished()
}

// watcher is embedded in each checker. It accepts every event.
type watcher struct {
	r    *rig
	name string
}

// failf ends the world: the promise that the checker watches is broken.
func (w *watcher) failf(format string, args ...any) { w.r.fail(w.name, format, args...) }

// ok ends the world if err is not nil.
func (w *watcher) ok(err error) {
	if err != nil {
		w.failf("%v", err)
	}
}

func (*watcher) added(*order, error)                     {}
func (*watcher) aborted(*order)                          {}
func (*watcher) expired()                                {}
func (*watcher) planned(*scheduler.Plan, []rowView)      {}
func (*watcher) resulted(*flight, *engine.Result, error) {}
func (*watcher) told(*sample, *scheduler.Output)         {}
func (*watcher) completed(uint64)                        {}
func (*watcher) handed([]kv.PageID, place, place)        {}
func (*watcher) posted()                                 {}
func (*watcher) heard([]kv.Event)                        {}
func (*watcher) settled()                                {}
func (*watcher) finished()                               {}

// newCheckers returns all checkers in the order in which each event is passed to them. If
// several would fail, the first one reports, so those with the most informative errors come
// first.
func newCheckers(r *rig) []checker {
	return []checker{
		newLedger(r),
		&inflight{watcher{r, "inflight"}, map[uint64]uint64{}},
		&sanitizer{watcher{r, "sanitizer"}},
		&refusals{watcher{r, "refusals"}},
		&rowLimits{watcher: watcher{r, "rows"}},
		&promptFloor{watcher{r, "floor"}},
		&precedence{watcher: watcher{r, "precedence"}},
		&endings{watcher{r, "endings"}},
		&outputs{watcher{r, "outputs"}},
		&computed{watcher: watcher{r, "computed"}},
		&drafted{watcher: watcher{r, "drafts"}, counts: map[*sample]*[2]uint64{}, pages: map[uint64][][]kv.PageID{}, seen: map[kv.Namespace]map[uint64]bool{}},
		r.failed,
		r.retention,
		r.lower.parks,
		&quotas{watcher: watcher{r, "quotas"}},
		r.mirror,
		r.lower.ledger,
		r.progress,
		newShares(r),
	}
}

// each passes an event to all checkers.
func (r *rig) each(ask func(checker)) {
	for _, c := range r.checkers {
		ask(c)
	}
}
