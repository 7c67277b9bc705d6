// Package fleet owns simulated fleets: a router in front of workers on one virtual
// clock, to compare policies of routing. It never decides where a request goes, which
// is the router's, nor what a worker does with it, and needs no device and no network.
//
// What runs is what production runs: package router, its index of blocks, and as
// workers the scheduler with its radix cache, or the mocker of NVIDIA Dynamo. Made up
// are the time that a step takes (engine/sim) and what is asked: conversations,
// long shared prefixes, nothing shared, or a recorded trace. All requests are the same
// under every policy, at the same times, and every run checks that each is answered
// once, with exactly its tokens.
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
