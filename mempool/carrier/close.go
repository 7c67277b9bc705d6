package carrier

import (
	"errors"
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

// Close cancels all moves, waits for their end, closes the stores and frees the buffers. The ends
// of these moves are not reported. Call it before the backend's Close, from the goroutine that
// polls. A second call does nothing.
//
// Close returns at the time until, even if a call of a store never returns. Its error then names the
// tiers that were given up. Their stores release what they hold if the calls return later, and the
// buffers that they may still use are not freed.
func (x *Carrier) Close(until time.Time) error {
	if x.closed {
		return nil
	}
	x.closed = true
	for id := range x.moves { // the order of cancels does not matter
		x.cancel(id)
	}
	limit := time.NewTimer(time.Until(until))
	defer limit.Stop()
	for late := false; !late && x.unfinished(); {
		select {
		case <-x.watch.ready:
		case <-limit.C:
			limit.Reset(0) // for the stores
			late = true
		}
	}
	x.watch.end()
	var stores []mempool.Store
	for _, s := range x.stores {
		if s != nil {
			stores = append(stores, s)
		}
	}
	err := closeStores(stores, limit.C)
	if x.kept > len(x.moves)+len(x.lost) {
		err = errors.Join(err, fmt.Errorf("carrier: %d buffers are in use without a move in flight", x.kept-len(x.moves)-len(x.lost)))
	}
	x.free()
	return err
}

// unfinished polls and reports whether there are moves that have not ended, or whose stores have not.
func (x *Carrier) unfinished() bool {
	x.ended = x.Poll(x.ended[:0])[:0]
	return len(x.moves)+len(x.lost) > 0
}

// CloseStores closes stores at the same time. It returns at the time until with an error that names the
// tiers whose stores do not answer. These release what they hold if their calls return later.
func CloseStores(stores []mempool.Store, until time.Time) error {
	limit := time.NewTimer(time.Until(until))
	defer limit.Stop()
	return closeStores(stores, limit.C)
}

func closeStores(stores []mempool.Store, late <-chan time.Time) error {
	type closed struct {
		i   int
		err error
	}
	results := make(chan closed, len(stores)) // has room for those that come late
	open := map[int]kv.Tier{}
	for i, s := range stores {
		open[i] = s.Info().Tier
		go func() { results <- closed{i, s.Close()} }()
	}
	var errs []error
	for len(open) > 0 {
		select {
		case r := <-results:
			delete(open, r.i)
			errs = append(errs, r.err)
		case <-late:
			for i := range stores {
				if t, ok := open[i]; ok {
					errs = append(errs, fmt.Errorf("%w: tier %v is given up; its last writes may be lost", mempool.ErrStuck, t))
				}
			}
			return errors.Join(errs...)
		}
	}
	return errors.Join(errs...)
}

// free returns the buffers to the backend.
func (x *Carrier) free() {
	for _, b := range x.buffers {
		x.mover.HostFree(b.memory)
	}
	x.buffers = nil
}
