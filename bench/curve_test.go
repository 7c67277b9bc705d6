package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/internal/invariants"
)

func TestCompareCurve(t *testing.T) {
	if invariants.Enabled {
		t.Skip("a full walk after each of thousands of mutations takes minutes")
	}
	recorded, err := OpenMooncake(mooncakeSample)
	if err != nil {
		t.Fatal(err)
	}
	traces := []NamedTrace{
		{Name: "chat", Trace: generated(t, TraceChat, 400)},
		{Name: "tree", Trace: generated(t, TraceTree, 400)},
		{Name: "unique", Trace: generated(t, TraceUnique, 30)},
		{Name: "recorded", Trace: recorded, Scale: MooncakeScale},
	}
	cfg, steps := CurveConfig{Factors: []float64{0.5, 1, 2, 10}}, 0
	table, err := CompareCurve(t.Context(), traces, cfg, func() { steps++ })
	if err != nil {
		t.Fatal(err)
	}
	if want := cfg.Steps(len(traces)); steps != want {
		t.Errorf("%d steps, announced were %d", steps, want)
	}
	if table.PageTokens != 16 || table.Samples != 16384 || len(table.Traces) != len(traces) {
		t.Fatalf("%+v", table)
	}
	for i, got := range table.Traces {
		checkCurveTrace(t, traces[i], got)
	}
	if table.worst() > 2 {
		t.Errorf("the curve is %.2f points off", table.worst())
	}

	again, err := CompareCurve(t.Context(), traces, cfg, nil)
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
	var back CurveTable
	if err := json.Unmarshal(first.Bytes(), &back); err != nil || back.Traces[0].Points[0] != table.Traces[0].Points[0] {
		t.Errorf("%v, %+v", err, back)
	}
}

// checkCurveTrace compares got, the part of the table for one trace, with figures computed in
// other ways.
func checkCurveTrace(t *testing.T, named NamedTrace, got CurveTrace) {
	t.Helper()
	naive, all := naiveCounts(named.Trace, 16), float64(named.Trace.Tokens())
	if got.Name != named.Name || got.Requests != named.Trace.Requests() || got.Tokens != named.Trace.Tokens() ||
		got.Scale != max(1, named.Scale) || got.WorkingSetTokens != naive.cached || len(got.Points) != 4 {
		t.Errorf("%+v, of a cache without limit %+v", got, naive)
	}
	if one := got.Points[1]; one.Factor != 1 || one.CapacityTokens != got.BaseTokens {
		t.Errorf("%s: base %d, 1x is %+v", got.Name, got.BaseTokens, one)
	}
	for j, p := range got.Points {
		radix := RadixConfig{Trim: true, CapacityTokens: p.CapacityTokens}
		matched, err := replayPolicy(t.Context(), named, radix)
		if err != nil || p.Simulated != float64(matched)/all || p.Difference != 100*(p.Curve-p.Simulated) {
			t.Errorf("%s: %+v, replayed %d, %v", got.Name, p, matched, err)
		}
		if p.CapacityTokens%16 != 0 || p.CapacityTokens < named.Trace.longest/16*16 || j > 0 && p.Curve < got.Points[j-1].Curve {
			t.Errorf("%s: %+v", got.Name, p)
		}
		if j == 3 && p.Simulated != float64(naive.matched)/all {
			t.Errorf("%s with room for all: %+v, ideal %d tokens", got.Name, p, naive.matched)
		}
	}
}

func TestCompareCurveBadInput(t *testing.T) {
	good := []NamedTrace{{Name: "few", Trace: generated(t, TraceFewShot, 20)}}
	for _, tc := range []struct {
		name   string
		traces []NamedTrace
		cfg    CurveConfig
		want   string
	}{
		{"no trace", nil, CurveConfig{}, "nothing to compare"},
		{"no factors", good, CurveConfig{Factors: []float64{}}, "nothing to compare"},
		{"no requests", []NamedTrace{{Name: "none", Trace: &Trace{}}}, CurveConfig{}, "trace none: "},
		{"a factor of nothing", good, CurveConfig{Factors: []float64{1, 0}}, "Factors has 0"},
		{"not a factor", good, CurveConfig{Factors: []float64{math.NaN()}}, "Factors has NaN"},
		{"too large a factor", good, CurveConfig{Factors: []float64{1e7}}, "Factors has 1e+07"},
		{"too large a share", good, CurveConfig{BaseShare: 1.5}, "BaseShare is 1.5"},
		{"few samples", good, CurveConfig{Samples: 5}, "Samples is 5"},
		{"bad pages", good, CurveConfig{PageTokens: -3}, "-3"},
		{"bad scale", []NamedTrace{{Name: "few", Trace: good[0].Trace, Scale: -1}}, CurveConfig{}, "Scale is -1"},
	} {
		if table, err := CompareCurve(t.Context(), tc.traces, tc.cfg, nil); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, %v", tc.name, table, err)
		}
	}
	stop := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	if _, err := CompareCurve(ctx, good, CurveConfig{}, nil); !errors.Is(err, stop) {
		t.Errorf("after the end of its context: %v", err)
	}
}

// TestCurveTableText pins the printed table.
func TestCurveTableText(t *testing.T) {
	table := &CurveTable{PageTokens: 16, Samples: 1024, Traces: []CurveTrace{
		{TraceSizes: TraceSizes{"a", 2, 400, 1, 320, 0}, BaseTokens: 32, Points: []CurvePoint{
			{Factor: 0.25, CapacityTokens: 16, Simulated: 0.25, Curve: 0.241, Difference: -0.9},
			{Factor: 8, CapacityTokens: 256, Simulated: 0.5, Curve: 0.5025, Difference: 0.25},
		}},
		{TraceSizes: TraceSizes{"b", 1, 48, 32, 48, 0}, BaseTokens: 48, Points: []CurvePoint{{Factor: 1, CapacityTokens: 48}}},
	}}
	const legend = `
Pages of 16 tokens, LRU. size: of the cache, as a multiple of the predicting one, and in tokens, at
least the longest request. simulated: hit rate by tokens of a cache of this size. curve: the hit rate
that the cache of size 1x predicted with a live curve of 1024 samples. difference: in points, the
largest 0.90.

a: 2 requests, 400 tokens, 320 of them in the working set; 1x is 32.
b: 1 requests, 48 tokens (each stands for 32 served ones), 48 of them in the working set; 1x is 48.
`
	var plain, markdown bytes.Buffer
	if err := errors.Join(WriteTable(&plain, table), WriteMarkdown(&markdown, table)); err != nil {
		t.Fatal(err)
	}
	const wantMarkdown = `| trace | size | tokens | simulated | curve | difference |
|---|---:|---:|---:|---:|---:|
| a | 0.25x | 16 | 25.00 % | 24.10 % | -0.90 |
|  | 8x | 256 | 50.00 % | 50.25 % | +0.25 |
| b | 1x | 48 | 0.00 % | 0.00 % | +0.00 |
`
	if got := markdown.String(); got != wantMarkdown+legend {
		t.Errorf("Markdown:\n%s", got)
	}
	const wantPlain = `  trace   size  tokens  simulated    curve  difference
      a  0.25x      16    25.00 %  24.10 %       -0.90
            8x     256    50.00 %  50.25 %       +0.25
      b     1x      48     0.00 %   0.00 %       +0.00
`
	if got := plain.String(); got != wantPlain+legend {
		t.Errorf("table:\n%s", got)
	}
}
