// Package global owns the choice among pools of workers: a grid over a request's length and its
// latency targets gives the pool. It knows neither workers nor their load; each pool has a
// router for that.
//
// Everything is plain values and pure functions, for any goroutine. The configuration's format
// and the formulas are those of Dynamo's global router, components/src/dynamo/global_router, of
// 2026-02, with the additions up to 2026-08.
//
//	cfg, warnings, err := global.Parse(text)
//	pool, err := cfg.AggregatedPool(global.Query{Tokens: 8000, TTFT: new(200.0)})
//	name := cfg.Aggregated.Names[pool]
package global
