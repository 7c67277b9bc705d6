package mempool

import (
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/kv"
)

// ErrDivided is returned by Join when a [Division] has all its owners.
var ErrDivided = errors.New("mempool: all shares of the pool are taken")

// Owner numbers a scheduler on a shared pool.
type Owner uint64

// Division divides a pool among a fixed number of schedulers, its owners. Each owner is
// entitled to its share: the pool's pages divided by the number of owners. Beyond its
// share an owner may have pages that no other owner needs. When an owner with less than
// its share finds no free page, notices tell owners with more than their share to
// return pages, and Division keeps these for the first owner. The goroutine that owns
// the pool also owns the Division.
//
// Example: 100 pages for 2 owners, shares of 50. A may take 80 while B has 20. When B
// asks for 10 more, it gets none; a notice tells A to return 10, and these go to B.
//
// Invariant: an owner that got too few pages within its share gets returned pages before
// any owner beyond its share does. It gets a notice when pages are free.
type Division struct {
	pool    *Pool
	members []member // by Owner
	of      []Owner  // by page id: the owner of a granted page
	news    []Notice // for the next call of Notices
}

// member is an owner's account.
type member struct {
	joined   bool
	held     int  // pages granted to the owner
	recalled int  // pages that notices told the owner to return and that it has not returned
	need     int  // pages within its share that the owner asked for and did not get
	refused  bool // Ask returned that no page is free: the owner waits for an Offer
	offered  bool // a notice offered pages, and the owner has not answered
}

// Notice tells an owner to return pages, or offers it free pages. The owner must answer
// an offer by Ask or Decline.
type Notice struct {
	Owner  Owner
	Recall int // number of pages to return by Give as soon as nothing uses them
	Offer  int // number of pages that Ask would give now
}

// Divide divides a pool without granted pages among a number of owners. It fails if there
// is less than 1 owner, or less than one page for each.
func Divide(pool *Pool, owners int) (*Division, error) {
	if owners < 1 || owners > pool.Capacity() {
		return nil, fmt.Errorf("mempool: %d pages among %d schedulers, want 1 to %d", pool.Capacity(), owners, pool.Capacity())
	}
	return &Division{pool: pool, members: make([]member, owners), of: make([]Owner, pool.Capacity())}, nil
}

// SharePages returns the number of pages that each owner is entitled to.
func (d *Division) SharePages() int { return d.pool.Capacity() / len(d.members) }

// Join returns a new owner without pages. It fails with ErrDivided if there are as many
// as Divide was told.
func (d *Division) Join() (Owner, error) {
	for i := range d.members {
		if m := &d.members[i]; !m.joined {
			*m = member{joined: true}
			return Owner(i), nil
		}
	}
	return 0, fmt.Errorf("%w: %d", ErrDivided, len(d.members))
}

// Leave takes back all pages of owner o, removes the owner, and returns the number of the
// pages. It costs O(pages of the pool).
func (d *Division) Leave(o Owner) (pages int) {
	m := &d.members[o]
	pages = m.held
	for id := range d.of {
		if d.pool.leased[id] && d.of[id] == o {
			d.pool.Return([]kv.PageID{kv.PageID(id)})
		}
	}
	*m = member{}
	d.settle()
	return pages
}

// Held returns the number of an owner's pages.
func (d *Division) Held(o Owner) int { return d.members[o].held }

// Owns reports whether a page is granted to an owner.
func (d *Division) Owns(o Owner, id kv.PageID) bool { return d.pool.leased[id] && d.of[id] == o }

// available returns the number of pages that owner o may get now. Within its share it may
// get all free pages, beyond its share only free pages that are kept for no other owner.
func (d *Division) available(o Owner) int {
	free, kept := d.pool.FreePages(), 0
	for i := range d.members {
		if Owner(i) != o {
			kept += d.members[i].need
		}
	}
	// An owner gets free pages within its share even if they are kept for others: those get
	// the pages that owners beyond their share return.
	within := min(free, max(0, d.SharePages()-d.members[o].held))
	return max(within, free-kept)
}

// Ask grants owner o up to n pages. It returns dst with these pages appended, and the
// number of further pages that the owner could get now. If that number is 0, a Notice
// offers pages when some are free.
func (d *Division) Ask(o Owner, n int, dst []kv.PageID) (pages []kv.PageID, free int) {
	m := &d.members[o]
	m.offered, m.refused, m.need = false, false, 0
	pages, err := d.pool.Grant(min(n, d.available(o)), dst)
	if err != nil {
		panic(err.Error())
	}
	for _, id := range pages[len(dst):] {
		d.of[id] = o
	}
	m.held += len(pages) - len(dst)
	if free = d.available(o); free == 0 {
		m.refused = true
		m.need = min(max(1, n), max(0, d.SharePages()-m.held))
	}
	d.settle()
	return pages, free
}

// Decline answers an offer: owner o needs no pages now.
func (d *Division) Decline(o Owner) {
	m := &d.members[o]
	m.offered, m.refused, m.need = false, false, 0
	d.settle()
}

// Give takes pages back from owner o. It panics if a page is not granted to o.
func (d *Division) Give(o Owner, pages []kv.PageID) {
	for _, id := range pages {
		if id < 0 || int(id) >= len(d.of) || d.of[id] != o {
			panic(fmt.Sprintf("mempool: page %d is returned by %d, which does not own it", id, o))
		}
	}
	d.pool.Return(pages)
	m := &d.members[o]
	m.held -= len(pages)
	m.recalled = max(0, m.recalled-len(pages))
	d.settle()
}

// settle recalls pages from owners with more than their share, the largest excess first,
// for owners that got too few within their share. Then it offers free pages to owners that
// wait for an Offer.
func (d *Division) settle() {
	short := -d.pool.FreePages()
	for i := range d.members {
		short += d.members[i].need - d.members[i].recalled
	}
	for short > 0 {
		most, excess := 0, 0 // the owner with most beyond its share
		for i := range d.members {
			m := &d.members[i]
			if e := m.held - m.recalled - d.SharePages(); e > excess {
				most, excess = i, e
			}
		}
		if excess == 0 {
			break // no owner has more than its share, beyond the pages already recalled
		}
		n := min(short, excess)
		d.members[most].recalled += n
		d.news = append(d.news, Notice{Owner: Owner(most), Recall: n})
		short -= n
	}
	for i := range d.members {
		m := &d.members[i]
		if n := d.available(Owner(i)); m.refused && !m.offered && n > 0 {
			m.offered = true
			d.news = append(d.news, Notice{Owner: Owner(i), Offer: n})
		}
	}
}

// Notices returns dst with the notices since the last call appended.
func (d *Division) Notices(dst []Notice) []Notice {
	dst = append(dst, d.news...)
	d.news = d.news[:0]
	return dst
}

// Check reads the owners of all pages and returns an error if they disagree with the
// owners' counts, or if the pool's Check fails.
func (d *Division) Check() error {
	held := make([]int, len(d.members))
	for id, o := range d.of {
		if d.pool.leased[id] {
			held[o]++
		}
	}
	for i := range d.members {
		if m := &d.members[i]; held[i] != m.held || m.held > 0 && !m.joined || m.need > 0 && m.held+m.need > d.SharePages() {
			return fmt.Errorf("mempool: owner %d has %d pages: %+v", i, held[i], *m)
		}
	}
	return d.pool.Check()
}
