package mempool

import (
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/kv"
)

// ErrDivided is returned by Join when a [Division] has as many owners as it is for.
var ErrDivided = errors.New("mempool: the pool is divided among as many schedulers already")

// Division divides a pool among a fixed number of schedulers. Each may have its share,
// the pool's pages over their number; pages that no other owner needs it may have beyond.
// When an owner below its share finds none free, those above theirs are told to give
// pages back, and what comes is kept for it. It belongs to the owner of the pool.
//
// Invariant: an owner that was refused below its share gets what comes back before any
// owner beyond its share does. An owner that was refused hears of it when pages are free.
type Division struct {
	pool    *Pool
	members []member // by Owner
	of      []Owner  // the owner of each page, by page id
	news    []Notice
}

// member is an owner's account.
type member struct {
	joined  bool
	held    int
	owed    int  // pages that it was told to give back and has not
	need    int  // pages that it was refused, within its share
	refused bool // it heard that none are free, and waits for an Offer
	offered bool // it was told of free pages, and has not answered
}

// Notice is news for an owner: pages to give back, or that pages are free for it. An
// offer is to be answered, by Ask or Decline.
type Notice struct {
	Owner  Owner
	Recall int // pages to give back as soon as nothing uses them
	Offer  int // pages that it would get now
}

// Divide divides a pool, of which nothing is granted yet, among a number of owners.
func Divide(pool *Pool, owners int) (*Division, error) {
	if owners < 1 || owners > pool.Capacity() {
		return nil, fmt.Errorf("mempool: %d pages among %d schedulers, want 1 to %d", pool.Capacity(), owners, pool.Capacity())
	}
	return &Division{pool: pool, members: make([]member, owners), of: make([]Owner, pool.Capacity())}, nil
}

// SharePages is what each owner can count on.
func (d *Division) SharePages() int { return d.pool.Capacity() / len(d.members) }

// Join makes an owner, or fails with ErrDivided.
func (d *Division) Join() (Owner, error) {
	for i := range d.members {
		if m := &d.members[i]; !m.joined {
			*m = member{joined: true}
			return Owner(i), nil
		}
	}
	return 0, fmt.Errorf("%w: %d", ErrDivided, len(d.members))
}

// Leave takes back all that an owner has and returns how many pages that were.
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

// Held is how many pages an owner has.
func (d *Division) Held(o Owner) int { return d.members[o].held }

// Owns reports whether a page is granted to an owner.
func (d *Division) Owns(o Owner, id kv.PageID) bool { return d.pool.leased[id] && d.of[id] == o }

// available is what an owner may get now: up to its share all that is free, beyond it what
// is kept for nobody.
func (d *Division) available(o Owner) int {
	free, kept := d.pool.FreePages(), 0
	for i := range d.members {
		if Owner(i) != o {
			kept += d.members[i].need
		}
	}
	within := min(free, max(0, d.SharePages()-d.members[o].held))
	return max(within, free-kept)
}

// Ask appends up to n pages to dst, and says how many more the owner would get. With
// none, it hears of it by a Notice when there are some.
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

// Give takes pages back. One that is not the owner's is a broken invariant.
func (d *Division) Give(o Owner, pages []kv.PageID) {
	for _, id := range pages {
		if id < 0 || int(id) >= len(d.of) || d.of[id] != o {
			panic(fmt.Sprintf("mempool: page %d is given back by %d, whose it is not", id, o))
		}
	}
	d.pool.Return(pages)
	m := &d.members[o]
	m.held -= len(pages)
	m.owed = max(0, m.owed-len(pages))
	d.settle()
}

// settle tells owners above their share what to give back for those who were refused below
// theirs, and those who were refused of what is free.
func (d *Division) settle() {
	short := -d.pool.FreePages()
	for i := range d.members {
		short += d.members[i].need - d.members[i].owed
	}
	for short > 0 {
		most, excess := 0, 0 // of who has most beyond its share
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

// Notices appends the news since the last call.
func (d *Division) Notices(dst []Notice) []Notice {
	dst = append(dst, d.news...)
	d.news = d.news[:0]
	return dst
}

// Check walks the ledger: each granted page is one owner's, and the counts say so.
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
