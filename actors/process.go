package actors

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"

	"github.com/asynkron/protoactor-go/actor"
)

// shared is the actor system of the whole OS process. Creating one takes milliseconds and 3 MB
// (BenchmarkNewActorSystem), so all Systems share it. Its own log is off; supervised logs
// panics. Messages to stopped actors are lost on purpose (see tell): the shortest throttle
// interval ends the goroutine that protoactor starts to count them.
var shared = sync.OnceValue(func() *actor.ActorSystem {
	return actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
		return slog.New(slog.DiscardHandler)
	}), actor.WithDeadLetterThrottleInterval(1))
})

// receiver handles an actor's messages. One goroutine calls it.
type receiver interface {
	receive(self *process, message any)
}

// releaser is a receiver with resources that must be released however the actor ends.
type releaser interface{ release() }

// process is a running actor: its address, its goroutine and its end.
type process struct {
	sys  *System
	name string
	pid  *actor.PID
	loop *loop
	done chan struct{} // closed when it has stopped
}

// stop asks the process to end after the messages that are in its mailbox already.
func (p *process) stop() { p.tell(&shutdown{}) }

// quit ends the process from inside its receive.
func (p *process) quit() { shared().Root.Stop(p.pid) }

// tell sends a message; it never blocks. A message to a stopped actor is lost, on purpose: the
// system is ending at that time, and has ended all requests.
func (p *process) tell(message any) { shared().Root.Send(p.pid, message) }

var (
	// A state actor stops after a panic: restarted, it would have lost its state.
	stopOnPanic = actor.NewOneForOneStrategy(0, 0, func(any) actor.Directive { return actor.StopDirective })
	// A stateless worker restarts and continues with its mailbox.
	restartOnPanic = actor.NewRestartingStrategy()
)

// spawn starts an actor with the given name. strategy determines what happens after a
// panic. spawn calls produce once for the receiver; under restartOnPanic produce is called again
// after each panic.
func (s *System) spawn(name string, strategy actor.SupervisorStrategy, produce func() receiver) *process {
	p := &process{sys: s, name: name, loop: newLoop(), done: make(chan struct{})}
	props := actor.PropsFromProducer(func() actor.Actor {
		return &supervised{process: p, inner: produce()}
	}, actor.WithDispatcher(p.loop), actor.WithGuardian(strategy))
	p.pid = shared().Root.Spawn(props)
	s.processes = append(s.processes, p)
	return p
}

// supervised wraps a receiver for protoactor: before protoactor handles a panic, it fails the
// system, or only the request that a stateless worker was processing.
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

// release calls r.release and recovers its panic: an actor that panics while it stops never
// reports Stopped, and the shutdown would wait for it forever.
func (a *supervised) release(r releaser) {
	defer func() {
		if p := recover(); p != nil {
			a.process.sys.cfg.Log.Error("actor panicked while stopping", "actor", a.process.name, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	r.release()
}

// caught is deferred around the handling of message. If that panics, caught logs the panic,
// fails the system, or for a stateless worker only the request of message, and panics again
// for the supervision strategy.
func (a *supervised) caught(message any) {
	r := recover()
	if r == nil {
		return
	}
	err := fmt.Errorf("actors: the %s actor panicked: %v", a.process.name, r)
	a.process.sys.cfg.Log.Error("actor panicked", "actor", a.process.name, "panic", r, "stack", string(debug.Stack()))
	if worker, ok := a.inner.(interface{ drop(message any, err error) }); ok {
		worker.drop(message, err)
	} else {
		a.process.sys.fail(err)
	}
	panic(r)
}

// unknown panics: an actor received a message type that it has no case for.
func unknown(message any) { panic(fmt.Sprintf("unknown message %T", message)) }

// loop runs an actor on one long-lived goroutine. protoactor's own dispatcher starts a
// goroutine per wake-up, whose small stack must grow nearly every time (BenchmarkPingPong:
// about five times slower).
type loop struct {
	work chan func()
	quit chan struct{}
	wait sync.WaitGroup
}

func newLoop() *loop {
	// A mailbox calls Schedule at most once until it has run, and at most once more after the
	// loop has ended, when nothing receives from work. With room for 2 entries in work, Schedule
	// never blocks.
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

// Throughput implements actor.Dispatcher: messages processed before other goroutines run.
func (l *loop) Throughput() int { return 300 }

// end stops the goroutine after the actor has stopped, and waits for it.
func (l *loop) end() {
	close(l.quit)
	l.wait.Wait()
}
