// Package events owns the event plane of a fleet: how what a worker's cache
// holds gets to those who route by it, and how they notice and mend what was lost
// on the way. It never decides where a request goes and keeps no index of its
// own: a [Subscriber] feeds a [Sink].
//
// A [Publisher] numbers batches without gaps, keeps the last ones for replay and
// what the cache holds for snapshots. It never waits for a reader and never makes
// its caller wait: if it can't keep up, it says so on the wire by clearing all
// and building up anew. A Subscriber has one [Cursor] per (worker, rank); after a
// gap it asks for a replay, else for a snapshot, which replaces the rank at once
// and says from which number to go on; if neither is to be had, it clears the
// rank. So at any time the sink holds what the publisher had held after the batch
// before the cursor, or less, and never more.
//
// Transports are in events/zmq (vLLM's sockets) and events/nats (JetStream); the
// bytes are in events/wire. Every goroutine ends before the Close of its owner
// returns. Publish may be called by one goroutine at a time; all else is safe for
// concurrent use.
//
//	pub, err := events.NewPublisher(events.PublisherConfig{BlockTokens: 16}, zmq.NewSender(zmq.SenderConfig{
//		Endpoint: "tcp://*:5557", ReplayEndpoint: "tcp://*:5558", Topic: "kv@worker-1@model"}))
//	...
//	pub.Publish(sched.TakeEvents(nil)) // once per step
//
//	sub, err := events.NewSubscriber(events.SubscriberConfig{BlockTokens: 16}, index)
//	...
//	err = sub.Add(kv.Rank{Worker: 1}, zmq.NewSource(zmq.SourceConfig{
//		Endpoint: "tcp://worker-1:5557", ReplayEndpoint: "tcp://worker-1:5558"}), events.Follow{})
package events
