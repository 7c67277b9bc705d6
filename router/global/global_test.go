package global

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

const disagg = `{
  "num_prefill_pools": 2, "num_decode_pools": 2,
  "prefill_pool_dynamo_namespaces": ["p0", "p1"], "decode_pool_dynamo_namespaces": ["d0", "d1"],
  "prefill_pool_selection_strategy": {
    "ttft_min": 10, "ttft_max": 3000, "ttft_resolution": 2, "isl_min": 0, "isl_max": 32000, "isl_resolution": 2,
    "prefill_pool_mapping": [[0, 1], [1, 1]]},
  "decode_pool_selection_strategy": {
    "itl_min_ms": 5, "itl_max_ms": 200, "itl_resolution": 2,
    "context_length_min": 0, "context_length_max": 30000, "context_length_resolution": 3,
    "decode_pool_mapping": [[0, 0], [0, 1], [1, 1]], "priority_overrides": [{"min": 5, "max": 10, "target": 1}]}
}`

const agg = `{
  "mode": "agg", "num_agg_pools": 2, "agg_pool_dynamo_namespaces": ["a0", "a1"],
  "agg_pool_selection_strategy": {
    "ttft_min_ms": 10, "ttft_max_ms": 3000, "ttft_resolution": 2, "itl_min_ms": 5, "itl_max_ms": 200, "itl_resolution": 2,
    "agg_pool_mapping": [[0, 1], [1, 1]]}
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

// TestAggregated has the figures of Dynamo's tests.
func TestAggregated(t *testing.T) {
	c := parse(t, agg)
	none := math.NaN()
	target := func(v float64) *float64 {
		if math.IsNaN(v) {
			return nil
		}
		return Target(v)
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
	c.DefaultTTFT, c.DefaultITL = Target(100), Target(10)
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
	if _, err := c.PrefillPool(Query{}); !errors.Is(err, ErrQuery) {
		t.Errorf("a prefill pool in mode agg: %v", err)
	}
	if _, err := c.DecodePool(Query{}); !errors.Is(err, ErrQuery) {
		t.Errorf("a decode pool in mode agg: %v", err)
	}
}

func TestDisaggregated(t *testing.T) {
	c := parse(t, disagg)
	at := func(p int) *int { return &p }
	for _, tc := range []struct {
		q               Query
		prefill, decode int
	}{
		{Query{Tokens: 100, TTFT: Target(100), ITL: Target(10)}, 0, 0},
		{Query{Tokens: 100}, 1, 0},
		{Query{Tokens: 15999, TTFT: Target(1504)}, 0, 1}, // ITL is 102.5, the last column
		{Query{Tokens: 16000, TTFT: Target(10), ITL: Target(102)}, 1, 0},
		{Query{Tokens: 1 << 40}, 1, 1},
		{Query{Tokens: 0, TTFT: Target(-5), ITL: Target(-5)}, 0, 0},
		{Query{TTFT: Target(10), ITL: Target(10), Priority: at(5)}, 0, 1},
		{Query{TTFT: Target(10), ITL: Target(10), Priority: at(10)}, 0, 1},
		{Query{TTFT: Target(10), ITL: Target(10), Priority: at(4)}, 0, 0},
		{Query{TTFT: Target(10), ITL: Target(10), Priority: at(11)}, 0, 0},
	} {
		p, err := c.PrefillPool(tc.q)
		if err != nil || p != tc.prefill {
			t.Errorf("%+v: prefill pool %d, %v; want %d", tc.q, p, err, tc.prefill)
		}
		d, err := c.DecodePool(tc.q)
		if err != nil || d != tc.decode {
			t.Errorf("%+v: decode pool %d, %v; want %d", tc.q, d, err, tc.decode)
		}
	}
	for _, q := range []Query{{Tokens: -1}, {TTFT: Target(math.NaN()), ITL: Target(math.NaN())}, {TTFT: Target(math.Inf(1)), ITL: Target(math.Inf(-1))}} {
		_, prefill := c.PrefillPool(q)
		_, decode := c.DecodePool(q)
		if !errors.Is(prefill, ErrQuery) || !errors.Is(decode, ErrQuery) {
			t.Errorf("%+v: %v, %v", q, prefill, decode)
		}
	}
	if _, err := c.AggregatedPool(Query{}); !errors.Is(err, ErrQuery) {
		t.Errorf("an aggregated pool in mode disagg: %v", err)
	}
	if got := overridden(7, []Override{{0, 9, 1}, {5, 6, 2}}, at(5)); got != 1 {
		t.Errorf("the first that matches is 1, got %d", got)
	}
}

func TestWarnings(t *testing.T) {
	_, warnings, err := Parse([]byte(disagg))
	if err != nil || len(warnings) != 2 || !strings.Contains(warnings[0], `"ttft_min" in prefill_pool_selection_strategy is called "ttft_min_ms"`) {
		t.Errorf("%q, %v", warnings, err)
	}
	if _, warnings, _ = Parse([]byte(agg)); warnings != nil {
		t.Errorf("%q", warnings)
	}
}

func TestRefusedConfigs(t *testing.T) {
	for _, tc := range []struct{ in, from, to, want string }{
		{disagg, `["p0", "p1"]`, `["p0"]`, "num_prefill_pools (2) does not match prefill_pool_dynamo_namespaces length (1)"},
		{disagg, `["d0", "d1"]`, `["d0"]`, "num_decode_pools (2) does not match decode_pool_dynamo_namespaces length (1)"},
		{disagg, `"isl_resolution": 2`, `"isl_resolution": 0`, "isl_resolution must be positive"},
		{disagg, `"ttft_resolution": 2`, `"ttft_resolution": -1`, "ttft_resolution must be positive"},
		{disagg, `"isl_min": 0`, `"isl_min": 32000`, "isl_min must be less than"},
		{disagg, `"ttft_max": 3000`, `"ttft_max": 9`, "ttft_min must be less than"},
		{disagg, `"context_length_resolution": 3`, `"context_length_resolution": 0`, "context_length_resolution must be positive"},
		{disagg, `"itl_resolution": 2`, `"itl_resolution": 0`, "itl_resolution must be positive"},
		{disagg, `"context_length_max": 30000`, `"context_length_max": 0`, "context_length_min must be less than"},
		{disagg, `"itl_max_ms": 200`, `"itl_max_ms": 5`, "itl_min must be less than"},
		{disagg, `[[0, 1], [1, 1]]`, `[[0, 1]]`, "prefill_pool_mapping rows (1) does not match isl_resolution (2)"},
		{disagg, `[[0, 1], [1, 1]]`, `[[0, 1], [1]]`, "prefill_pool_mapping row 1 length (1) does not match ttft_resolution (2)"},
		{disagg, `[[0, 1], [1, 1]]`, `[[0, 1], [1, 2]]`, "Invalid prefill pool index 2 in mapping (must be 0 to 1)"},
		{disagg, `[[0, 0], [0, 1], [1, 1]]`, `[[0, 0], [0, 1]]`, "decode_pool_mapping rows (2) does not match context_length_resolution (3)"},
		{disagg, `[[0, 0], [0, 1], [1, 1]]`, `[[0, 0], [0], [1, 1]]`, "decode_pool_mapping row 1 length (1) does not match itl_resolution (2)"},
		{disagg, `[[0, 0], [0, 1], [1, 1]]`, `[[0, -1], [0, 1], [1, 1]]`, "Invalid decode pool index -1"},
		{disagg, `"target": 1`, `"target": 2`, "target 2 is out of range"},
		{disagg, `"min": 5`, `"min": 11`, "min (11) is more than max (10)"},
		{disagg, `"num_prefill_pools": 2,`, ``, `missing key "num_prefill_pools"`},
		{disagg, `"num_prefill_pools": 2`, `"num_prefill_pools": true`, "bool"},
		{disagg, `"isl_max": 32000,`, ``, `missing key "isl_max" in prefill_pool_selection_strategy`},
		{disagg, `"itl_max_ms": 200,`, ``, `missing key "itl_max_ms" in decode_pool_selection_strategy`},
		{disagg, `"itl_max_ms": 200,`, `"itl_max_ms": 200, "itl_max": 200,`, `both "itl_max"`},
		{disagg, `"isl_min": 0`, `"isl_minimum": 0`, "isl_minimum"},
		{disagg, `"isl_min": 0`, `"isl_min": NaN`, "invalid character"},
		{disagg, `{`, `{"mode": "both",`, "unknown mode"},
		{disagg, `{`, `{"mode": "agg",`, `missing key "agg_pool_selection_strategy"`},
		{disagg, `{`, `{"prefill_pool_priorities": [1],`, "prefill_pool_priorities length (1) does not match num_prefill_pools (2)"},
		{disagg, `{`, `{"prefill_pool_priorities": [1, true],`, "bool"},
		{agg, `[[0, 1], [1, 1]]`, `[[0, 1], [1, 1]], "isl_min": 0`, `missing key "isl_max"`},
		{agg, `[[0, 1], [1, 1]]`, `[[[0, 1], [1, 1]]]`, "agg_pool_mapping"},
		{agg, `[[0, 1], [1, 1]]`, `[[0, 1], [1, 2]]`, "Invalid agg pool index 2"},
		{agg, `[[0, 1], [1, 1]]`, `[[[0, 1], [1, 1]]], "isl_min": 0, "isl_max": 9, "isl_resolution": 2`, "planes (1) does not match isl_resolution (2)"},
		{agg, `"agg_pool_mapping"`, `"prefill_pool_mapping"`, `missing key "agg_pool_mapping"`},
	} {
		text := strings.Replace(tc.in, tc.from, tc.to, 1)
		if text == tc.in {
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
	c.DefaultTTFT = Target(math.NaN())
	c.AggregatedStrategy.ITL.Max = math.Inf(1)
	c.AggregatedStrategy.TTFT.Min = math.NaN()
	for _, want := range []string{"default TTFT is NaN", "itl_min must", "ttft_min must"} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := (&Config{Mode: 7}).Validate(); err == nil || !strings.Contains(err.Error(), "mode(7)") {
		t.Error(err)
	}
}

func TestRetry(t *testing.T) {
	pools := &Pools{Count: 5, Priorities: []int{3, 1, 2, 1, 3}}
	c := &Config{PriorityRetry: true}
	for pool, want := range [][]int{{0, 2, 1, 3}, {1}, {2, 1, 3}, {3}, {4, 2, 1, 3}} {
		if got := c.Retry(pools, pool, nil); !slices.Equal(got, want) {
			t.Errorf("from %d: %v, want %v", pool, got, want)
		}
	}
	if got := (&Config{}).Retry(pools, 0, nil); len(got) != 1 {
		t.Errorf("without retry: %v", got)
	}
	if got := c.Retry(&Pools{Count: 2}, 0, []int{9}); !slices.Equal(got, []int{9, 0}) {
		t.Errorf("without priorities: %v", got)
	}
}

// FuzzParse: whatever is accepted chooses a pool that there is, for all queries.
func FuzzParse(f *testing.F) {
	f.Add([]byte(disagg), 100, 50.0, 10.0, 3)
	f.Add([]byte(agg), 1<<40, -1e300, 1e300, -3)
	f.Fuzz(func(t *testing.T, text []byte, tokens int, ttft, itl float64, priority int) {
		c, _, err := Parse(text)
		if err != nil {
			return
		}
		q := Query{Tokens: tokens, TTFT: &ttft, ITL: &itl, Priority: &priority}
		for name, choose := range map[string]func(Query) (int, error){"prefill": c.PrefillPool, "decode": c.DecodePool, "agg": c.AggregatedPool} {
			pool, err := choose(q)
			count := map[string]int{"prefill": c.Prefill.Count, "decode": c.Decode.Count, "agg": c.Aggregated.Count}[name]
			if err == nil && (pool < 0 || pool >= count) {
				t.Fatal(fmt.Sprint(name, " pool ", pool, " of ", count))
			}
		}
	})
}
