// Package residency owns the index of what workers' caches hold by their events, tier by tier,
// and answers how many leading blocks of a prompt each rank has. It is the events.Sink on top of
// router/kvindex. It never talks to a worker, never chooses one and never reads a clock.
//
// Blocks in device memory are in one kvindex.Sharded. A rank that has named a lower tier also
// has a table of all its blocks, from hash to tiers, and a part in a second index of its blocks
// in any tier. A lookup continues in the table where the indexes end, which takes few steps,
// since they hold all blocks except those after a hole. So fleets without lower tiers pay
// nothing for them, and offloaded blocks are known exactly, even after a hole in the device's
// part.
//
// An answer may be too low, never too high: a lookup never returns more of a rank than the rank
// had announced at some time during the lookup. A worker can only use up its own room: see
// [Config].
//
// Store, Remove, Clear, Replace and Forget must be called one at a time per rank, as for any
// events.Sink. All other calls, and calls for other ranks, may come at any time from any
// goroutine.
//
//	x, err := residency.New(residency.Config{})
//	sub, err := events.NewSubscriber(events.SubscriberConfig{BlockTokens: 16}, x)
//	err = sub.Add(kv.Rank{Worker: 1}, source, events.Follow{})
//	...
//	overlaps = x.Find(hashes, overlaps[:0]) // {Worker: {1, 0}, Device: 12, Host: 30}
package residency
