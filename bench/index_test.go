package bench

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/internal/invariants"
	"github.com/coppice-llm/coppice/kv"
)

// indexVariants returns configurations of all indexes, with one thread and several.
func indexVariants(block int) []IndexConfig {
	var all []IndexConfig
	for _, threads := range []int{1, 4} {
		all = append(all,
			IndexConfig{BlockTokens: block, Threads: threads, Passes: 1},
			IndexConfig{BlockTokens: block, Threads: threads, Passes: 1, Kind: IndexSharded, Shards: 5},
			IndexConfig{BlockTokens: block, Threads: threads, Passes: 1, Kind: IndexSharded, Shards: 3})
	}
	return all
}

var every = flag.Bool("every", false, "TestIndexSums: all indexes play the whole traces; TestCacheAwareIsNotLate: three times the requests")

// TestIndexSums checks the counts of all our indexes: for the tree trace against the
// published sums, on which six other implementations agree; for the chat trace against
// sums on which ours agree. Without -every, each kind of index plays the tree trace once,
// and all play the beginnings of both, for which their sums must be equal.
func TestIndexSums(t *testing.T) {
	requests := 600
	switch {
	case *every:
		requests = 10000
	case invariants.Enabled:
		requests = 100 // each write walks the whole index
	case !underRace:
		tr, variants := generated(t, TraceTree, 10000), indexVariants(64)
		for _, cfg := range []IndexConfig{variants[0], variants[4]} {
			if s, err := PlayIndex(t.Context(), tr, cfg, nil); err != nil || s.counts() != treeSums {
				t.Errorf("%+v: %v, %v; want %v", cfg, s.counts(), err, treeSums)
			}
		}
	}
	for _, tc := range []struct {
		kind  TraceKind
		block int
		want  [6]int // requests, blocks, best, own, stored, events
	}{
		{TraceTree, 16, [6]int{10000, 2271364, 2206156, 2053498, 217866, 10000}},
		{TraceTree, 64, treeSums},
		{TraceChat, 16, [6]int{10000, 2237303, 1894067, 1145787, 1091516, 10000}},
		{TraceChat, 64, [6]int{10000, 555600, 469864, 283061, 272539, 10000}},
	} {
		tr := generated(t, tc.kind, requests)
		for _, cfg := range indexVariants(tc.block) {
			s, err := PlayIndex(context.Background(), tr, cfg, nil)
			if err != nil {
				t.Fatal(err)
			}
			if requests < 10000 { // no published sums: compare with the first index
				tc.want[0] = requests
				if cfg.Kind == IndexRadix && cfg.Threads == 1 {
					tc.want = s.counts()
				}
			}
			if s.counts() != tc.want {
				t.Errorf("%v, blocks of %d, %+v: %v, want %v", tc.kind, tc.block, cfg, s.counts(), tc.want)
			}
			if s.FindP50 <= 0 || s.FindP99 < s.FindP50 || s.StorePerReq <= 0 || s.HashPerTok <= 0 || s.BlocksPerS <= 0 || s.BytesPerBlk <= 0 {
				t.Errorf("%+v: figures %+v", cfg, s)
			}
		}
	}
}

var treeSums = [6]int{10000, 564099, 547768, 509599, 54500, 9789} // of the tree trace, in blocks of 64 tokens

// TestIndexSumsByHand computes a short trace's sums with maps of prefixes.
func TestIndexSumsByHand(t *testing.T) {
	tr := generated(t, TraceChat, 120)
	const block, workers = 32, 3
	var want [6]int
	var held [workers]map[string]bool
	for i := range tr.Requests() {
		raw := ""
		var names []string
		for at := 0; at+block <= len(tr.Request(i)); at += block {
			raw += string(kv.AppendTokens(nil, tr.Request(i)[at:at+block]))
			names = append(names, raw)
		}
		overlap := func(w int) (n int) {
			for n < len(names) && held[w][names[n]] {
				n++
			}
			return n
		}
		best := 0
		for w := range workers {
			best = max(best, overlap(w))
		}
		own := overlap(i % workers)
		want[0]++
		want[1] += len(names)
		want[2] += best
		want[3] += own
		want[4] += len(names) - own
		if own < len(names) {
			want[5]++
		}
		if held[i%workers] == nil {
			held[i%workers] = map[string]bool{}
		}
		for _, name := range names {
			held[i%workers][name] = true
		}
	}
	for _, cfg := range indexVariants(block) {
		cfg.Workers = workers
		s, err := PlayIndex(context.Background(), tr, cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		if s.counts() != want {
			t.Errorf("%+v: %v, want %v", cfg, s.counts(), want)
		}
	}
}

func TestIndexProgressAndEnd(t *testing.T) {
	tr := generated(t, TraceFewShot, 300)
	cfg := IndexConfig{Passes: 2, Threads: 3, Kind: IndexSharded}
	steps := 0
	if _, err := PlayIndex(context.Background(), tr, cfg, func() { steps++ }); err != nil || steps != cfg.Steps() {
		t.Errorf("%d steps, want %d: %v", steps, cfg.Steps(), err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("enough")
	cancel(why)
	for _, threads := range []int{1, 3} {
		cfg.Threads = threads
		if _, err := PlayIndex(ctx, tr, cfg, nil); err != why {
			t.Errorf("%d threads: %v", threads, err)
		}
	}
}

func TestIndexBadConfig(t *testing.T) {
	tr := generated(t, TraceFewShot, 2)
	_, err := PlayIndex(context.Background(), tr, IndexConfig{Kind: 9, Workers: -1, BlockTokens: -2, Threads: -3, Passes: -4, Shards: -5}, nil)
	for _, want := range []string{"Kind is index(9)", "Workers is -1", "BlockTokens is -2", "Threads is -3", "Passes is -4", "Shards is -5"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	if _, err := PlayIndex(context.Background(), &Trace{}, IndexConfig{}, nil); err == nil || !strings.Contains(err.Error(), "no requests") {
		t.Error(err)
	}
	var k IndexKind
	if err := k.UnmarshalText([]byte("sharded")); err != nil || k != IndexSharded || k.UnmarshalText([]byte("x")) == nil {
		t.Error(k, err)
	}
}

func TestIndexReport(t *testing.T) {
	// Requests shorter than a block have no blocks, which is not an error.
	s, err := PlayIndex(context.Background(), generated(t, TraceFewShot, 5), IndexConfig{BlockTokens: 1 << 20, Passes: 1, Kind: IndexSharded, Threads: 2}, nil)
	if err != nil || s.Blocks != 0 || s.StoreEvents != 0 {
		t.Fatalf("%+v, %v", s, err)
	}
	checkKeys(t, reread[map[string]any](t, s), "requests blocks best_overlap_blocks own_overlap_blocks stored_blocks store_events find_ns_per_request_p50 find_ns_per_request_p99 store_ns_per_request hash_ns_per_token blocks_per_s bytes_per_worker_block")
	var b bytes.Buffer
	if err := WriteTable(&b, s); err != nil || !strings.Contains(b.String(), "bytes for a block of a worker") {
		t.Errorf("%v: %s", err, b.String())
	}
}
