package actors

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool/carrier"
	"github.com/coppice-llm/coppice/scheduler"
)

// engineActor owns the backend: it submits plans. A second goroutine of its own waits for the
// tickets, so that Receive never blocks.
type engineActor struct {
	sys     *System
	backend engine.Backend
	pending chan pendingStep
	waiter  sync.WaitGroup
	carrier *carrier.Carrier // nil: there are no tiers
	stop    chan struct{}    // closed to stop watcher
	watcher sync.WaitGroup   // the goroutine that watches the carrier
	sought  map[carrier.ProbeID]*seek
	probes  carrier.ProbeID // the last one used
}

type pendingStep struct {
	plan   *scheduler.Plan
	ticket engine.Ticket
}

func newEngineActor(s *System, backend engine.Backend) *engineActor {
	a := &engineActor{sys: s, backend: backend, pending: make(chan pendingStep, backend.Info().MaxInflight)}
	a.waiter.Go(a.wait)
	if s.tiers != nil {
		a.carrier, a.stop, a.sought = s.tiers.carrier, make(chan struct{}), map[carrier.ProbeID]*seek{}
		a.watcher.Go(func() { a.watch(s) })
	}
	return a
}

// watch sends the actor a message whenever the carrier has results to poll.
func (a *engineActor) watch(s *System) {
	for {
		select {
		case <-a.carrier.Ready():
			s.engine.tell(&carried{})
		case <-a.stop:
			return
		}
	}
}

func (a *engineActor) receive(self *process, message any) {
	switch m := message.(type) {
	case *step:
		a.step(m)
	case *seek:
		a.seek(m)
	case *carried:
		a.poll()
	case *hasten:
		a.carrier.Limit(m.until)
	case *shutdown:
		self.quit()
	default:
		unknown(m)
	}
}

func (a *engineActor) step(m *step) {
	// A device context may be bound to an OS thread. Locking the thread only for the call is
	// deliberate: a goroutine that is always locked costs tens of microseconds per message.
	runtime.LockOSThread()
	for i := range m.plan.Moves { // before Submit: they read pages that the batch may overwrite
		a.carrier.Begin(&m.plan.Moves[i])
	}
	ticket, err := a.backend.Submit(&m.plan.Batch)
	runtime.UnlockOSThread()
	if err != nil {
		a.sys.scheduler.tell(&stepDone{plan: m.plan, err: err})
		return
	}
	a.pending <- pendingStep{m.plan, ticket} // never blocks: the capacity is the number of steps that Submit accepts
}

// seekPatience bounds how long a request waits until its prompt was looked up in a shared
// tier.
const seekPatience = 50 * time.Millisecond

// seek starts to look up a request's prompt in the shared tier. When the lookup has ended,
// poll passes the request on.
func (a *engineActor) seek(m *seek) {
	a.probes++
	a.sought[a.probes] = m
	a.carrier.Probe(a.probes, kv.TierShared, m.extents, a.sys.now()+seekPatience)
}

// poll tells the scheduler the results of moves and lookups that have ended, and passes on
// the requests that waited for a lookup.
func (a *engineActor) poll() {
	runtime.LockOSThread()
	ended := a.carrier.Poll(nil)
	runtime.UnlockOSThread()
	if len(ended) > 0 {
		a.sys.scheduler.tell(&moved{ended})
	}
	for _, p := range a.carrier.Probed(nil) {
		m := a.sought[p.ID]
		delete(a.sought, p.ID)
		if len(p.Found) > 0 {
			a.sys.scheduler.tell(&found{p.Tier, p.Found})
		}
		a.sys.pass(m.submit, m.format)
	}
}

// wait waits for each ticket in the order of submission, and tells the scheduler its
// result. It ends when pending is closed.
func (a *engineActor) wait() {
	for p := range a.pending {
		result, err := p.await()
		a.sys.scheduler.tell(&stepDone{plan: p.plan, result: result, err: err})
	}
}

// await waits for the ticket and returns its result. If the backend panics in it, await
// returns an error: the device then counts as lost, and the process lives on.
func (p *pendingStep) await() (result *engine.Result, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("actors: the backend panicked: %v", r)
		}
	}()
	<-p.ticket.Done()
	if result, err = p.ticket.Result(); result == nil && err == nil {
		err = errors.New("actors: the backend gave neither a result nor an error")
	}
	return result, err
}

// release closes the device, however the actor ended, and waits until no step runs. Pending
// tickets end with engine.ErrClosed.
func (a *engineActor) release() {
	defer a.waiter.Wait()
	defer close(a.pending)
	if a.carrier != nil {
		close(a.stop)
		a.watcher.Wait()                                 // otherwise it could take the value of Ready that Close waits for
		if err := a.sys.tiers.close(a.sys); err != nil { // before the device: it still completes the copies that have begun
			a.sys.cfg.Log.Error("closing the tiers", "error", err)
		}
	}
	if err := a.backend.Close(); err != nil {
		a.sys.cfg.Log.Error("closing the backend", "error", err)
	}
}
