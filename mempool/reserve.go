package mempool

import (
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/kv"
)

// Owner names who reserves pages: a request, or a scheduler of several on one pool.
type Owner uint64

// Errors of [Reservations].
var (
	ErrReserved    = errors.New("mempool: owner has a reservation")
	ErrNotReserved = errors.New("mempool: owner has no reservation")
)

// Reservations give pages of a pool to owners by name, for callers without a [Lease]: an
// engine driven by hand, or several schedulers on one pool. A reservation grows and ends
// as a whole. It belongs to the owner of the pool.
type Reservations struct {
	pool  *Pool
	pages map[Owner][]kv.PageID
	count int
}

// NewReservations reserves from pool, beside other users of it.
func NewReservations(pool *Pool) *Reservations {
	return &Reservations{pool: pool, pages: map[Owner][]kv.PageID{}}
}

// Reserve gives n pages to an owner that has none. All or nothing: ErrExhausted with
// fewer free, ErrReserved for a second reservation. The pages are the owner's to read
// until Release; the slice is valid until Extend.
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

// Extend gives an owner n pages more, and returns all. All or nothing, as Reserve.
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

// Release gives all pages of an owner back, and fails with ErrNotReserved without any.
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

// Pages is the number of pages reserved, and Owners of those that have a reservation.
func (r *Reservations) Pages() int { return r.count }

// Owners is the number of reservations.
func (r *Reservations) Owners() int { return len(r.pages) }

// PoolMetrics is what a pool has, at one moment.
type PoolMetrics struct {
	AvailablePages int
	InflightPages  int // granted and not returned
	TotalPages     int
}

// Metrics counts the pages of the pool.
func (p *Pool) Metrics() PoolMetrics {
	return PoolMetrics{AvailablePages: p.FreePages(), InflightPages: p.LeasedPages(), TotalPages: p.Capacity()}
}

// Utilization is the part of the pages that is granted, in [0, 1].
func (m PoolMetrics) Utilization() float64 {
	return ratio(int64(m.InflightPages), int64(m.TotalPages))
}

func (m PoolMetrics) String() string {
	return fmt.Sprintf("available %d  inflight %d  total %d  utilization %.3f", m.AvailablePages, m.InflightPages, m.TotalPages, m.Utilization())
}
