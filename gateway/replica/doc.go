// Package replica owns the exchange between several routers in front of the same workers: their
// reservations, so that simultaneous requests do not all go to the same idle worker, and with
// them the workers of sessions and the prompts that workers will cache. It chooses no worker and
// knows no HTTP.
//
// A router publishes its events over NATS, numbered and in order. A router that misses some asks
// for a snapshot. One goroutine sends and receives, and encodes without the dispatcher's mutex.
//
//	cfg := gateway.Config{Replicas: replica.Config{NATS: nats.Config{URL: "nats://127.0.0.1:4222"}}.Join}
package replica
