package actors

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/internal/mempool/carrier"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// engineActor owns the backend: it submits plans, and a second goroutine of its
// own waits for their tickets, so that Receive never does.
type engineActor struct {
	sys     *System
	backend engine.Backend
	pending chan pendingStep
	waiter  sync.WaitGroup
	carrier *carrier.Carrier // nil: there are no tiers
	stop    chan struct{}    // closed when nothing watches the carrier any more
	sought  map[carrier.ProbeID]*seek
	probes  carrier.ProbeID // so far
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
		a.waiter.Go(func() { a.watch(s) })
	}
	return a
}

// watch has the actor poll the carrier when that has news.
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
	case *shutdown:
		self.quit()
	default:
		unknown(m)
	}
}

func (a *engineActor) step(m *step) {
	// A device context may be bound to the thread; locked for good, the thread
	// would cost tens of microseconds a message.
	runtime.LockOSThread()
	for i := range m.plan.Moves { // they read what the batch may overwrite
		a.carrier.Begin(&m.plan.Moves[i])
	}
	ticket, err := a.backend.Submit(&m.plan.Batch)
	runtime.UnlockOSThread()
	if err != nil {
		a.sys.scheduler.tell(&stepDone{plan: m.plan, err: err})
		return
	}
	a.pending <- pendingStep{m.plan, ticket} // has room for all that Submit lets in
}

// seekPatience is how long a request waits to hear what a shared tier has of its prompt.
const seekPatience = 50 * time.Millisecond

// seek asks the shared tier; poll passes the request on.
func (a *engineActor) seek(m *seek) {
	a.probes++
	a.sought[a.probes] = m
	a.carrier.Probe(a.probes, kv.TierShared, m.extents, time.Now().Add(seekPatience))
}

// poll passes on what has become of moves and probes.
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

// wait passes results on in the order of submission.
func (a *engineActor) wait() {
	for p := range a.pending {
		result, err := p.await()
		a.sys.scheduler.tell(&stepDone{plan: p.plan, result: result, err: err})
	}
}

// await waits for the ticket. A backend that panics in it is a device that is
// lost, not the process's end.
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

// release closes the device, however the actor came to its end, and waits until
// nothing computes. Tickets that were pending end with engine.ErrClosed.
func (a *engineActor) release() {
	defer a.waiter.Wait()
	defer close(a.pending)
	if a.carrier != nil {
		close(a.stop)
		if err := a.carrier.Close(); err != nil { // while the device still ends what it copies
			a.sys.log.Error("closing the tiers", zap.Error(err))
		}
	}
	if err := a.backend.Close(); err != nil {
		a.sys.log.Sugar().Errorw("closing the backend", "error", err)
	}
}
