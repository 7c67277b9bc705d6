package actors

import (
	"fmt"
	"log/slog"
	"sync"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"
)

// shared is the one actor system of the process: it costs milliseconds and 3 MB
// (BenchmarkNewActorSystem), so Systems share it. Its own log is off; panics are
// logged where they are caught.
var shared = sync.OnceValue(func() *actor.ActorSystem {
	return actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
		return slog.New(slog.DiscardHandler)
	}))
})

// receiver is what an actor does with a message. It is called by one goroutine.
type receiver interface {
	receive(self *process, message any)
}

// releaser is a receiver that holds something to let go of however it ends.
type releaser interface{ release() }

// process is a running actor: its address, its goroutine and its end.
type process struct {
	sys  *System
	name string
	pid  *actor.PID
	loop *loop
	done chan struct{} // closed when it has stopped
}

// tell sends a message; it never waits. What is sent to a stopped actor is lost,
// which is fine: the system is ending then, and the door has ended all requests.
func (p *process) tell(message any) { shared().Root.Send(p.pid, message) }

// stop asks the process to end after what it has in its mailbox.
func (p *process) stop() { p.tell(&shutdown{}) }

// quit ends the process from inside its receive.
func (p *process) quit() { shared().Root.Stop(p.pid) }

var (
	// A state actor that panicked is stopped: restarted, it would be empty.
	stopOnPanic = actor.NewOneForOneStrategy(0, 0, func(any) actor.Directive { return actor.StopDirective })
	// A stateless worker goes on with its mailbox.
	restartOnPanic = actor.NewRestartingStrategy()
)

// spawn starts an actor. make is called once, or again after each panic under
// restartOnPanic.
func (s *System) spawn(name string, strategy actor.SupervisorStrategy, make func() receiver) *process {
	p := &process{sys: s, name: name, loop: newLoop(), done: newDone()}
	props := actor.PropsFromProducer(func() actor.Actor {
		return &supervised{process: p, inner: make()}
	}, actor.WithDispatcher(p.loop), actor.WithGuardian(strategy))
	p.pid = shared().Root.Spawn(props)
	s.processes = append(s.processes, p)
	return p
}

func newDone() chan struct{} { return make(chan struct{}) }

// supervised stands between protoactor and a receiver: a panic fails the system,
// or the one request that a worker was at, before protoactor handles it.
type supervised struct {
	process *process
	inner   receiver
}

// Receive implements actor.Actor.
func (a *supervised) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started, *actor.Restarting:
	case *actor.Stopping:
		// In an orderly shutdown the cause is set already and this changes nothing.
		a.process.sys.fail(fmt.Errorf("actors: the %s actor stopped", a.process.name))
		if r, ok := a.inner.(releaser); ok {
			a.release(r)
		}
	case *actor.Stopped:
		close(a.process.done)
	default:
		defer a.caught(m)
		a.inner.receive(a.process, m)
	}
}

// release must not panic through protoactor: an actor that fails while it stops
// never ends, and the shutdown would wait for ever.
func (a *supervised) release(r releaser) {
	defer func() {
		if p := recover(); p != nil {
			a.process.sys.log.Error("actor panicked at its end", zap.String("actor", a.process.name), zap.Any("panic", p), zap.Stack("stack"))
		}
	}()
	r.release()
}

// caught turns a panic into the end of what depends on it, then lets the
// supervision strategy see it.
func (a *supervised) caught(message any) {
	r := recover()
	if r == nil {
		return
	}
	err := fmt.Errorf("actors: the %s actor panicked: %v", a.process.name, r)
	a.process.sys.log.Error("actor panicked", zap.String("actor", a.process.name), zap.Any("panic", r), zap.Stack("stack"))
	if worker, ok := a.inner.(interface{ drop(message any, err error) }); ok {
		worker.drop(message, err)
	} else {
		a.process.sys.fail(err)
	}
	panic(r)
}

// unknown is a message that an actor has no case for: a broken invariant.
func unknown(message any) { panic(fmt.Sprintf("unknown message %T", message)) }

// loop runs an actor on one long-lived goroutine. protoactor's own dispatcher
// starts a goroutine for each wake, whose small stack is grown and copied nearly
// every time (BenchmarkPingPong: about five times slower).
type loop struct {
	work chan func()
	quit chan struct{}
	wait sync.WaitGroup
}

func newLoop() *loop {
	// A mailbox schedules itself once until it has run, and after its actor's
	// end at most once more, when nobody takes it: room for both.
	l := &loop{work: make(chan func(), 2), quit: make(chan struct{})}
	l.wait.Go(func() {
		for {
			select {
			case f := <-l.work:
				f()
			case <-l.quit:
				return
			}
		}
	})
	return l
}

// Schedule implements actor.Dispatcher.
func (l *loop) Schedule(f func()) { l.work <- f }

// Throughput implements actor.Dispatcher: messages before other goroutines get a turn.
func (l *loop) Throughput() int { return 300 }

// end stops the goroutine after the actor has stopped, and waits for it.
func (l *loop) end() {
	close(l.quit)
	l.wait.Wait()
}
