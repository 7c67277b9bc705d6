package missratio

import "github.com/coppice-llm/coppice/kv"

// trace is a list of requests as pages: each page is a number that stands for
// its tokens and all before them.
type trace struct {
	page     int
	requests [][]kv.Token
	paths    [][]int32 // by request: its whole pages
	distinct int       // pages
	tokens   int
}

// paged names the pages of requests. Two pages are the same if their tokens and
// their parents are.
func paged(requests [][]kv.Token, page int) *trace {
	type link struct {
		parent int32
		tokens [16]kv.Token
	}
	if page > len(link{}.tokens) {
		panic("paged: page too long")
	}
	t := &trace{page: page, requests: requests, paths: make([][]int32, len(requests))}
	names := map[link]int32{}
	for i, tokens := range requests {
		t.tokens += len(tokens)
		at := int32(-1)
		for ; len(tokens) >= page; tokens = tokens[page:] {
			l := link{parent: at}
			copy(l.tokens[:], tokens[:page])
			id, known := names[l]
			if !known {
				id = int32(len(names))
				names[l] = id
			}
			t.paths[i], at = append(t.paths[i], id), id
		}
	}
	t.distinct = len(names)
	return t
}

// lru plays the trace to an LRU cache of this many tokens and returns its hit rate. The cache
// is a plain list of pages, the most recent first. A request is served up to its first
// missing page. Then its pages move to the front, the deepest first, so that the deepest
// of the request is evicted first.
func (t *trace) lru(capacityTokens int) float64 {
	capacity := capacityTokens / t.page
	front := int32(t.distinct) // a ring through one more place
	next, prev := make([]int32, t.distinct+1), make([]int32, t.distinct+1)
	in := make([]bool, t.distinct+1)
	next[front], prev[front] = front, front
	cut := func(p int32) { next[prev[p]], prev[next[p]] = next[p], prev[p] }
	held, hits := 0, 0
	for _, path := range t.paths {
		n := 0
		for n < len(path) && in[path[n]] {
			n++
		}
		hits += n * t.page
		for i := len(path) - 1; i >= 0; i-- {
			p := path[i]
			if in[p] {
				cut(p)
			} else {
				in[p] = true
				held++
			}
			next[p], prev[p] = next[front], front
			prev[next[p]], next[front] = p, p
		}
		for held > capacity {
			last := prev[front]
			cut(last)
			in[last] = false
			held--
		}
	}
	return float64(hits) / float64(t.tokens)
}
