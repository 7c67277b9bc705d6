package mempool

import (
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/kv"
)

// ErrExhausted is returned by Grant when fewer pages are free than requested.
var ErrExhausted = errors.New("mempool: not enough free pages")

// Pool is the ledger of a device's pages. A page is free or leased (granted). Return panics
// if a page is not leased: a page with two owners would be overwritten while it is read.
type Pool struct {
	free   []kv.PageID // stack; the last one is granted next
	leased []bool      // by page id
}

// NewPool returns a pool of pages with ids [0, capacity), all free.
func NewPool(capacity int) (*Pool, error) {
	if capacity < 1 {
		return nil, fmt.Errorf("mempool: capacity is %d pages, want at least 1", capacity)
	}
	p := &Pool{free: make([]kv.PageID, capacity), leased: make([]bool, capacity)}
	// Descending, so that the top of the stack is page 0 and ids are granted in ascending
	// order.
	for i := range p.free {
		p.free[i] = kv.PageID(capacity - 1 - i)
	}
	return p, nil
}

// Capacity returns the number of pages of the pool.
func (p *Pool) Capacity() int { return len(p.leased) }

// FreePages returns the number of pages that are not granted.
func (p *Pool) FreePages() int { return len(p.free) }

// LeasedPages returns the number of pages that are granted and not returned.
func (p *Pool) LeasedPages() int { return len(p.leased) - len(p.free) }

// Grant makes n free pages leased and returns dst with them appended. A fresh pool grants
// ascending ids, which the radix tree stores in little memory. If fewer than n pages are
// free, Grant grants none and returns dst and ErrExhausted.
func (p *Pool) Grant(n int, dst []kv.PageID) ([]kv.PageID, error) {
	if n < 0 || n > len(p.free) {
		return dst, fmt.Errorf("%w: %d requested, %d of %d are free", ErrExhausted, n, len(p.free), len(p.leased))
	}
	cut := len(p.free) - n
	for i := len(p.free) - 1; i >= cut; i-- {
		p.leased[p.free[i]] = true
		dst = append(dst, p.free[i])
	}
	p.free = p.free[:cut]
	return dst, nil
}

// Return makes leased pages free. It panics if a page is not leased, because then two owners
// had it.
func (p *Pool) Return(pages []kv.PageID) {
	for _, id := range pages {
		if id < 0 || int(id) >= len(p.leased) || !p.leased[id] {
			panic(fmt.Sprintf("mempool: page %d returned, which is not leased (capacity %d)", id, len(p.leased)))
		}
		p.leased[id] = false
		p.free = append(p.free, id)
	}
}

// Check returns an error unless every page is either leased or exactly once in the list of
// free pages.
func (p *Pool) Check() error {
	seen := make([]bool, len(p.leased))
	for _, id := range p.free {
		switch {
		case seen[id]:
			return fmt.Errorf("mempool: page %d is free twice", id)
		case p.leased[id]:
			return fmt.Errorf("mempool: page %d is free and leased", id)
		}
		seen[id] = true
	}
	for id, leased := range p.leased {
		if !leased && !seen[id] {
			return fmt.Errorf("mempool: page %d is neither free nor leased", id)
		}
	}
	return nil
}
