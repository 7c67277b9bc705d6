package bench

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// tinyTrace draws a few short requests that share much.
func tinyTrace(rng *rand.Rand, requests int) *Trace {
	t := &Trace{}
	for range requests {
		var request []kv.Token
		if n := t.Requests(); n > 0 && rng.IntN(3) > 0 {
			from := t.Request(rng.IntN(n))
			request = append(request, from[:rng.IntN(len(from)+1)]...)
		}
		for len(request) < 5 && (len(request) == 0 || rng.IntN(3) > 0) {
			request = append(request, kv.Token(rng.IntN(3)))
		}
		t.add(request)
	}
	return t
}

// bestByTrial returns the most pages that any eviction can match. It tries all
// evictions, including early ones and ones from the middle of a path, which the cache
// never makes. A page is a bit, identified by the tokens from the root to its end.
func bestByTrial(t *Trace, page, limit int) int {
	names := map[string]int{}
	paths := make([][]int, t.Requests())
	for i := range paths {
		for n := page; n <= len(t.Request(i)); n += page {
			name := fmt.Sprint(t.Request(i)[:n])
			if _, known := names[name]; !known {
				names[name] = 1 << len(names)
			}
			paths[i] = append(paths[i], names[name])
		}
	}
	type state struct{ request, held int }
	memo := map[state]int{}
	var best func(at state) int
	best = func(at state) int {
		if at.request == len(paths) {
			return 0
		}
		if known, ok := memo[at]; ok {
			return known
		}
		matched, path := 0, 0
		for i, bit := range paths[at.request] {
			path |= bit
			if matched == i && at.held&bit != 0 {
				matched++
			}
		}
		most, others := -1, at.held&^path
		for keep := others; ; keep = (keep - 1) & others { // all subsets of others
			if after := keep | path; bits.OnesCount(uint(after)) <= limit {
				most = max(most, best(state{at.request + 1, after}))
			}
			if keep == 0 {
				break
			}
		}
		memo[at] = matched + most
		return matched + most
	}
	return best(state{})
}

func TestClairvoyantIsTheBest(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	evictions := 0
	for trial := range 400 {
		tr, page := tinyTrace(rng, 8), 1+trial%2
		p, err := newPageTrace(tr, page)
		if err != nil {
			t.Fatal(err)
		}
		limit := max(1, p.longest()) + rng.IntN(4)
		if p.pages > limit {
			evictions++
		}
		got := clairvoyantTokens(t, p, page, limit)
		if want := bestByTrial(tr, page, limit) * page; got != want {
			t.Fatalf("trial %d, pages of %d, room for %d: %d tokens, the best is %d\n%v", trial, page, limit, got, want, tr.requests)
		}
	}
	if evictions < 200 {
		t.Errorf("only %d of 400 traces need eviction", evictions)
	}
}

// TestClairvoyantBounds checks that MIN matches at least as much as LRU, at most as much
// as a cache without limit, and never less with more room.
func TestClairvoyantBounds(t *testing.T) {
	for _, kind := range traceKinds.Values() {
		tr := generated(t, kind, 150)
		p, err := newPageTrace(tr, 16)
		if err != nil {
			t.Fatal(err)
		}
		ideal := 16 * p.ideal()
		if s := naiveCounts(tr, 16); s.matched != ideal || s.cached != 16*p.pages {
			t.Errorf("%v: %d tokens of %d different ones without limit, want %d of %d", kind, ideal, 16*p.pages, s.matched, s.cached)
		}
		last := 0
		for _, percent := range []int{5, 10, 25, 50, 100} {
			capacity := 16 * max(p.longest(), p.pages*percent/100)
			best := clairvoyantTokens(t, p, 16, capacity/16)
			lru := naiveLRU(p, capacity/16) * 16
			if best < lru || best < last || best > ideal {
				t.Errorf("%v at %d %%: %d tokens, LRU %d, with less room %d, without limit %d", kind, percent, best, lru, last, ideal)
			}
			if percent == 100 && best != ideal {
				t.Errorf("%v: %d tokens with room for all, want %d", kind, best, ideal)
			}
			last = best
		}
	}
}

// naiveLRU returns the number of pages that page-wise LRU matches in a cache of limit pages. It
// evicts the page that was used longest ago; of the pages of one request, the deepest first.
func naiveLRU(p *pageTrace, limit int) (matched int) {
	var order []int32 // cached pages, by last use; of one request, the deepest first
	cached := make([]bool, p.pages)
	for i, end := range p.ends {
		path := p.visits[p.begin(i):end]
		onPath := map[int32]bool{}
		for _, page := range path {
			onPath[page] = true
			if cached[page] {
				matched++
			}
		}
		kept := order[:0]
		for _, page := range order {
			if !onPath[page] {
				kept = append(kept, page)
			}
		}
		over := max(0, len(kept)+len(path)-limit)
		for _, page := range kept[:over] {
			cached[page] = false
		}
		order = kept[over:]
		for at := len(path) - 1; at >= 0; at-- {
			order = append(order, path[at])
			cached[path[at]] = true
		}
	}
	return matched
}

func TestPageTraceBadInput(t *testing.T) {
	one := &Trace{}
	one.add([]kv.Token{1, 2, 3, 4, 5})
	for _, tc := range []struct {
		name string
		t    *Trace
		want string
	}{
		{"no requests", &Trace{}, "no requests"},
		{"too many tokens", &Trace{requests: one.requests, tokens: 1 << 31}, "take a shorter one"},
	} {
		if _, err := newPageTrace(tc.t, 1); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	p, err := newPageTrace(one, 2)
	if err != nil {
		t.Fatal(err)
	}
	if got := clairvoyantTokens(t, p, 2, 2); got != 0 {
		t.Errorf("just enough room: %d", got)
	}
}

// clairvoyantTokens returns the tokens that MIN matches with room for limit pages.
func clairvoyantTokens(t *testing.T, p *pageTrace, pageTokens, limit int) int {
	t.Helper()
	matched, err := p.clairvoyant(t.Context(), limit)
	if err != nil {
		t.Fatal(err)
	}
	return matched * pageTokens
}
