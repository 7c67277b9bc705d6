package bench

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// pageTrace is a trace in whole pages: each request is a path of pages from the root,
// and equal prefixes are the same pages, numbered by first appearance. It is immutable.
type pageTrace struct {
	pages   int     // number of distinct pages: the working set
	visits  []int32 // pages of all requests, in order of arrival and then from the root
	ends    []int   // by request: where its visits end
	nextUse []int32 // by visit: the next request with the same page, or never
}

// never is the next use of a page that is not used again. It is above any request.
const never int32 = math.MaxInt32

// errNoRequests is the answer to an empty trace.
var errNoRequests = errors.New("bench: the trace has no requests, nothing can be measured")

// playable returns why a trace can't be replayed in pages; nil if it can.
func (t *Trace) playable() error {
	if t.Requests() == 0 {
		return errNoRequests
	}
	if t.tokens > math.MaxInt32 {
		return fmt.Errorf("bench: the trace has %d tokens, at most %d can have pages: take a shorter one", t.tokens, math.MaxInt32)
	}
	return nil
}

// newPageTrace numbers the pages of a trace. pageTokens is at least 1.
func newPageTrace(t *Trace, pageTokens int) (*pageTrace, error) {
	if err := t.playable(); err != nil {
		return nil, err
	}
	p := t.Sequences().pages(pageTokens)
	p.lookAhead()
	return p, nil
}

// pages numbers the pages of all requests, without the field nextUse. Hashes are chained, so equal
// hashes mean equal prefixes.
func (s *Sequences) pages(pageTokens int) *pageTrace {
	p := &pageTrace{ends: make([]int, 0, s.Requests())}
	index := map[kv.BlockHash]int32{}
	for i := range s.requests {
		h := s.hasher(i, pageTokens)
		for range s.requests[i].whole(pageTokens) {
			hash := h.next()
			page, found := index[hash]
			if !found {
				page = int32(p.pages)
				index[hash] = page
				p.pages++
			}
			p.visits = append(p.visits, page)
		}
		p.ends = append(p.ends, len(p.visits))
	}
	return p
}

// lookAhead fills nextUse in one pass over the requests, from the last to the first.
func (p *pageTrace) lookAhead() {
	p.nextUse = make([]int32, len(p.visits))
	soonest := slices.Repeat([]int32{never}, p.pages)
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
func (p *pageTrace) ideal() int { return len(p.visits) - p.pages }
