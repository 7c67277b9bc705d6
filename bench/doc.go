// Package bench owns seeded workloads, plays them against a node and reports what
// the callers saw beside what an ideal cache would have given. It measures from
// outside, as a caller; it never reaches into the scheduler.
//
//	load, err := bench.NewChat(bench.ChatConfig{Seed: 1})
//	on, err := load.Play(ctx, nodeWithCache, nil)
//	off, err := load.Play(ctx, nodeWithoutCache, nil)
//	same, why := bench.Identical(on, off)
package bench
