package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/internal/heap"
)

// errNoRequests is the answer to an empty trace.
var errNoRequests = errors.New("bench: the trace has no requests, nothing can be measured")

// Clairvoyant is the number of tokens that the best possible eviction matches
// when it replays a trace as [PlayRadix] does: a request's whole pages from the
// root are matched, then room is made for its other whole pages while those
// that were matched stay, then they are all inserted. Whenever a page must go,
// the one goes whose next use is farthest away, as MIN does (L. A. Belady, A
// study of replacement algorithms for a virtual-storage computer, IBM Systems
// Journal 5(2), 1966).
//
// capacityTokens is what the cache may hold, in whole pages; 0 is no limit. A
// page size below 1, a trace without requests, and a capacity below the longest
// request are errors. The cost is O(n log n) for n pages of all requests.
//
// It bounds every policy that obeys those rules from above. Take any
// eviction that lets page y go and keeps x, although x is used later than y or
// not at all. Letting x go instead and doing everything else alike loses x's
// next match at most, but gains y's, which comes before. One such exchange
// after the other turns any policy into MIN and never costs a match. This holds
// even for policies that could let go of a page and keep those after it. MIN
// never does: every request that uses a page uses all pages before it, so the
// next use of a page is never after that of the pages below it, and of equal
// ones the deepest goes first. What MIN keeps thus hangs together from the root.
func Clairvoyant(t *Trace, pageTokens, capacityTokens int) (matchedTokens int, err error) {
	p, err := newPageTrace(t, pageTokens)
	if err != nil {
		return 0, err
	}
	if capacityTokens < 0 {
		return 0, fmt.Errorf("bench: CapacityTokens is %d, want at least 0, which is no limit", capacityTokens)
	}
	if capacityTokens == 0 {
		return p.ideal() * pageTokens, nil
	}
	limit := capacityTokens / pageTokens
	if most := p.longest(); limit < most {
		return 0, fmt.Errorf("bench: CapacityTokens is %d, that is %d pages of %d tokens, but the longest request takes %d pages: raise it to %d at least",
			capacityTokens, limit, pageTokens, most, most*pageTokens)
	}
	matched, err := p.clairvoyant(context.Background(), limit)
	return matched * pageTokens, err
}

// clairvoyant is the number of pages that MIN matches with room for limit of
// them, at least the longest request. Only the end of ctx is an error.
func (p *pageTrace) clairvoyant(ctx context.Context, limit int) (matched int, err error) {
	m := &minCache{p: p, next: make([]int32, p.pages()), room: limit}
	for i, end := range p.ends {
		if i%64 == 0 && ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		matched += m.step(p.begin(i), end)
	}
	return matched, nil
}

// minCache is the state of MIN.
type minCache struct {
	p    *pageTrace
	next []int32 // by page: when it is used next, if it is cached, else 0, which no next use is
	room int     // pages until it is full
	runs heap.Heap[minRun, nowhere]
}

// minRun are pages next to each other on a path with the same next use: those
// of visits [begin, end). They are cached or let go together, from the deepest
// upwards, and used together. Once that has happened, next knows better.
type minRun struct {
	begin, end int
	next       int32
	depth      int32 // of the deepest
}

// step takes the request of visits [begin, end) and returns its matched pages.
func (m *minCache) step(begin, end int) (matched int) {
	path := m.p.visits[begin:end]
	for matched < len(path) && m.next[path[matched]] != 0 {
		matched++
	}
	// The matched pages get their new next use now, which makes their runs
	// stale, and their new runs after the eviction: so they are safe from it.
	for i, page := range path[:matched] {
		m.next[page] = m.p.nextUse[begin+i]
	}
	fresh := len(path) - matched
	m.evict(fresh - m.room)
	m.room -= fresh
	for i, page := range path[matched:] {
		m.next[page] = m.p.nextUse[begin+matched+i]
	}
	for at := begin; at < end; {
		run := minRun{begin: at, next: m.p.nextUse[at]}
		for at < end && m.p.nextUse[at] == run.next {
			at++
		}
		run.end, run.depth = at, int32(at-begin-1)
		m.runs.Push(nowhere{}, run)
	}
	return matched
}

// evict lets pages go that are used last, the deepest of equal ones first.
func (m *minCache) evict(pages int) {
	for pages > 0 {
		if len(m.runs.Items) == 0 {
			panic(fmt.Sprintf("bench: nothing left to evict, %d pages short", pages))
		}
		run, places := m.runs.Items[0], nowhere{}
		if run.begin == run.end || m.next[m.p.visits[run.begin]] != run.next {
			m.runs.Remove(places, 0)
			continue
		}
		n := min(pages, run.end-run.begin)
		for _, page := range m.p.visits[run.end-n : run.end] {
			m.next[page] = 0
		}
		run.end -= n
		run.depth -= int32(n)
		m.runs.Set(places, 0, run)
		m.room += n
		pages -= n
	}
}

// Before implements heap.Element: what is used last goes first, of equal ones the deepest.
func (r minRun) Before(s minRun) bool {
	return r.next > s.next || r.next == s.next && r.depth > s.depth
}

// nowhere is for a heap whose elements are not looked for.
type nowhere struct{}

// Place implements heap.Places.
func (nowhere) Place(minRun, int) {}
