// Package events owns the event plane of a fleet: the transport of a cache's events
// from a worker to routers, and the detection and repair of losses on the way. It never
// decides where a request goes and keeps no index of its own: a [Subscriber] feeds a
// [Sink].
//
// A log (package eventlog) numbers the events of one cache in batches without gaps, and keeps
// the last ones. A snapshot is read from the cache itself. A [Publisher] sends the log's batches
// and never waits for a reader; readers notice lost batches by the numbers.
//
// A Subscriber has one [Cursor] per (worker, rank). After a gap it asks for a replay. If
// that fails it asks for a snapshot, which replaces the rank at once and carries the
// number to continue from. If both fail it clears the rank. So at any time the sink holds
// what the publisher held after the batch before the cursor, or less, and never more.
//
// Transports are in events/zmq (vLLM's sockets) and events/nats; the
// bytes are in events/wire. Every goroutine ends before the Close of its owner
// returns.
//
//	pub, err := events.NewPublisher(events.PublisherConfig{}, node.EventLog(), zmq.NewSender(zmq.SenderConfig{
//		Endpoint: "tcp://*:5557", ReplayEndpoint: "tcp://*:5558", Topic: "kv@worker-1@model"}))
//	...
//	err = pub.Close()
//
//	sub, err := events.NewSubscriber(events.SubscriberConfig{BlockTokens: 16}, index)
//	...
//	err = sub.Add(kv.Rank{Worker: 1}, zmq.NewSource(zmq.SourceConfig{
//		Endpoint: "tcp://worker-1:5557", ReplayEndpoint: "tcp://worker-1:5558"}), events.Follow{})
package events
