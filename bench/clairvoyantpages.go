package bench

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/kv"
)

// pageTrace is a trace in whole pages: each request is a path of pages from the root,
// and equal prefixes are the same pages. It is immutable.
type pageTrace struct {
	pageTokens int
	parent     []int32 // by page: the page before it, or rootPage; always less than the page's own number
	visits     []int32 // pages of all requests, in order of arrival and then from the root
	ends       []int   // by request: where its visits end
	nextUse    []int32 // by visit: the next request with the same page, or never
}

const (
	rootPage int32 = -1
	// never is the next use of a page that is not used again. It is above any request.
	never int32 = math.MaxInt32
)

// newPageTrace numbers the pages of a trace by first appearance. Two pages are the
// same if their tokens and their parents are. Hashes only find candidates, whose
// tokens are then compared, so collisions do no harm.
func newPageTrace(t *Trace, pageTokens int) (*pageTrace, error) {
	if pageTokens < 1 {
		return nil, fmt.Errorf("bench: PageTokens is %d, want at least 1", pageTokens)
	}
	if t.Requests() == 0 {
		return nil, errNoRequests
	}
	if t.tokens > math.MaxInt32 {
		return nil, fmt.Errorf("bench: the trace has %d tokens, at most %d can have pages: take a shorter one", t.tokens, math.MaxInt32)
	}
	p := &pageTrace{pageTokens: pageTokens, ends: make([]int, 0, t.Requests())}
	names := pageNames{byHash: map[uint64]int32{}}
	for _, request := range t.requests {
		at := rootPage
		for depth := range kv.FloorPages(len(request), pageTokens) {
			tokens := request[depth*pageTokens : (depth+1)*pageTokens]
			page, found := names.find(p, at, tokens)
			if !found {
				p.parent = append(p.parent, at)
			}
			p.visits = append(p.visits, page)
			at = page
		}
		p.ends = append(p.ends, len(p.visits))
	}
	p.lookAhead()
	return p, nil
}

// pageNames numbers pages: it maps a parent page and the tokens of the next page to the number of
// that page.
type pageNames struct {
	byHash map[uint64]int32 // latest page with this hash
	same   []int32          // by page: an earlier page with the same hash, or rootPage
	tokens [][]kv.Token     // by page; slices of the trace
	buf    []byte
}

// find returns the number of the page with these tokens after parent. found is false if the page
// is new: find has then numbered it, and the caller must append its parent to p.parent.
func (n *pageNames) find(p *pageTrace, parent int32, tokens []kv.Token) (page int32, found bool) {
	n.buf = binary.LittleEndian.AppendUint32(n.buf[:0], uint32(parent))
	n.buf = appendTokens(n.buf, tokens)
	hash := xxh3.Hash(n.buf)
	first, known := n.byHash[hash]
	if !known {
		first = rootPage
	}
	for page = first; page != rootPage; page = n.same[page] {
		if p.parent[page] == parent && slices.Equal(n.tokens[page], tokens) {
			return page, true
		}
	}
	page = int32(len(n.tokens))
	n.byHash[hash] = page
	n.same = append(n.same, first)
	n.tokens = append(n.tokens, tokens)
	return page, false
}

// lookAhead fills nextUse in one pass over the requests, from the last to the first.
func (p *pageTrace) lookAhead() {
	p.nextUse = make([]int32, len(p.visits))
	soonest := slices.Repeat([]int32{never}, len(p.parent))
	for i := range slices.Backward(p.ends) {
		for at := p.begin(i); at < p.ends[i]; at++ {
			page := p.visits[at]
			p.nextUse[at], soonest[page] = soonest[page], int32(i)
		}
	}
}

// begin returns the index in visits at which a request begins.
func (p *pageTrace) begin(request int) int {
	if request == 0 {
		return 0
	}
	return p.ends[request-1]
}

// pages returns the number of distinct pages: the working set.
func (p *pageTrace) pages() int { return len(p.parent) }

// longest returns the number of pages of the longest request.
func (p *pageTrace) longest() int {
	longest := 0
	for i, end := range p.ends {
		longest = max(longest, end-p.begin(i))
	}
	return longest
}

// ideal returns the number of pages that a cache without limit matches: all visits except the
// first visit of each page.
func (p *pageTrace) ideal() int { return len(p.visits) - p.pages() }
