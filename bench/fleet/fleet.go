package fleet

import (
	"context"
	"fmt"

	"github.com/coppice-llm/coppice/router"
)

// clientsPerWorker is how many requests a worker has at a time when all are to be
// busy: more than its steps need to be full, and about as many as its pool has room for.
const clientsPerWorker = 32

// Play is one run. Errors are those of the configuration, of the context, and of
// workers that lose requests or say more or less than they were asked for.
func Play(ctx context.Context, cfg Config, trace *Trace) (Result, error) {
	cfg, err := cfg.WithDefaults()
	if err == nil {
		err = cfg.Validate()
	}
	if err != nil {
		return Result{}, err
	}
	p, err := newPlay(cfg, trace)
	if err != nil {
		return Result{}, err
	}
	if err := p.run(func() error { return context.Cause(ctx) }); err != nil {
		return Result{}, fmt.Errorf("%s, %d workers, %v: %w", trace.Name, cfg.Workers, Policy{cfg.Policy, cfg.Staged}, err)
	}
	return p.summarise(), nil
}

// Capacity is how many requests per second a fleet can bear under round robin: what
// it serves in a closed loop of clientsPerWorker at a time.
func Capacity(ctx context.Context, cfg Config, trace *Trace) (float64, error) {
	cfg.Rate, cfg.Clients, cfg.Clock = 0, clientsPerWorker*cfg.Workers, nil
	cfg.Policy, cfg.Staged = router.CostRoundRobin, Staged{}
	r, err := Play(ctx, cfg, trace)
	return r.RequestsPerS, err
}
