package actors

import (
	"context"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// ask has the scheduler actor answer between two steps. Once the system has ended
// there is no answer: the error is why it did.
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

// Stats are a system's figures.
type Stats struct {
	Scheduler scheduler.Metrics
	// Tenants are those with requests open, by name.
	Tenants []scheduler.TenantUsage
	Engine  engine.StepStats // summed over all steps, as the backend counted them
	// Tiers are those below the device, the fastest first.
	Tiers []TierStats
	// LeakedPages have no owner: granted to the scheduler but nobody's there, or,
	// after the end, not returned to the pool. Always 0.
	LeakedPages int
}

// Stats are the figures of now, or of the end once the system has ended.
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
	return Stats{Scheduler: m, Tenants: a.core.Tenants(), Engine: a.ran, Tiers: a.sys.tiers.stats(&m), LeakedPages: m.LeakedPages}
}

// Waiting says of each sample that waits why, in the order in which the requests
// were opened; they are numbered from 1. Those whose text is still being tokenized
// or whose Format is being compiled are not among them. It costs the scheduler a
// look at each.
func (s *System) Waiting(ctx context.Context) ([]scheduler.Wait, error) {
	return ask(ctx, s, func(a *schedulerActor) []scheduler.Wait { return a.core.Waiting(nil) })
}

// Running is who has a slot, oldest first.
func (s *System) Running(ctx context.Context) ([]scheduler.Run, error) {
	return ask(ctx, s, func(a *schedulerActor) []scheduler.Run { return a.core.Running(s.now(), nil) })
}

// FlushCache forgets all cached prefixes; running requests keep theirs.
func (s *System) FlushCache(ctx context.Context) error {
	_, err := ask(ctx, s, func(a *schedulerActor) struct{} { a.core.FlushCache(); return struct{}{} })
	return err
}

// PinPrefix keeps a cached prefix for d, 0 for good. See scheduler.PinPrefix.
func (s *System) PinPrefix(ctx context.Context, ns kv.Namespace, tokens []kv.Token, d time.Duration) error {
	tokens = slices.Clone(tokens)
	failed, err := ask(ctx, s, func(a *schedulerActor) error { return a.core.PinPrefix(s.now(), ns, tokens, d) })
	if err != nil {
		return err
	}
	return failed
}

// UnpinPrefix lets a pinned prefix go.
func (s *System) UnpinPrefix(ctx context.Context, ns kv.Namespace, tokens []kv.Token) error {
	tokens = slices.Clone(tokens)
	failed, err := ask(ctx, s, func(a *schedulerActor) error { return a.core.UnpinPrefix(ns, tokens) })
	if err != nil {
		return err
	}
	return failed
}

// HitRates is, for each capacity in tokens, the hit rate that a cache of that size
// would have had; nothing unless Scheduler.CurveSamples is set.
func (s *System) HitRates(ctx context.Context, capacityTokens []int) ([]float64, error) {
	capacityTokens = slices.Clone(capacityTokens)
	return ask(ctx, s, func(a *schedulerActor) []float64 { return a.core.HitRates(capacityTokens, nil) })
}
