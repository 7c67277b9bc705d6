// Package residency owns what the workers of a fleet say that their caches hold, tier
// by tier, and answers how much of a prompt each of them has. It is the events.Sink
// over router/kvindex. It never talks to a worker, never chooses one and never reads a
// clock.
//
// What is in device memory is in one kvindex.Sharded. A rank that names a lower tier
// gets a table of its own besides, hash to tiers, of all its blocks, and a part in a
// second index, of what it has in whatever tier. A lookup goes on in the table where the
// indexes end, which is soon, as they hold all but what stands behind a hole. So fleets
// without lower tiers pay nothing for them, and what was offloaded is known exactly,
// even behind a hole in the device's part.
//
// The answer may be too low, never too high: whatever a worker sends, no lookup says
// more of it than it had told at some time of the lookup. A worker can spend its own
// room only: see [Config].
//
// Store, Remove, Clear, Replace and Forget come for one rank one at a time, as
// events.Sink says; everything else, and other ranks, at any time from any goroutine.
//
//	x, err := residency.New(residency.Config{})
//	sub, err := events.NewSubscriber(events.SubscriberConfig{BlockTokens: 16}, x)
//	err = sub.Add(kv.Rank{Worker: 1}, source, events.Follow{})
//	...
//	overlaps = x.Find(locals, overlaps[:0]) // {Holder: {1, 0}, Device: 12, Host: 30}
package residency
