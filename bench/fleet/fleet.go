package fleet

import (
	"context"
	"fmt"

	"github.com/coppice-llm/coppice/router"
)

// clientsPerWorker is the number of concurrent requests per worker when a capacity is
// measured: more than it takes to fill the steps, and about as many as the KV pool has
// room for.
const clientsPerWorker = 32

// Play simulates one run of the fleet cfg under the requests of trace. Errors are those of the
// configuration, the end of ctx, and workers that lose requests or output too many or too few
// tokens.
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

// Capacity returns the requests per second that the fleet cfg serves under round robin in a closed
// loop of clientsPerWorker requests for each worker. It ignores the fields Policy, Staged, Rate,
// Clients and Clock of cfg. The result is 0 if trace is too short to measure a rate.
func Capacity(ctx context.Context, cfg Config, trace *Trace) (float64, error) {
	cfg.Rate, cfg.Clients, cfg.Clock = 0, clientsPerWorker*cfg.Workers, nil
	cfg.Policy, cfg.Staged = router.CostRoundRobin, Staged{}
	r, err := Play(ctx, cfg, trace)
	return r.RequestsPerS, err
}
