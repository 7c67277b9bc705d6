package mempool

import (
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/kv"
)

// Owner names an owner of reserved pages: a request, or one of several schedulers on a
// pool.
type Owner uint64

// Errors of [Reservations].
var (
	ErrReserved    = errors.New("mempool: owner has a reservation")
	ErrNotReserved = errors.New("mempool: owner has no reservation")
)

// Reservations grants pages of a pool to named owners, for callers without a [Lease]: code
// that drives an engine without a scheduler, or several schedulers on one pool. An owner can
// get more pages, but can return only all of them. The goroutine that owns the pool also
// owns the Reservations.
type Reservations struct {
	pool  *Pool
	pages map[Owner][]kv.PageID
	count int // pages of all reservations
}

// NewReservations returns an empty set of reservations on a pool, which may have other
// users.
func NewReservations(pool *Pool) *Reservations {
	return &Reservations{pool: pool, pages: map[Owner][]kv.PageID{}}
}

// Reserve grants n pages to owner o and returns them. It grants none if it fails: with
// ErrExhausted if fewer than n pages are free, with ErrReserved if the owner has pages
// already. The pages belong to the owner until Release; the slice is valid until Extend.
func (r *Reservations) Reserve(o Owner, n int) ([]kv.PageID, error) {
	if _, ok := r.pages[o]; ok {
		return nil, fmt.Errorf("%w: %d", ErrReserved, o)
	}
	pages, err := r.pool.Grant(n, nil)
	if err != nil {
		return nil, err
	}
	r.pages[o] = pages
	r.count += n
	return pages, nil
}

// Extend grants owner o n more pages and returns all of its pages. It grants none if it
// fails: with ErrExhausted if fewer than n pages are free, with ErrNotReserved if the owner
// has no reservation.
func (r *Reservations) Extend(o Owner, n int) ([]kv.PageID, error) {
	pages, ok := r.pages[o]
	if !ok {
		return nil, fmt.Errorf("%w: %d", ErrNotReserved, o)
	}
	pages, err := r.pool.Grant(n, pages)
	if err != nil {
		return pages, err
	}
	r.pages[o] = pages
	r.count += n
	return pages, nil
}

// Release returns all pages of an owner, or ErrNotReserved if it has none.
func (r *Reservations) Release(o Owner) error {
	pages, ok := r.pages[o]
	if !ok {
		return fmt.Errorf("%w: %d", ErrNotReserved, o)
	}
	delete(r.pages, o)
	r.count -= len(pages)
	r.pool.Return(pages)
	return nil
}

// Pages returns the number of reserved pages.
func (r *Reservations) Pages() int { return r.count }

// Owners returns the number of reservations.
func (r *Reservations) Owners() int { return len(r.pages) }

// PoolMetrics are the pages of a pool at one moment.
type PoolMetrics struct {
	AvailablePages int
	InflightPages  int // granted and not returned
	TotalPages     int
}

// Metrics returns the pool's present counts.
func (p *Pool) Metrics() PoolMetrics {
	return PoolMetrics{AvailablePages: p.FreePages(), InflightPages: p.LeasedPages(), TotalPages: p.Capacity()}
}

// Utilization returns the granted part of the pages, in [0, 1].
func (m PoolMetrics) Utilization() float64 {
	return ratio(int64(m.InflightPages), int64(m.TotalPages))
}

func (m PoolMetrics) String() string {
	return fmt.Sprintf("available %d  inflight %d  total %d  utilization %.3f", m.AvailablePages, m.InflightPages, m.TotalPages, m.Utilization())
}
