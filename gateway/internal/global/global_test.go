package global

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

const agg = `{
  "mode": "agg", "num_agg_pools": 2, "agg_pool_dynamo_namespaces": ["a0", "a1"],
  "agg_pool_selection_strategy": {
    "ttft_min_ms": 10, "ttft_max_ms": 3000, "ttft_resolution": 2, "itl_min_ms": 5, "itl_max_ms": 200, "itl_resolution": 2,
    "agg_pool_mapping": [[0, 1], [1, 1]], "priority_overrides": [{"min": 5, "max": 10, "target": 1}]}
}`

func parse(t *testing.T, text string) *Config {
	t.Helper()
	c, _, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAxis(t *testing.T) {
	for _, tc := range []struct {
		axis Axis
		v    float64
		want int
	}{
		{Axis{0, 24576, 2}, 4096, 0}, {Axis{0, 24576, 2}, 16384, 1}, {Axis{0, 24576, 2}, 12288, 1}, {Axis{0, 24576, 2}, 12287, 0},
		{Axis{10, 3000, 2}, 1505, 1}, {Axis{10, 3000, 2}, 1504.9, 0}, {Axis{10, 3000, 2}, 3000, 1}, {Axis{10, 3000, 2}, 1e300, 1},
		{Axis{10, 3000, 2}, -1e300, 0}, {Axis{10, 3000, 2}, 9, 0}, {Axis{10, 3000, 2}, 0, 0}, {Axis{0, 1, 10}, 0.3, 2}, // 0.3/0.1 is below 3 in float64
		{Axis{0, 1, 1}, 0.99, 0}, {Axis{-10, 10, 4}, -0.001, 1},
	} {
		if got, err := tc.axis.Index(tc.v); err != nil || got != tc.want {
			t.Errorf("%v in %+v: %d, %v; want %d", tc.v, tc.axis, got, err, tc.want)
		}
	}
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		if _, err := (Axis{0, 1, 2}).Index(v); !errors.Is(err, ErrQuery) {
			t.Errorf("%v: %v", v, err)
		}
	}
}

// TestAggregated has the numbers of Dynamo's tests.
func TestAggregated(t *testing.T) {
	c := parse(t, agg)
	none := math.NaN()
	target := func(v float64) *float64 {
		if math.IsNaN(v) {
			return nil
		}
		return new(v)
	}
	for _, tc := range []struct {
		ttft, itl float64
		want      int
	}{
		{100, 10, 0}, {100, 150, 1}, {2000, 10, 1}, {2000, 150, 1}, {none, 10, 1}, {100, none, 1}, {none, none, 1}, {0, 0, 0}, {10000, 1000, 1},
	} {
		if got, err := c.AggregatedPool(Query{TTFT: target(tc.ttft), ITL: target(tc.itl)}); err != nil || got != tc.want {
			t.Errorf("(%v, %v): %d, %v; want %d", tc.ttft, tc.itl, got, err, tc.want)
		}
	}
	c.DefaultTTFT, c.DefaultITL = new(100.0), new(10.0)
	if got, _ := c.AggregatedPool(Query{}); got != 0 {
		t.Errorf("with default targets: %d", got)
	}
	byLength := strings.NewReplacer(`"ttft_resolution": 2`, `"ttft_resolution": 1`, `"itl_resolution": 2`, `"itl_resolution": 1`,
		`[[0, 1], [1, 1]]`, `[[[0]], [[1]]], "isl_min": 0, "isl_max": 24576, "isl_resolution": 2`).Replace(agg)
	c = parse(t, byLength)
	for tokens, want := range map[int]int{4096: 0, 16384: 1} {
		if got, err := c.AggregatedPool(Query{Tokens: tokens}); err != nil || got != want {
			t.Errorf("%d tokens: %d, %v", tokens, got, err)
		}
	}
	for _, q := range []Query{{Tokens: -1}, {TTFT: new(math.NaN())}, {TTFT: new(math.Inf(1))}, {ITL: new(math.Inf(-1))}} {
		if _, err := c.AggregatedPool(q); !errors.Is(err, ErrQuery) {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

func TestOverrides(t *testing.T) {
	c := parse(t, agg)
	for priority, want := range map[int]int{4: 0, 5: 1, 10: 1, 11: 0} {
		if got, err := c.AggregatedPool(Query{TTFT: new(10.0), ITL: new(10.0), Priority: &priority}); err != nil || got != want {
			t.Errorf("priority %d: pool %d, %v; want %d", priority, got, err, want)
		}
	}
	five := 5
	if got := overridden(7, []Override{{0, 9, 1}, {5, 6, 2}}, &five); got != 1 {
		t.Errorf("the first that matches is 1, got %d", got)
	}
}

// TestDisaggregated: only the mode of a file for prefill and decode pools is read.
func TestDisaggregated(t *testing.T) {
	for _, text := range []string{`{"num_prefill_pools": 2}`, `{"mode": "disagg", "num_decode_pools": true}`, strings.Replace(agg, `"mode": "agg", `, "", 1)} {
		if c, _, err := Parse([]byte(text)); c != nil || err != ErrDisaggregated {
			t.Errorf("%s: %+v, %v", text, c, err)
		}
	}
	if _, err := (&Config{}).AggregatedPool(Query{}); !errors.Is(err, ErrQuery) {
		t.Errorf("no grid has a pool: %v", err)
	}
}

func TestWarnings(t *testing.T) {
	_, warnings, err := Parse([]byte(agg))
	if err != nil || warnings != nil {
		t.Errorf("%q, %v", warnings, err)
	}
	_, warnings, err = Parse([]byte(strings.NewReplacer("ttft_min_ms", "ttft_min", "itl_max_ms", "itl_max").Replace(agg)))
	if err != nil || len(warnings) != 2 || !strings.Contains(warnings[0], `"ttft_min" is called "ttft_min_ms"`) {
		t.Errorf("%q, %v", warnings, err)
	}
}

func TestRefusedConfigs(t *testing.T) {
	for _, tc := range []struct{ from, to, want string }{
		{`["a0", "a1"]`, `["a0"]`, "num_agg_pools (2) does not match agg_pool_dynamo_namespaces length (1)"},
		{`"ttft_resolution": 2`, `"ttft_resolution": -1`, "ttft_resolution must be positive"},
		{`"itl_resolution": 2`, `"itl_resolution": 0`, "itl_resolution must be positive"},
		{`"ttft_max_ms": 3000`, `"ttft_max_ms": 9`, "ttft_min must be less than"},
		{`"itl_max_ms": 200`, `"itl_max_ms": 5`, "itl_min must be less than"},
		{`"target": 1`, `"target": 2`, "target 2 is out of range"},
		{`"min": 5`, `"min": 11`, "min (11) is more than max (10)"},
		{`"num_agg_pools": 2,`, ``, `missing key "num_agg_pools"`},
		{`"num_agg_pools": 2`, `"num_agg_pools": true`, "bool"},
		{`"itl_max_ms": 200,`, ``, `missing key "itl_max_ms"`},
		{`"itl_max_ms": 200,`, `"itl_max_ms": 200, "itl_max": 200,`, `both "itl_max"`},
		{`"itl_min_ms": 5`, `"itl_minimum": 5`, "itl_minimum"},
		{`"itl_min_ms": 5`, `"itl_min_ms": NaN`, "invalid character"},
		{`"mode": "agg"`, `"mode": "both"`, "unknown mode"},
		{`"mode": "agg"`, `"mode": 5`, "mode: json: cannot unmarshal number"},
		{`{`, `{"agg_pool_priorities": [1],`, "agg_pool_priorities length (1) does not match num_agg_pools (2)"},
		{`{`, `{"agg_pool_priorities": [1, true],`, "bool"},
		{`[[0, 1], [1, 1]]`, `[[0, 1], [1, 1]], "isl_min": 0`, `missing key "isl_max"`},
		{`[[0, 1], [1, 1]]`, `[[[0, 1], [1, 1]]]`, "agg_pool_mapping"},
		{`[[0, 1], [1, 1]]`, `[[0, 1]]`, "agg_pool_mapping rows (1) does not match ttft_resolution (2)"},
		{`[[0, 1], [1, 1]]`, `[[0, 1], [1]]`, "agg_pool_mapping row 1 length (1) does not match itl_resolution (2)"},
		{`[[0, 1], [1, 1]]`, `[[0, 1], [1, 2]]`, "Invalid agg pool index 2"},
		{`[[0, 1], [1, 1]]`, `[[[0, 1], [1, 1]]], "isl_min": 0, "isl_max": 9, "isl_resolution": 2`, "planes (1) does not match isl_resolution (2)"},
		{`"agg_pool_mapping": [[0, 1], [1, 1]],`, ``, `missing key "agg_pool_mapping"`},
		{`"agg_pool_selection_strategy"`, `"prefill_pool_selection_strategy"`, `prefill_pool_selection_strategy`},
	} {
		text := strings.Replace(agg, tc.from, tc.to, 1)
		if text == agg {
			t.Fatalf("%q is not in the configuration", tc.from)
		}
		if c, _, err := Parse([]byte(text)); c != nil || err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s -> %s: %v, want %q", tc.from, tc.to, err, tc.want)
		}
	}
	if _, _, err := Parse([]byte(agg + agg)); err == nil {
		t.Error("two objects are read")
	}
	c := parse(t, agg)
	c.DefaultTTFT = new(math.NaN())
	c.AggregatedStrategy.ITL.Max = math.Inf(1)
	c.AggregatedStrategy.TTFT.Min = math.NaN()
	for _, want := range []string{"default TTFT is NaN", "itl_min must", "ttft_min must"} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestRetry(t *testing.T) {
	pools := Pools{Count: 5, Priorities: []int{3, 1, 2, 1, 3}}
	c := &Config{PriorityRetry: true, Aggregated: pools}
	for pool, want := range [][]int{{0, 2, 1, 3}, {1}, {2, 1, 3}, {3}, {4, 2, 1, 3}} {
		if got := c.Retry(pool); !slices.Equal(got, want) {
			t.Errorf("from %d: %v, want %v", pool, got, want)
		}
	}
	if got := (&Config{Aggregated: pools}).Retry(0); len(got) != 1 {
		t.Errorf("without retry: %v", got)
	}
	c.Aggregated = Pools{Count: 2}
	if got := c.Retry(0); !slices.Equal(got, []int{0}) {
		t.Errorf("without priorities: %v", got)
	}
}

// FuzzParse: every accepted configuration chooses an existing pool for any query.
func FuzzParse(f *testing.F) {
	f.Add([]byte(agg), 1<<40, -1e300, 1e300, -3)
	f.Fuzz(func(t *testing.T, text []byte, tokens int, ttft, itl float64, priority int) {
		c, _, err := Parse(text)
		if err != nil {
			return
		}
		pool, err := c.AggregatedPool(Query{Tokens: tokens, TTFT: &ttft, ITL: &itl, Priority: &priority})
		if err == nil && (pool < 0 || pool >= c.Aggregated.Count) {
			t.Fatalf("pool %d of %d", pool, c.Aggregated.Count)
		}
	})
}
