// Package card owns what a worker of a fleet says of itself: where it is reached, which
// models it serves, how large its cache is and where its events are to be had. It never
// opens a connection and never judges whether a worker fits a fleet.
//
// A server answers GET /v1/worker with its card, and announces it where workers register
// by a message system; routers read it there.
//
//	c, err := card.Parse(body)
//	id := c.ID() // the same in every process
package card
