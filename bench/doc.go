// Package bench owns seeded workloads and traces, plays them, and reports what
// came of it beside the ideal. It measures from outside, as a caller; it never
// reaches into what it measures.
//
// A [Chat] is played against a node, with the cache on and off:
//
//	load, err := bench.NewChat(bench.ChatConfig{Seed: 1})
//	on, err := load.Play(ctx, nodeWithCache, nil)
//	off, err := load.Play(ctx, nodeWithoutCache, nil)
//	same, why := bench.Identical(on, off)
//
// A [Trace] of prefixes is played on a radix cache alone, beside plain memory
// comparisons of the same tokens:
//
//	trace, err := bench.OpenTrace("chat.pfxt")
//	summary, err := bench.PlayRadix(ctx, trace, bench.RadixConfig{PageTokens: 16}, nil)
//
// The scheduler alone is timed with a backend that answers at once (PlaySched),
// and put under load with a simulated device in virtual time, where a server's hour
// takes a second:
//
//	result, err := bench.Serve(bench.ServingConfig{Load: bench.ServeChat, Rate: 15})
//	table, err := bench.CompareServing(ctx, bench.CompareServingConfig{}, nil)
package bench
