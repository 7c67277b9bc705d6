// Package tiering decides which KV moves between tiers: which extents are written below the
// device and when, which are fetched for a request because computing them takes longer, and
// which leave a full tier. It owns an index of each tier's extents, built from its inputs, and knows alone
// which extents are on which pages of the device. It never moves a byte and uses no store and no clock.
//
// One owner calls it. Inputs are method calls; outputs are moves that Next appends. The owner
// carries out each move and answers it with one call of Moved. The same calls in the same order
// give the same moves.
//
//	b, err := tiering.New(cfg)
//	b.Computed(now, &extent, pages, nil)   // this extent is on the device
//	b.Evict(now, pages, tiering.Demoted)   // the device gives up pages
//	parts = b.Want(now, request, extents, have, parts[:0]) // a request waits: fetch if it pays
//	b.Fill(parts[0].Move, held)      // the pages for a read
//	moves = b.Next(now, moves[:0])   // begin these moves
//	b.Moved(now, move, err, took)    // one of them has ended
//	tokens, waiting := b.Arrived(request)
package tiering
