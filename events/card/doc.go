// Package card owns a worker's description of itself: its address, its models, the size of its
// cache and the addresses of its events. It never opens a connection and never judges whether a
// worker fits a fleet.
//
// A server answers GET /v1/worker with its card, and announces it if workers register over NATS.
// Routers read it there.
//
//	c, err := card.Parse(body)
//	id := c.ID() // the same in every process
package card
