// Package bench owns seeded workloads and traces, plays them, and reports the
// results next to an ideal: an infinite cache, clairvoyant eviction, memcmp. It
// measures from outside, through the public methods of the parts; it never reads or
// changes their internal state.
//
// A [Chat] is played against a node, with the cache on and off:
//
//	load, err := bench.NewChat(bench.ChatConfig{Seed: 1})
//	on, err := load.Play(ctx, nodeWithCache, nil)
//	off, err := load.Play(ctx, nodeWithoutCache, nil)
//	same, why := bench.Identical(on, off)
//
// A [Trace] of token sequences is played on a radix cache alone, and the time of
// Match is compared with that of memcmp on the same tokens:
//
//	trace, err := bench.OpenTrace("chat.pfxt")
//	summary, err := bench.PlayRadix(ctx, trace, bench.RadixConfig{PageTokens: 16}, nil)
//
// [PlaySched] times the scheduler alone, with a backend that answers at once.
// [CompareServing] puts it under load with a simulated device in virtual time, in which
// an hour of serving takes about a second:
//
//	table, err := bench.CompareServing(ctx, bench.CompareServingConfig{}, nil)
package bench
