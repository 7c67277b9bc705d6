package actors

import (
	"context"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/scheduler"
	"github.com/coppice-llm/coppice/tokenizer/textcache"
)

// Ask calls the function at on the goroutine that owns the scheduler, between two steps,
// and returns the function's result. The argument now is the time on the scheduler's clock.
// Steps wait until the function returns, so it must not block, and it must not keep core.
// If ctx ends first, Ask returns the error of ctx; after the system's end, the cause of the
// end.
func Ask[T any](ctx context.Context, s *System, at func(core *scheduler.Scheduler, now time.Duration) T) (T, error) {
	return ask(ctx, s, func(a *schedulerActor) T { return at(a.core, s.now()) })
}

// Stats holds the figures of a Node.
type Stats struct {
	Scheduler scheduler.Metrics
	// Tenants lists the tenants with open requests, and under the policy DLPM also those with
	// debt or credit left, by name.
	Tenants []scheduler.TenantUsage
	// Engine sums the backend's figures over all steps.
	Engine engine.StepStats
	// Tiers lists the tiers below the device, the fastest first.
	Tiers []TierStats
	// Texts counts the tokens of texts encoded before, and of those that were reused.
	Texts textcache.Stats
	// LeakedPages is the number of pages without an owner: neither free nor in use, or after
	// Close not returned to the pool. Always 0, else a bug.
	LeakedPages int
}

// Stats returns the current figures, or the final ones once the system has ended.
func (s *System) Stats(ctx context.Context) (Stats, error) {
	st, err := ask(ctx, s, (*schedulerActor).stats)
	if err == nil || ctx.Err() != nil {
		return st, err
	}
	if st := s.final.Load(); st != nil {
		return *st, nil
	}
	return st, err
}

func (a *schedulerActor) stats() Stats {
	m := a.core.Metrics()
	return Stats{Scheduler: m, Tenants: a.core.Tenants(), Engine: a.ran, Tiers: a.sys.tiers.stats(&m), LeakedPages: m.LeakedPages, Texts: a.sys.texts.Stats()}
}

func ask[T any](ctx context.Context, s *System, at func(*schedulerActor) T) (answer T, err error) {
	reply := make(chan T, 1)
	s.scheduler.tell(&look{func(a *schedulerActor) { reply <- at(a) }})
	select {
	case answer = <-reply:
	case <-ctx.Done():
		err = ctx.Err()
	case <-s.ended:
		err = s.cause
	}
	return answer, err
}
