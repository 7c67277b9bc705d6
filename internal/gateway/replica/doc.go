// Package replica owns what several routers in front of the same workers tell each other: what
// they have reserved, so that requests that come at the same time do not find the same worker
// idle, and with it where sessions are and what workers will hold of prompts. It chooses no
// worker and knows no HTTP.
//
// A router tells its events in order, numbered, over NATS. Whoever misses some asks for a
// snapshot. One goroutine sends and receives; it encodes without the dispatcher's mutex.
//
//	cfg := gateway.Config{Replicas: replica.Config{NATS: nats.Config{URL: "nats://127.0.0.1:4222"}}.Join}
package replica
