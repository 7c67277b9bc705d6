// Package global owns the choice among pools of workers: a grid of what a request
// is (its length) and what it wants (its targets for latency) names the pool. It
// never knows workers or their load; each pool has a router of its own for that.
//
// All is plain values and pure functions, for any goroutine. The form of the
// configuration and the formulas are those of Dynamo's global router,
// components/src/dynamo/global_router, of 2026-02, with what was added to 2026-08.
//
//	cfg, warnings, err := global.Parse(text)
//	pool, err := cfg.AggregatedPool(global.Query{Tokens: 8000, TTFT: global.Target(200)})
//	name := cfg.Aggregated.Names[pool]
package global
