package actors

import (
	"log/slog"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
)

// player sends each ball that it gets back to the sender, with a lower count. When the
// count is 0, it closes over instead.
type player struct{ over chan struct{} }

type ball struct {
	to   *actor.PID
	left int
}

func (p *player) Receive(ctx actor.Context) {
	b, ok := ctx.Message().(*ball)
	if !ok {
		return
	}
	if b.left--; b.left <= 0 {
		close(p.over)
		return
	}
	to := b.to
	b.to = ctx.Self()
	ctx.Send(to, b)
}

// BenchmarkPingPong measures a message to another actor and back, with protoactor's
// dispatcher and with loop. The difference is the reason that processes have a dispatcher
// of their own.
func BenchmarkPingPong(b *testing.B) {
	run := func(dispatcher func() (actor.Dispatcher, func())) func(*testing.B) {
		return func(b *testing.B) {
			over := make(chan struct{})
			var pids [2]*actor.PID
			for i := range pids {
				d, end := dispatcher()
				defer end()
				pids[i] = shared().Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return &player{over} }, actor.WithDispatcher(d)))
				defer func() { shared().Root.StopFuture(pids[i]).Wait() }()
			}
			b.ReportAllocs()
			b.ResetTimer()
			shared().Root.Send(pids[0], &ball{to: pids[1], left: 2 * b.N})
			<-over
		}
	}
	b.Run("dispatcher=loop", run(func() (actor.Dispatcher, func()) { l := newLoop(); return l, l.end }))
	b.Run("dispatcher=default", run(func() (actor.Dispatcher, func()) { return actor.NewDefaultDispatcher(300), func() {} }))
}

// BenchmarkNewActorSystem measures what each System would pay without the shared one.
func BenchmarkNewActorSystem(b *testing.B) {
	quiet := actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) })
	b.ReportAllocs()
	for b.Loop() {
		actor.NewActorSystem(quiet)
	}
}
