package mempool

import (
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/kv"
)

// ErrDivided is returned by Join when a [Division] has all its owners.
var ErrDivided = errors.New("mempool: all shares of the pool are taken")

// Division divides a pool among a fixed number of schedulers. Each is entitled to its
// share: the pool's pages divided by their number. Beyond its share an owner may have
// pages that no other owner needs. When an owner below its share finds no free page,
// owners above theirs are told to return pages, which are kept for it. It belongs to
// the owner of the pool.
//
// Example: 100 pages for 2 owners, shares of 50. A may take 80 while B has 20. When B
// asks for 10 more, it gets none; A is told to return 10, and these go to B.
//
// Invariant: an owner that was refused below its share gets returned pages before any
// owner beyond its share does. A refused owner is notified when pages are free.
type Division struct {
	pool    *Pool
	members []member // by Owner
	of      []Owner  // the owner of each page, by page id
	news    []Notice // not yet fetched by Notices
}

// member is an owner's account.
type member struct {
	joined  bool
	held    int
	owed    int  // pages that it was told to return and has not
	need    int  // pages that it was refused, within its share
	refused bool // it was told that none are free, and waits for an Offer
	offered bool // it was told of free pages, and has not answered
}

// Notice asks an owner to return pages, or offers free ones. The owner must answer an
// offer, by Ask or Decline.
type Notice struct {
	Owner  Owner
	Recall int // pages to return as soon as nothing uses them
	Offer  int // pages that it would get now
}

// Divide divides a pool without granted pages among a number of owners.
func Divide(pool *Pool, owners int) (*Division, error) {
	if owners < 1 || owners > pool.Capacity() {
		return nil, fmt.Errorf("mempool: %d pages among %d schedulers, want 1 to %d", pool.Capacity(), owners, pool.Capacity())
	}
	return &Division{pool: pool, members: make([]member, owners), of: make([]Owner, pool.Capacity())}, nil
}

// SharePages returns the number of pages that each owner is entitled to.
func (d *Division) SharePages() int { return d.pool.Capacity() / len(d.members) }

// Join adds an owner, or fails with ErrDivided.
func (d *Division) Join() (Owner, error) {
	for i := range d.members {
		if m := &d.members[i]; !m.joined {
			*m = member{joined: true}
			return Owner(i), nil
		}
	}
	return 0, fmt.Errorf("%w: %d", ErrDivided, len(d.members))
}

// Leave takes back all pages of an owner and returns their number. It costs O(pages of
// the pool).
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

// available returns the number of pages that an owner may get now: within its share all
// free ones, beyond it the free ones that are kept for no other owner.
func (d *Division) available(o Owner) int {
	free, kept := d.pool.FreePages(), 0
	for i := range d.members {
		if Owner(i) != o {
			kept += d.members[i].need
		}
	}
	// Free pages within the share are never refused, whatever is kept for others: the share
	// is a right; kept pages come from owners beyond their share.
	within := min(free, max(0, d.SharePages()-d.members[o].held))
	return max(within, free-kept)
}

// Ask appends up to n pages to dst and returns how many more the owner could get. If
// that is 0, a Notice follows when there are some.
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

// Decline answers an offer: the owner needs nothing now, and will ask when it does.
func (d *Division) Decline(o Owner) {
	m := &d.members[o]
	m.offered, m.refused, m.need = false, false, 0
	d.settle()
}

// Give takes pages back. A page of another owner is a broken invariant, and panics.
func (d *Division) Give(o Owner, pages []kv.PageID) {
	for _, id := range pages {
		if id < 0 || int(id) >= len(d.of) || d.of[id] != o {
			panic(fmt.Sprintf("mempool: page %d is returned by %d, which does not own it", id, o))
		}
	}
	d.pool.Return(pages)
	m := &d.members[o]
	m.held -= len(pages)
	m.owed = max(0, m.owed-len(pages))
	d.settle()
}

// settle recalls pages from owners above their share for owners that were refused below
// theirs, the largest excess first. Then it offers free pages to refused owners.
func (d *Division) settle() {
	short := -d.pool.FreePages()
	for i := range d.members {
		short += d.members[i].need - d.members[i].owed
	}
	for short > 0 {
		most, excess := 0, 0 // the owner with most beyond its share
		for i := range d.members {
			m := &d.members[i]
			if e := m.held - m.owed - d.SharePages(); e > excess {
				most, excess = i, e
			}
		}
		if excess == 0 {
			break // the shares are less than the pool, or others are refused within theirs
		}
		n := min(short, excess)
		d.members[most].owed += n
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

// Notices appends the notices since the last call.
func (d *Division) Notices(dst []Notice) []Notice {
	dst = append(dst, d.news...)
	d.news = d.news[:0]
	return dst
}

// Check walks the ledger: each granted page has one owner, and the counts agree.
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
