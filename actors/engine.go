package actors

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/scheduler"
)

// engineActor owns the backend: it submits plans, and a second goroutine of its
// own waits for their tickets, so that Receive never does.
type engineActor struct {
	sys     *System
	backend engine.Backend
	pending chan pendingStep
	waiter  sync.WaitGroup
}

type pendingStep struct {
	plan   *scheduler.Plan
	ticket engine.Ticket
}

func newEngineActor(s *System, backend engine.Backend) *engineActor {
	a := &engineActor{sys: s, backend: backend, pending: make(chan pendingStep, backend.Info().MaxInflight)}
	a.waiter.Go(a.wait)
	return a
}

func (a *engineActor) receive(self *process, message any) {
	switch m := message.(type) {
	case *step:
		a.step(m)
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
	ticket, err := a.backend.Submit(&m.plan.Batch)
	runtime.UnlockOSThread()
	if err != nil {
		a.sys.scheduler.tell(&stepDone{plan: m.plan, err: err})
		return
	}
	a.pending <- pendingStep{m.plan, ticket} // has room for all that Submit lets in
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
	if err := a.backend.Close(); err != nil {
		a.sys.log.Sugar().Errorw("closing the backend", "error", err)
	}
}
