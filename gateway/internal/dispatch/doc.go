// Package dispatch owns the choice of a worker for each request of a fleet: the router, the
// index of the workers' caches, the guesses for workers without events, and the pools of which
// one is chosen first. It sends no request, probes no worker and reads no HTTP.
//
// A [Dispatcher] guards the router with one mutex and never blocks while holding it. All its
// methods may be called from any goroutine.
//
//	d, err := dispatch.New(dispatch.Config{Router: cfg})
//	err = d.Join(kv.Rank{Worker: 1}, &card.Card{PoolTokens: 65536}, true)
//	d.SetHealth(kv.Rank{Worker: 1}, router.Healthy)
//	var a dispatch.Ask
//	a.Request.PromptTokens = 600
//	decision, err := d.Choose(ctx, &a, time.Second) // reserved
//	d.Progress(decision.Reservation, 600, 1)
//	d.Release(decision.Reservation)
package dispatch
