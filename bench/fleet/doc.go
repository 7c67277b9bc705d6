// Package fleet owns simulated fleets: a router in front of workers on one virtual
// clock, to compare routing policies; and a simulation of another project's worker, the
// mocker of NVIDIA Dynamo (mock*.go). It never chooses a worker, which the router does, and
// schedules requests only as the mocker. It needs no device and no network.
//
// The production code runs: package router, its block index, and as workers the
// scheduler with its radix cache, unless the mocker takes their place. Simulated are the
// times of steps (engine/sim) and the requests: conversations, long shared prefixes,
// nothing shared, or a recorded trace. Every policy gets the same requests at the same
// times, and every run checks that each request is answered once, with exactly its
// tokens.
//
// One goroutine does everything; the same configuration gives the same result.
//
//	trace, err := fleet.Generate("chat", 4000, 8, 7)
//	cfg := fleet.Config{Workers: 8, Policy: router.CostLatency}
//	perSecond, err := fleet.Capacity(ctx, cfg, trace)
//	cfg.Rate = 0.65 * perSecond
//	result, err := fleet.Play(ctx, cfg, trace)
//
//	table, err := fleet.Compare(ctx, fleet.CompareConfig{Workers: []int{8, 64}}, nil)
//	err = bench.WriteTable(os.Stdout, table)
package fleet
