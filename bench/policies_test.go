package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/internal/invariants"
)

func TestComparePolicies(t *testing.T) {
	if invariants.Enabled {
		t.Skip("a full walk after each of thousands of mutations takes minutes")
	}
	recorded, err := OpenMooncake(mooncakeSample)
	if err != nil {
		t.Fatal(err)
	}
	traces := []NamedTrace{
		{Name: "tree", Trace: generated(t, TraceTree, 300)},
		{Name: "unique", Trace: generated(t, TraceUnique, 30)},
		{Name: "recorded", Trace: recorded, Scale: MooncakeScale},
	}
	cfg, steps := PolicyConfig{Shares: []float64{0.25, 1}}, 0
	table, err := ComparePolicies(t.Context(), traces, cfg, func() { steps++ })
	if err != nil {
		t.Fatal(err)
	}
	if want := cfg.Steps(traces); steps != want {
		t.Errorf("%d steps, announced were %d", steps, want)
	}
	if table.PageTokens != 16 || len(table.Traces) != 3 || !slices.Equal(table.Policies, cachePolicies()) {
		t.Fatalf("%+v", table)
	}
	for i, got := range table.Traces {
		checkPolicyTrace(t, traces[i], got)
	}

	again, err := ComparePolicies(t.Context(), traces, cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	if err := errors.Join(WriteJSON(&first, table), WriteJSON(&second, again)); err != nil {
		t.Fatal(err)
	}
	if first.String() != second.String() {
		t.Errorf("two runs differ:\n%s\n%s", &first, &second)
	}
	var back PolicyTable
	if err := json.Unmarshal(first.Bytes(), &back); err != nil || back.Traces[0].Capacities[0].Policies[0] != table.Traces[0].Capacities[0].Policies[0] {
		t.Errorf("%v, %+v", err, back)
	}
}

// checkPolicyTrace compares got, the part of the table for one trace, with figures computed in
// other ways.
func checkPolicyTrace(t *testing.T, named NamedTrace, got PolicyTrace) {
	t.Helper()
	naive := naiveCounts(named.Trace, 16)
	if got.Name != named.Name || got.Requests != named.Trace.Requests() || got.Tokens != named.Trace.Tokens() || got.Scale != max(1, named.Scale) ||
		got.WorkingSetTokens != naive.cached || got.IdealTokens != naive.matched || len(got.Capacities) != 2 {
		t.Errorf("%+v, of a cache without limit %+v", got, naive)
	}
	paged, err := newPageTrace(named.Trace, 16)
	if err != nil {
		t.Fatal(err)
	}
	for j, c := range got.Capacities {
		best := clairvoyantTokens(t, paged, 16, c.CapacityTokens/16)
		if c.ClairvoyantTokens != best || c.CapacityTokens%16 != 0 || c.CapacityTokens < named.Trace.longest/16*16 || c.ClairvoyantRate != float64(best)/float64(got.Tokens) {
			t.Errorf("%s: %+v, clairvoyant %d", got.Name, c, best)
		}
		for _, r := range c.Policies {
			if j == 1 && (r.SavedTokens != got.IdealTokens || r.OfBest != 1) {
				t.Errorf("%s, %s with room for all: %+v, ideal %d", got.Name, r.Policy, r, got.IdealTokens)
			}
			if r.SavedTokens > best || r.HitRate != float64(r.SavedTokens)/float64(got.Tokens) {
				t.Errorf("%s, %s: %+v, clairvoyant %d", got.Name, r.Policy, r, best)
			}
		}
	}
}

func TestComparePoliciesBadInput(t *testing.T) {
	good := []NamedTrace{{Name: "few", Trace: generated(t, TraceFewShot, 20)}}
	for _, tc := range []struct {
		name   string
		traces []NamedTrace
		cfg    PolicyConfig
		want   string
	}{
		{"no traces", nil, PolicyConfig{}, "nothing to compare"},
		{"no policies", good, PolicyConfig{Policies: []string{}}, "nothing to compare"},
		{"an empty trace", append([]NamedTrace{{Name: "void", Trace: &Trace{}}}, good...), PolicyConfig{}, "trace void: bench: the trace has no requests"},
		{"an unknown policy", good, PolicyConfig{Policies: []string{"lru", "oracle"}}, `"oracle"`},
		{"no share", good, PolicyConfig{Shares: []float64{0.5, 0}}, "Shares has 0"},
		{"too large a share", good, PolicyConfig{Shares: []float64{1.5}}, "Shares has 1.5"},
		{"bad pages", good, PolicyConfig{PageTokens: -3}, "-3"},
		{"bad scale", []NamedTrace{{Name: "few", Trace: good[0].Trace, Scale: -1}}, PolicyConfig{}, "Scale is -1"},
	} {
		if table, err := ComparePolicies(t.Context(), tc.traces, tc.cfg, nil); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, %v", tc.name, table, err)
		}
	}
	stop := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	if _, err := ComparePolicies(ctx, good, PolicyConfig{}, nil); !errors.Is(err, stop) {
		t.Errorf("after the end of its context: %v", err)
	}
}

// TestPolicyTableText pins the printed table.
func TestPolicyTableText(t *testing.T) {
	table := &PolicyTable{PageTokens: 16, Policies: []string{"lru", "cost-aware"}, Traces: []PolicyTrace{
		{TraceSizes: TraceSizes{"a", 2, 400, 1, 320, 0}, IdealTokens: 200, Capacities: []PolicyCapacity{
			{Share: 0.05, CapacityTokens: 16, ClairvoyantTokens: 160, Policies: []PolicyResult{{SavedTokens: 80}, {SavedTokens: 120}}},
			{Share: 0.125, CapacityTokens: 48, ClairvoyantTokens: 200, Policies: []PolicyResult{{SavedTokens: 150}, {SavedTokens: 200}}},
		}},
		{TraceSizes: TraceSizes{"b", 1, 48, 32, 48, 0}, Capacities: []PolicyCapacity{
			{Share: 0.1, CapacityTokens: 48, Policies: make([]PolicyResult, 2)},
		}},
	}}
	table.rate()
	const legend = `
Pages of 16 tokens. room: share of the working set that the cache may hold, and the same in tokens,
at least the longest request. best: tokens that clairvoyant eviction saves, and their share of all
tokens (the hit rate). Policies: tokens saved, and their share of the best.

a: 2 requests, 400 tokens, 320 of them in the working set; with room for all 200 are saved.
b: 1 requests, 48 tokens (each stands for 32 served ones), 48 of them in the working set; with room for all 0 are saved.
`
	var plain, markdown bytes.Buffer
	if err := errors.Join(WriteTable(&plain, table), WriteMarkdown(&markdown, table)); err != nil {
		t.Fatal(err)
	}
	const wantMarkdown = `| trace | room | tokens | best | lru | cost-aware |
|---|---:|---:|---:|---:|---:|
| a | 5 % | 16 | 160 (40.00 %) | 80 (50.00 %) | 120 (75.00 %) |
|  | 12.5 % | 48 | 200 (50.00 %) | 150 (75.00 %) | 200 (100.00 %) |
| b | 10 % | 48 | 0 (0.00 %) | 0 (100.00 %) | 0 (100.00 %) |
`
	if got := markdown.String(); got != wantMarkdown+legend {
		t.Errorf("Markdown:\n%s", got)
	}
	const wantPlain = `  trace    room  tokens           best            lru      cost-aware
      a     5 %      16  160 (40.00 %)   80 (50.00 %)   120 (75.00 %)
         12.5 %      48  200 (50.00 %)  150 (75.00 %)  200 (100.00 %)
      b    10 %      48     0 (0.00 %)   0 (100.00 %)    0 (100.00 %)
`
	if got := plain.String(); got != wantPlain+legend {
		t.Errorf("table:\n%s", got)
	}
}

// TestRateFindsImpossible checks that rate panics on a replay above the clairvoyant
// bound: one of the two must be wrong, and the table must not be printed.
func TestRateFindsImpossible(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a policy better than clairvoyant was accepted")
		}
	}()
	table := &PolicyTable{Traces: []PolicyTrace{{TraceSizes: TraceSizes{Tokens: 9}, Capacities: []PolicyCapacity{{ClairvoyantTokens: 1, Policies: []PolicyResult{{SavedTokens: 2}}}}}}}
	table.rate()
}
