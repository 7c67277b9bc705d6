package mempool

import (
	"fmt"

	"github.com/coppice-llm/coppice/internal/invariants"
	"github.com/coppice-llm/coppice/kv"
)

// pageState is who owns a page as far as a lease can see.
type pageState uint8

const (
	absent pageState = iota // not granted to this lease
	idle                    // granted, nobody's
	held                    // a running request's
	cached                  // the radix tree's
)

var stateNames = [...]string{"absent", "idle", "held", "cached"}

// Lease is a scheduler's share of a pool. Every page in it has one owner at a
// time, and each hand-over names the owner it leaves.
type Lease struct {
	state  []pageState // by page id
	idle   []kv.PageID // stack
	counts [4]int      // by pageState
}

// NewLease makes an empty lease on a pool of capacity pages.
func NewLease(capacity int) *Lease {
	l := &Lease{state: make([]pageState, capacity)}
	l.counts[absent] = capacity
	return l
}

// Capacity is the number of pages of the pool behind the lease.
func (l *Lease) Capacity() int { return len(l.state) }

// GrantedPages is idle + held + cached.
func (l *Lease) GrantedPages() int { return len(l.state) - l.counts[absent] }

// IdlePages wait to be held.
func (l *Lease) IdlePages() int { return l.counts[idle] }

// HeldPages belong to running requests.
func (l *Lease) HeldPages() int { return l.counts[held] }

// CachedPages belong to the radix tree.
func (l *Lease) CachedPages() int { return l.counts[cached] }

// Add takes pages that the pool granted.
func (l *Lease) Add(pages []kv.PageID) {
	for _, id := range pages {
		l.move(id, absent, idle)
	}
	l.verify()
}

// GiveBack removes n idle pages from the lease and appends them to dst; they are
// the pool's again. It gives fewer when fewer are idle.
func (l *Lease) GiveBack(n int, dst []kv.PageID) []kv.PageID {
	for ; n > 0 && len(l.idle) > 0; n-- {
		id := l.pop()
		l.move(id, idle, absent)
		dst = append(dst, id)
	}
	l.verify()
	return dst
}

// Hold appends n idle pages to dst for a request. All or nothing; ok tells.
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

// Publish hands held pages to the tree.
func (l *Lease) Publish(pages []kv.PageID) {
	for _, id := range pages {
		l.move(id, held, cached)
	}
	l.verify()
}

// Drop takes back what a request held: pages of its own, never cached ones.
func (l *Lease) Drop(pages []kv.PageID) {
	for _, id := range pages {
		l.move(id, held, idle)
	}
	l.verify()
}

// Evicted takes back what the tree let go.
func (l *Lease) Evicted(pages []kv.PageID) {
	for _, id := range pages {
		l.move(id, cached, idle)
	}
	l.verify()
}

// Held tells whether a request, rather than the tree, owns the page.
func (l *Lease) Held(id kv.PageID) bool { return l.state[id] == held }

// Cached tells whether the tree owns the page.
func (l *Lease) Cached(id kv.PageID) bool { return l.state[id] == cached }

func (l *Lease) pop() kv.PageID {
	id := l.idle[len(l.idle)-1]
	l.idle = l.idle[:len(l.idle)-1]
	return id
}

func (l *Lease) move(id kv.PageID, from, to pageState) {
	if id < 0 || int(id) >= len(l.state) || l.state[id] != from {
		state := "out of range"
		if id >= 0 && int(id) < len(l.state) {
			state = stateNames[l.state[id]]
		}
		panic(fmt.Sprintf("mempool: page %d goes from %s to %s, but is %s", id, stateNames[from], stateNames[to], state))
	}
	l.state[id] = to
	l.counts[from]--
	l.counts[to]++
	if to == idle {
		l.idle = append(l.idle, id)
	}
}

// verify runs the full walk after a mutation, under -tags invariants.
func (l *Lease) verify() {
	if invariants.Enabled {
		if err := l.Check(); err != nil {
			panic(err.Error())
		}
	}
}

// Check walks the whole ledger.
func (l *Lease) Check() error {
	var counts [4]int
	for _, s := range l.state {
		counts[s]++
	}
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
		return fmt.Errorf("mempool: %d pages on the idle stack, %d are idle", len(l.idle), l.counts[idle])
	}
	return nil
}
