package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/internal/invariants"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
)

func generated(t testing.TB, kind TraceKind, requests int) *Trace {
	t.Helper()
	tr, err := GenerateTrace(TraceConfig{Kind: kind, Requests: requests, Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// radixCounts is the part of a summary that is the same in every run.
type radixCounts struct {
	matched, partial      int
	fnv                   string
	nodes, leaves, cached int
}

func countsOf(s *RadixSummary) radixCounts {
	return radixCounts{s.MatchedTokens, s.PartialTokens, s.MatchedFNV, s.Nodes, s.Leaves, s.CachedTokens}
}

// naiveCounts computes the counts of an unlimited replay from a map alone: a trie with
// one node per page. The radix tree has a node where the trie forks and where a request
// ends.
func naiveCounts(tr *Trace, page int) radixCounts {
	type edge struct {
		from int
		page string
	}
	type vertex struct {
		children []string
		ends     bool
	}
	trie, next := []vertex{{}}, map[edge]int{}
	out, fnv := radixCounts{}, uint64(1469598103934665603)
	for i := range tr.Requests() {
		raw := kv.AppendTokens(nil, tr.Request(i))
		at, matched, known := 0, 0, true
		for ; len(raw) >= 4*page; raw = raw[4*page:] {
			e := edge{at, string(raw[:4*page])}
			to := next[e]
			if to == 0 {
				if known {
					out.partial += longestShared(trie[at].children, raw)
				}
				known, to = false, len(trie)
				trie, next[e] = append(trie, vertex{}), to
				trie[at].children = append(trie[at].children, e.page)
			}
			if known {
				matched += page
			}
			at = to
		}
		if known {
			out.partial += longestShared(trie[at].children, raw)
		}
		trie[at].ends = true
		out.matched += matched
		fnv = (fnv ^ uint64(matched)) * 1099511628211
	}
	for _, v := range trie[1:] {
		if v.ends || len(v.children) > 1 {
			out.nodes++
		}
		if len(v.children) == 0 {
			out.leaves++
		}
	}
	out.cached, out.fnv = page*(len(trie)-1), fmt.Sprintf("%016x", fnv)
	return out
}

// longestShared returns the most tokens that rest has in common with the start of a page.
func longestShared(pages []string, rest []byte) (longest int) {
	for _, page := range pages {
		n := 0
		for n < min(len(page), len(rest)) && page[n] == rest[n] {
			n++
		}
		longest = max(longest, n/4)
	}
	return longest
}

// TestRadixSums pins the counts of small traces, and checks them against naiveCounts.
// The sums of 10,000 requests of the same kinds are published.
func TestRadixSums(t *testing.T) {
	const requests = 200
	traces, ideal := map[TraceKind]*Trace{}, map[TraceKind]float64{}
	if invariants.Enabled {
		t.Skip("a full walk after each of thousands of mutations takes minutes")
	}
	for _, tc := range radixSums {
		if underRace && tc.page == 1 {
			continue
		}
		if traces[tc.kind] == nil {
			traces[tc.kind] = generated(t, tc.kind, requests)
			ideal[tc.kind] = naiveIdeal(traces[tc.kind])
		}
		tr := traces[tc.kind]
		cfg, steps := RadixConfig{PageTokens: tc.page, Passes: 1}, 0
		s, err := PlayRadix(t.Context(), tr, cfg, func() { steps++ })
		if err != nil {
			t.Fatal(err)
		}
		if got := countsOf(s); got != tc.want {
			t.Errorf("%v, page %d: %#v", tc.kind, tc.page, got)
		}
		if got := naiveCounts(tr, tc.page); got != tc.want {
			t.Errorf("%v, page %d: naively %#v", tc.kind, tc.page, got)
		}
		if s.Requests != requests || s.Tokens != tr.Tokens() || s.EvictedTokens+s.EvictCalls != 0 ||
			s.HitRate != float64(s.MatchedTokens)/float64(s.Tokens) || s.IdealHitRate != ideal[tc.kind] {
			t.Errorf("%v, page %d: ideal %v, %+v", tc.kind, tc.page, ideal[tc.kind], s)
		}
		// A token takes at least its own 4 bytes; runs of consecutive page ids take next to
		// nothing. The race detector adds its own memory.
		if least := 4.0; s.BytesPerToken < least || s.BytesPerToken > 5*least && !underRace {
			t.Errorf("%v, page %d: %.1f bytes per cached token", tc.kind, tc.page, s.BytesPerToken)
		}
		if steps != cfg.Steps() {
			t.Errorf("progress was called %d times of %d", steps, cfg.Steps())
		}
	}
}

// naiveIdeal compares each request with all earlier ones.
func naiveIdeal(tr *Trace) float64 {
	hits := 0
	for i := range tr.Requests() {
		best, request := 0, tr.Request(i)
		for j := range i {
			n, earlier := 0, tr.Request(j)
			for n < min(len(request), len(earlier)) && request[n] == earlier[n] {
				n++
			}
			best = max(best, n)
		}
		hits += best
	}
	return float64(hits) / float64(tr.Tokens())
}

// TestRadixLimited checks, for several page sizes, that inserted tokens are either cached
// or evicted, that the cache never exceeds its capacity, and that more room gives more
// hits.
func TestRadixLimited(t *testing.T) {
	requests := 20
	if invariants.Enabled || underRace {
		requests = 15
	}
	for _, kind := range traceKinds.Values() {
		tr := generated(t, kind, requests)
		for _, page := range []int{1, 64} {
			whole := 0
			for i := range tr.Requests() {
				whole += len(tr.Request(i)) / page * page
			}
			all, err := PlayRadix(t.Context(), tr, RadixConfig{PageTokens: page, Passes: 1}, nil)
			if err != nil {
				t.Fatal(err)
			}
			least := tr.longest / page * page
			for _, capacity := range []int{least, least + page - 1, max(least, all.CachedTokens/2), all.CachedTokens, all.CachedTokens + 1, 1 << 50} {
				s, err := PlayRadix(t.Context(), tr, RadixConfig{PageTokens: page, CapacityTokens: capacity, Passes: 1}, nil)
				if err != nil {
					t.Fatal(err)
				}
				if s.CachedTokens > capacity || s.CachedTokens+s.EvictedTokens != whole-s.MatchedTokens || (s.EvictCalls > 0) != (s.EvictedTokens > 0) {
					t.Errorf("%v, page %d, capacity %d: %+v", kind, page, capacity, s)
				}
				if fits := capacity >= all.CachedTokens; fits != (s.EvictedTokens == 0) || fits && countsOf(s) != countsOf(all) {
					t.Errorf("%v, page %d, capacity %d of %d: %+v, without limit %+v", kind, page, capacity, all.CachedTokens, s, all)
				}
				if s.MatchedTokens > all.MatchedTokens || s.IdealHitRate != all.IdealHitRate {
					t.Errorf("%v, page %d, capacity %d: more hits than without limit", kind, page, capacity)
				}
			}
		}
	}
}

// TestReplayFindsLostPages plants the faults that audit and take must find.
func TestReplayFindsLostPages(t *testing.T) {
	tr := generated(t, TraceUnique, 3)
	fresh := func() *replayer {
		r, err := newReplayer(tr, RadixConfig{PageTokens: 16, CapacityTokens: 8192})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.step(tr.Request(0)); err != nil {
			t.Fatal(err)
		}
		return r
	}
	lost := fresh()
	lost.next++
	if err := lost.step(tr.Request(1)); err == nil || !strings.Contains(err.Error(), "handed out") {
		t.Errorf("a lost page: %v", err)
	}
	held := fresh()
	held.cache.PinNode(held.cache.Match(radixcache.Key{Tokens: tr.Request(0)}).Node)
	held.limit = int(held.next)
	if err := held.step(tr.Request(1)); err == nil || !strings.Contains(err.Error(), "eviction left 0 pages") {
		t.Errorf("nothing to evict: %v", err)
	}
}

// TestMemcmpComparesWhatMatched checks that the flat copy compares all matched tokens,
// in few runs, and reports a token that differs.
func TestMemcmpComparesWhatMatched(t *testing.T) {
	tr := generated(t, TraceChat, 200)
	for _, capacity := range []int{0, 40000} {
		p := &radixPlay{ctx: t.Context(), trace: tr, cfg: RadixConfig{PageTokens: 16, CapacityTokens: capacity}, progress: func() {}}
		s, err := p.count()
		if err != nil {
			t.Fatal(err)
		}
		flat, err := p.layOut()
		if err != nil {
			t.Fatal(err)
		}
		matched := 0
		for _, run := range flat.runs {
			matched += run.hi - run.lo
		}
		if matched != 4*s.MatchedTokens || len(flat.buffer) != 4*(s.CachedTokens+s.EvictedTokens) || len(flat.runs) > 20*tr.Requests() {
			t.Errorf("%d bytes in %d runs of a buffer of %d, for %+v", matched, len(flat.runs), len(flat.buffer), s)
		}
		for range 2 {
			if w, err := flat.compare(t.Context()); err != nil || w.laps != tr.Requests() {
				t.Fatalf("%d requests, %v", w.laps, err)
			}
		}
		last := flat.steps[len(flat.steps)-1]
		changed := tr.Request(tr.Requests() - 1)
		changed[last.matched/4-1]++
		defer func() { changed[last.matched/4-1]-- }()
		if _, err := flat.compare(t.Context()); err == nil || !strings.Contains(err.Error(), "request 199") {
			t.Errorf("another token: %v", err)
		}
	}
}

func TestPlayRadixRefuses(t *testing.T) {
	tr := &Trace{}
	tr.add(make([]kv.Token, 100))
	for _, tc := range []struct {
		trace *Trace
		cfg   RadixConfig
		want  string
	}{
		{tr, RadixConfig{PageTokens: -1}, "PageTokens is -1"},
		{tr, RadixConfig{BlockTokens: 24}, "BlockTokens is 24"},
		{tr, RadixConfig{CapacityTokens: -1, Passes: -2}, "CapacityTokens is -1"},
		{tr, RadixConfig{CapacityTokens: -1, Passes: -2}, "Passes is -2"},
		{tr, RadixConfig{CapacityTokens: 95}, "raise it to 96"},
		{&Trace{}, RadixConfig{}, "no requests"},
		{&Trace{requests: tr.requests, tokens: 1 << 31}, RadixConfig{}, "2147483648 tokens"},
	} {
		_, err := PlayRadix(t.Context(), tc.trace, tc.cfg, nil)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: error %v, want %q", tc.cfg, err, tc.want)
		}
	}
	if _, err := PlayRadix(t.Context(), tr, RadixConfig{PageTokens: -1}, nil); !errors.Is(err, radixcache.ErrConfig) {
		t.Errorf("no ErrConfig: %v", err)
	}
	if s, err := PlayRadix(t.Context(), tr, RadixConfig{CapacityTokens: 96}, nil); err != nil || s.CachedTokens != 96 {
		t.Errorf("capacity of the longest request: %+v, %v", s, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := PlayRadix(ctx, tr, RadixConfig{}, cancel); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestPlayRadixOfNothing checks that requests shorter than a page, and empty ones, give
// rates of 0 rather than NaN.
func TestPlayRadixOfNothing(t *testing.T) {
	for _, length := range []int{0, 5} {
		tr := &Trace{}
		tr.add(make([]kv.Token, length))
		tr.add(make([]kv.Token, length))
		s, err := PlayRadix(t.Context(), tr, RadixConfig{CapacityTokens: 1}, nil)
		if err != nil {
			t.Fatal(err)
		}
		want := 0.0
		if length > 0 {
			want = 0.5
		}
		if s.MatchedTokens+s.CachedTokens != 0 || s.MatchPerToken+s.MatchOverMemcmp+s.BytesPerToken+s.HitRate != 0 || s.IdealHitRate != want {
			t.Errorf("requests of %d tokens: %+v", length, s)
		}
		if err := WriteJSON(&bytes.Buffer{}, s); err != nil {
			t.Error(err)
		}
	}
}

func TestStopwatchTakesTheClockOff(t *testing.T) {
	w := stopwatch{sum: 1000, runs: 10, laps: 4}
	if got := w.total(30); got != 700 {
		t.Errorf("1000 ns in 10 intervals, 30 ns of each the clock's: %v", got)
	}
	if got := w.total(130); got != 0 {
		t.Errorf("less than nothing: %v", got)
	}
	w.start()
	w.pause()
	w.start()
	w.stop()
	if w.runs != 12 || w.laps != 5 || w.sum < 1000 {
		t.Errorf("%+v", w)
	}
	if clock := calibrate(); clock < 0 || clock > float64(time.Second) {
		t.Errorf("an empty interval takes %v ns", clock)
	}
}

func TestRadixReport(t *testing.T) {
	s := &RadixSummary{Requests: 3, MatchedTokens: 9, MatchedFNV: "00000000000000ff", EvictCalls: 5, MatchOverMemcmp: 1.25}
	got := reread[map[string]any](t, s)
	checkKeys(t, got, `requests tokens matched_tokens matched_fnv partial_tokens nodes leaves cached_tokens
		evicted_tokens evict_calls match_ns_per_token match_ns_per_request pages_ns_per_request insert_ns_per_request evict_ns_per_call
		memcmp_ns_per_token match_over_memcmp bytes_per_cached_token hit_rate ideal_hit_rate`)
	if got["matched_fnv"] != "00000000000000ff" || got["match_over_memcmp"] != 1.25 {
		t.Errorf("%v", got)
	}
	table := func() string {
		var b bytes.Buffer
		if err := WriteTable(&b, s); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	for _, want := range []string{"00000000000000ff", "5 calls", "1.25"} {
		if !strings.Contains(table(), want) {
			t.Errorf("no %q in\n%s", want, table())
		}
	}
	s.MatchedTokens, s.EvictCalls = 3, 0
	for _, absent := range []string{"calls", "memcmp"} {
		if strings.Contains(table(), absent) {
			t.Errorf("%q in a table without any:\n%s", absent, table())
		}
	}
}

// radixSums are of 200 requests, seed 7.
var radixSums = []struct {
	kind TraceKind
	page int
	want radixCounts
}{
	{TraceChat, 1, radixCounts{205968, 0, "a76bdc811a2d29cb", 217, 150, 141837}},
	{TraceChat, 16, radixCounts{204848, 699, "25adc058348ce293", 217, 150, 141456}},
	{TraceChat, 64, radixCounts{201216, 3179, "4783cf45bb39fc63", 217, 150, 140672}},
	{TraceFewShot, 1, radixCounts{580784, 0, "1b48612323d231eb", 208, 200, 55859}},
	{TraceFewShot, 16, radixCounts{579504, 1280, "bd83fc9e7748f053", 208, 200, 55632}},
	{TraceFewShot, 64, radixCounts{574784, 6000, "b5f5ee45bc1f2c23", 208, 200, 55296}},
	{TraceTree, 1, radixCounts{296577, 0, "b20410cc98b8f3e0", 201, 104, 21943}},
	{TraceTree, 16, radixCounts{295392, 556, "01ad5548d560da83", 201, 104, 21696}},
	{TraceTree, 64, radixCounts{290752, 3049, "ef4c22186a65df23", 181, 97, 21760}},
	{TraceUnique, 1, radixCounts{0, 0, "64778a6835f7bae3", 200, 200, 464721}},
	{TraceUnique, 16, radixCounts{0, 0, "64778a6835f7bae3", 200, 200, 463216}},
}
