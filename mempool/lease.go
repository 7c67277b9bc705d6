package mempool

import (
	"fmt"

	"github.com/coppice-llm/coppice/internal/invariants"
	"github.com/coppice-llm/coppice/kv"
)

// pageState is the owner of a page, as far as a lease knows.
type pageState uint8

const (
	absent pageState = iota // not granted to this lease
	idle                    // granted, without owner
	held                    // a running request's
	cached                  // the radix tree's
)

var stateNames = [...]string{"absent", "idle", "held", "cached"}

// Lease is the ledger of the pages that a pool granted to a scheduler. Every page is idle,
// held by a request or cached by the radix tree. Each method expects the pages that it is
// given in one of these states and panics otherwise: a page with two owners would be
// overwritten while it is read, without any other sign.
type Lease struct {
	state  []pageState // by page id
	idle   []kv.PageID // stack
	counts [4]int      // by pageState
}

// NewLease returns an empty lease on a pool of capacity pages.
func NewLease(capacity int) *Lease {
	l := &Lease{state: make([]pageState, capacity)}
	l.counts[absent] = capacity
	return l
}

// Capacity returns the number of pages of the lease's pool.
func (l *Lease) Capacity() int { return len(l.state) }

// GrantedPages returns the number of idle, held and cached pages.
func (l *Lease) GrantedPages() int { return len(l.state) - l.counts[absent] }

// IdlePages returns the number of pages without owner.
func (l *Lease) IdlePages() int { return l.counts[idle] }

// HeldPages returns the number of pages of running requests.
func (l *Lease) HeldPages() int { return l.counts[held] }

// CachedPages returns the number of pages of the radix tree.
func (l *Lease) CachedPages() int { return l.counts[cached] }

// Add takes pages that the pool granted. They become idle. It panics if the lease has one of
// them already.
func (l *Lease) Add(pages []kv.PageID) {
	for _, id := range pages {
		l.move(id, absent, idle)
	}
	l.verify()
}

// GiveBack removes n idle pages from the lease, or all idle pages if there are fewer. It
// returns dst with them appended; the caller returns them to the pool.
func (l *Lease) GiveBack(n int, dst []kv.PageID) []kv.PageID {
	for ; n > 0 && len(l.idle) > 0; n-- {
		id := l.pop()
		l.move(id, idle, absent)
		dst = append(dst, id)
	}
	l.verify()
	return dst
}

// Hold makes n idle pages held by a request and returns dst with them appended, and true. If
// fewer are idle it takes none, and returns dst and false.
func (l *Lease) Hold(n int, dst []kv.PageID) (_ []kv.PageID, ok bool) {
	if n > len(l.idle) {
		return dst, false
	}
	for range n {
		id := l.pop()
		l.move(id, idle, held)
		dst = append(dst, id)
	}
	l.verify()
	return dst, true
}

// Publish makes held pages cached: the tree owns them now.
func (l *Lease) Publish(pages []kv.PageID) {
	for _, id := range pages {
		l.move(id, held, cached)
	}
	l.verify()
}

// Drop makes held pages idle. It panics for a page that is not held, such as a cached one.
func (l *Lease) Drop(pages []kv.PageID) {
	for _, id := range pages {
		l.move(id, held, idle)
	}
	l.verify()
}

// Evicted makes cached pages idle, after the tree has removed them.
func (l *Lease) Evicted(pages []kv.PageID) {
	for _, id := range pages {
		l.move(id, cached, idle)
	}
	l.verify()
}

// Held reports whether a request owns the page.
func (l *Lease) Held(id kv.PageID) bool { return l.state[id] == held }

// Cached reports whether the tree owns the page.
func (l *Lease) Cached(id kv.PageID) bool { return l.state[id] == cached }

// pop removes the top of the idle stack.
func (l *Lease) pop() kv.PageID {
	id := l.idle[len(l.idle)-1]
	l.idle = l.idle[:len(l.idle)-1]
	return id
}

// move changes the state of a page from from to to. It panics if the page is not in state
// from.
func (l *Lease) move(id kv.PageID, from, to pageState) {
	if id < 0 || int(id) >= len(l.state) || l.state[id] != from {
		state := "out of range"
		if id >= 0 && int(id) < len(l.state) {
			state = stateNames[l.state[id]]
		}
		panic(fmt.Sprintf("mempool: page %d goes from %s to %s, but is %s", id, stateNames[from], stateNames[to], state))
	}
	// State and counts change together.
	l.state[id] = to
	l.counts[from]--
	l.counts[to]++
	if to == idle {
		l.idle = append(l.idle, id)
	}
}

// verify runs Check after each change, under the build tag invariants.
func (l *Lease) verify() {
	if invariants.Enabled {
		if err := l.Check(); err != nil {
			panic(err.Error())
		}
	}
}

// Check walks the whole ledger and compares the counts with the pages.
func (l *Lease) Check() error {
	var counts [4]int
	for _, s := range l.state {
		counts[s]++
	}
	// move keeps the counts. They differ only if other code changed a state.
	if counts != l.counts {
		return fmt.Errorf("mempool: pages by state are %v, the counts say %v", counts, l.counts)
	}
	seen := make(map[kv.PageID]bool, len(l.idle))
	for _, id := range l.idle {
		if l.state[id] != idle || seen[id] {
			return fmt.Errorf("mempool: page %d is on the idle stack twice or not idle", id)
		}
		seen[id] = true
	}
	if len(l.idle) != l.counts[idle] {
		return fmt.Errorf("mempool: %d pages are on the idle stack, %d are idle", len(l.idle), l.counts[idle])
	}
	return nil
}
