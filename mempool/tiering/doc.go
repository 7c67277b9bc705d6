// Package tiering decides what KV moves between tiers: what is written below the device
// and when, what is fetched for a request and what is cheaper to compute, what leaves a
// tier that is full. It owns an index of what each tier holds, as far as it was told; it
// never moves a byte and knows neither stores nor clocks.
//
// One owner calls it. Inputs are method calls, outputs are moves that Next appends; each
// move is answered by Moved, once. The same calls in the same order give the same moves.
//
//	p, err := tiering.New(cfg)
//	p.Computed(now, extents, nil)    // they are on the device
//	p.Demote(now, key)               // the device gives one up
//	parts = p.Want(now, request, extents, have, parts[:0]) // a request waits: fetch what pays
//	moves = p.Next(now, moves[:0])   // begin these
//	p.Moved(now, move, err, took)    // one has ended
//	tokens, waiting := p.Arrived(request)
package tiering
