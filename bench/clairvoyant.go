package bench

import (
	"context"
	"fmt"

	"github.com/coppice-llm/coppice/internal/heap"
)

// clairvoyant returns the number of pages that the best possible eviction matches in a replay of
// a trace. The rules of the replay are those of [PlayRadix]: a request's whole pages are matched
// from the root; room is made for its other whole pages, while the matched pages stay; then all
// pages are inserted. To make room, clairvoyant evicts the page whose next use is farthest away,
// as the policy MIN does (L. A. Belady, A study of replacement algorithms for a virtual-storage
// computer, IBM Systems Journal 5(2), 1966).
//
// limit is the capacity of the cache in pages, at least longest(). The only error is the end of ctx. The
// cost is O(n log n) for n pages in all requests.
//
// The result is an upper bound for every policy that obeys these rules. Take any policy that
// evicts a page y and keeps a page x, although x is next used later than y or never. Change the
// policy: evict x instead of y, and do everything else alike. The changed policy loses at most the
// next match of x, but gains the next match of y, which comes first. A sequence of such changes
// turns any policy into MIN without losing a match. The argument also covers policies that evict a
// page and keep its descendants. MIN never does that: every request that uses a page uses all its
// ancestors, so the next use of an ancestor is never later than that of its descendant, and of
// pages with equal next uses MIN evicts the deepest first. The pages that MIN keeps therefore
// always form a tree from the root.
func (p *pageTrace) clairvoyant(ctx context.Context, limit int) (matched int, err error) {
	m := &minCache{p: p, next: make([]int32, p.pages), room: limit}
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
	next []int32 // by page: the request that uses it next, if cached; else 0, as request 0 is never a next use
	room int     // free pages
	runs heap.Heap[minRun, nowhere]
}

// minRun is a run of adjacent pages on one path that have the same next use: the pages of visits
// [begin, end). A request uses all of them or none; eviction takes them from the deepest up. A run
// is stale once its pages have been used again: minCache.next of its pages then differs from the
// run's field next, and evict drops the run when it meets it.
type minRun struct {
	begin, end int
	next       int32 // request that uses the pages next, or never
	depth      int32 // of the deepest page
}

// step replays the request whose pages are visits [begin, end), and returns the number of matched
// pages.
func (m *minCache) step(begin, end int) (matched int) {
	path := m.p.visits[begin:end]
	for matched < len(path) && m.next[path[matched]] != 0 {
		matched++
	}
	// The matched pages get their new next use before the eviction, which makes their
	// old runs stale, and their new runs after it. So evict cannot take them.
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

// evict frees this many pages, those with the latest next use first, the deepest first
// among equals. It does nothing if pages is not above 0.
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

// Before implements heap.Element: the latest next use first, then the deepest.
func (r minRun) Before(s minRun) bool {
	return r.next > s.next || r.next == s.next && r.depth > s.depth
}

// nowhere implements heap.Places for a heap whose elements need not know their place in the heap:
// it stores nothing.
type nowhere struct{}

// Place implements heap.Places.
func (nowhere) Place(minRun, int) {}
