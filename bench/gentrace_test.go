package bench

import (
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// TestGenerateTraceIsPinned pins the traces by SHA-256, because figures are published
// for them. The sums are of the files that gentrace, an independent generator of the
// same four loads, writes for the same flags.
func TestGenerateTraceIsPinned(t *testing.T) {
	for _, tc := range []struct {
		TraceConfig
		want string
	}{
		{TraceConfig{Kind: TraceChat, Requests: 1, Seed: 7}, "2c2899f0d5a7fa3e31d95aa020a1c9ad2e2f95cb220d6511dff604112f70147c"},
		{TraceConfig{Kind: TraceFewShot, Requests: 1, Seed: 7}, "d27256978cd737c57c18b1d8caf4728df7d3fa76b0a1c2347739be98972a6087"},
		{TraceConfig{Kind: TraceTree, Requests: 1, Seed: 7}, "596f5513e230897db5043e8a677fad5a18e43c45b719769ab7cb58941757767f"},
		{TraceConfig{Kind: TraceUnique, Requests: 1, Seed: 7}, "609f4d836bc370df33954eb7b47a7e8bc4227a45525da05c10f5d6603e2db085"},
		{TraceConfig{Kind: TraceChat, Requests: 100, Seed: math.MaxUint64}, "4b6f015af1cf5730a5d8be88b7cc1ac9ba36e8aaaf9e5343eb10d256ba52a6ce"},
		{TraceConfig{Kind: TraceFewShot, Requests: 100, Seed: math.MaxUint64}, "8a1381fcd90dc26ad90fd812018bf3b7bd326c29661f8b965792388726b19c87"},
		{TraceConfig{Kind: TraceTree, Requests: 100, Seed: math.MaxUint64}, "11ec28ced49fa7541158f2277075046e37212d71fdf0ae613642169e6930da11"},
		{TraceConfig{Kind: TraceUnique, Requests: 100, Seed: math.MaxUint64}, "64b0d6cd45d20d7d3c597bc216d9834a6de1a09230bd521cc96a18fe4a6766e7"},
		// Long enough that conversations end, and that thoughts too long are followed by the stem.
		{TraceConfig{Kind: TraceChat, Requests: 2000, Seed: 7}, "376dee74b9a0a1a5ec7f6f19af85ae256e3351b79d4495bcd8b9a3c37276c1b3"},
		{TraceConfig{Kind: TraceFewShot, Requests: 2000, Seed: 7}, "748e97a9349d7a4b288241c6249dd5ee863d256ad41ae7a89afb48682e365e37"},
		{TraceConfig{Kind: TraceTree, Requests: 2000, Seed: 7}, "cb0374d57df23860bebeb63d48ec59b34006844ecb7ee5e15bec39d7f08c82f6"},
		{TraceConfig{Kind: TraceUnique, Requests: 2000, Seed: 7}, "5664638fcc43df6cc6e2ef4299a791525fe9677932ad36d04c537bb3e26a92d4"},
	} {
		tr, err := GenerateTrace(tc.TraceConfig)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.New()
		if _, err := tr.WriteTo(sum); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%x", sum.Sum(nil)); got != tc.want {
			t.Errorf("%v, %d requests, seed %d: %s, want %s", tc.Kind, tc.Requests, tc.Seed, got, tc.want)
		}
	}
}

// TestTracesShareNoMemory checks that no two requests share a slice: a shared one would
// be warm in the CPU caches when it should be cold, and a write would change both.
func TestTracesShareNoMemory(t *testing.T) {
	for _, kind := range traceKinds.Values() {
		tr, err := GenerateTrace(TraceConfig{Kind: kind, Requests: 300, Seed: 5})
		if err != nil {
			t.Fatal(err)
		}
		first := map[any]int{}
		for i := range tr.Requests() {
			at := &tr.Request(i)[0]
			if j, seen := first[at]; seen {
				t.Fatalf("%v: requests %d and %d are one slice", kind, j, i)
			}
			first[at] = i
		}
	}
}

func TestGenerateTraceRefuses(t *testing.T) {
	for _, tc := range []struct {
		cfg  TraceConfig
		want string
	}{
		{TraceConfig{Requests: 0}, "Requests is 0, want 1 to 1048576"},
		{TraceConfig{Requests: -1}, "Requests is -1"},
		{TraceConfig{Requests: MaxTraceRequests + 1}, "Requests is 1048577"},
		{TraceConfig{Requests: 1000, MaxTokens: 4096}, "1000 requests of trace chat have about"},
		{TraceConfig{Kind: 4, Requests: 1}, "trace(4)"},
	} {
		if _, err := GenerateTrace(tc.cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: error %v, want %q", tc.cfg, err, tc.want)
		}
	}
}

func TestTraceKindNames(t *testing.T) {
	var names []string
	for _, kind := range traceKinds.Values() {
		var got TraceKind
		if err := got.UnmarshalText([]byte(kind.String())); err != nil || got != kind {
			t.Errorf("%v read back as %v, %v", kind, got, err)
		}
		names = append(names, kind.String())
	}
	if want := []string{"chat", "fewshot", "tree", "unique"}; !slices.Equal(names, want) {
		t.Errorf("names %v", names)
	}
	got := TraceTree
	if err := got.UnmarshalText([]byte("Chat")); err == nil || got != TraceTree || !strings.Contains(err.Error(), "chat, fewshot, tree or unique") {
		t.Errorf("Chat is %v, %v", got, err)
	}
}
