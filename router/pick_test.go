package router

import (
	"math"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// candidates returns a router with one candidate for each of costs, with that cost.
func candidates(t testing.TB, seed uint64, costs ...float64) *Router {
	r := newRouter(t, Config{Seed: seed}, make([]WorkerSpec, len(costs))...)
	r.scorer.reset(len(costs))
	for i, c := range costs {
		r.scorer.costs[i] = c
		r.scorer.candidates = append(r.scorer.candidates, int32(i))
	}
	return r
}

func TestLowestOfTies(t *testing.T) {
	for _, tc := range []struct {
		name  string
		costs []float64
		trees []int
		want  []int32
	}{
		{"one", []float64{7}, nil, []int32{0}},
		{"the lowest", []float64{5, 3, 7, 3.5}, nil, []int32{1}},
		{"two of them", []float64{5, 3, 7, 3}, nil, []int32{1, 3}},
		{"negative", []float64{-1, -5, 0}, nil, []int32{1}},
		{"all", []float64{0, 0, 0}, nil, []int32{0, 1, 2}},
		{"the smallest tree of them", []float64{5, 3, 3, 3}, []int{0, 9, 4, 4}, []int32{2, 3}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := candidates(t, 1, tc.costs...)
			for i, n := range tc.trees {
				r.SetTree(worker1(i), n)
			}
			r.cfg.Policy = Cost2025
			if tc.trees != nil {
				r.cfg.Policy = Cost2026
			}
			got, tied := r.scorer.lowest()
			if !slices.Equal(got, tc.want) || tied != (len(tc.want) > 1) {
				t.Errorf("%v, tied %v; want %v", got, tied, tc.want)
			}
		})
	}
	r := candidates(t, 1, 1, 1)
	r.SetTree(worker1(0), 5)
	r.cfg.Policy = Cost2025
	if got, tied := r.scorer.lowest(); len(got) != 2 || !tied {
		t.Errorf("trees count under 2025: %v", got)
	}
}

// TestSoftmax compares frequencies with exact probabilities. With n draws the standard
// deviation of p is sqrt(p(1-p)/n); a difference of 4.5 of these has a chance of one in
// 150,000.
func TestSoftmax(t *testing.T) {
	const n = 200000
	for _, tc := range []struct {
		name   string
		costs  []float64
		temp   float64
		spread Spread
		want   []float64 // proportional to
	}{
		{"one", []float64{100}, 0.1, SpreadRelative, []float64{1}},
		{"one, negative", []float64{-100}, 10, SpreadRelative, []float64{1}},
		{"equal", []float64{3, 3, 3}, 0.5, SpreadRelative, []float64{1, 1, 1}},
		{"relative", []float64{10, 20, 15}, 1, SpreadRelative, []float64{1, math.Exp(-1), math.Exp(-0.5)}},
		{"relative is of no scale", []float64{1e6, 2e6, 1.5e6}, 1, SpreadRelative, []float64{1, math.Exp(-1), math.Exp(-0.5)}},
		{"low", []float64{0, 1, 2}, 0.1, SpreadRelative, []float64{1, math.Exp(-5), math.Exp(-10)}},
		{"absolute", []float64{0, 1, 4}, 2, SpreadAbsolute, []float64{1, math.Exp(-0.5), math.Exp(-2)}},
		{"absolute, far apart", []float64{0, 1e9}, 1e-9, SpreadAbsolute, []float64{1, 0}},
		{"hot", []float64{0, 1, 2}, math.MaxFloat64, SpreadRelative, []float64{1, 1, 1}},
		{"cold", []float64{0, 1e-300}, 1e-300, SpreadRelative, []float64{1, 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := candidates(t, 42, tc.costs...)
			w := DefaultWeights()
			w.Temperature, w.Spread = tc.temp, tc.spread
			r.scorer.weights = &w
			counts := make([]int, len(tc.costs))
			for range n {
				counts[r.scorer.sample(r.chance.unit())]++
			}
			sum := 0.0
			for _, p := range tc.want {
				sum += p
			}
			for i, c := range counts {
				p := tc.want[i] / sum
				if dev := math.Sqrt(p * (1 - p) / n); math.Abs(float64(c)/n-p) > 4.5*dev {
					t.Errorf("candidate %d: %d of %d, want a share of %v", i, c, n, p)
				}
			}
		})
	}
}

func TestTiesAreDrawnEvenly(t *testing.T) {
	const n = 60000
	r := newRouter(t, Config{Policy: CostRandom, Seed: 5}, make([]WorkerSpec, 6)...)
	var counts [6]int
	var order []kv.Rank
	for range n {
		d, err := r.Select(0, &Request{PromptTokens: 1})
		if err != nil || d.Reason != ByTie {
			t.Fatal(d, err)
		}
		counts[d.Worker.Worker-1]++
		if len(order) < 50 {
			order = append(order, d.Worker)
		}
		r.Rollback(0, d.Reservation)
	}
	for i, c := range counts {
		if math.Abs(float64(c)-n/6) > 4.5*math.Sqrt(n*5.0/36) {
			t.Errorf("worker %d was chosen %d times of %d", i, c, n)
		}
	}
	again := func(seed uint64) (same []kv.Rank) {
		r := newRouter(t, Config{Policy: CostRandom, Seed: seed}, make([]WorkerSpec, 6)...)
		for range 50 {
			same = append(same, selected(t, r, 0, Request{PromptTokens: 1}).Worker)
		}
		return same
	}
	if !slices.Equal(again(5), order) || slices.Equal(again(6), order) {
		t.Error("the same seed gives other choices, or another the same")
	}
}

func TestTemperatureOfARequest(t *testing.T) {
	r := newRouter(t, Config{Policy: Cost2026, Seed: 1}, WorkerSpec{}, WorkerSpec{})
	hot := DefaultWeights()
	hot.Temperature = 1
	o := []Overlap{{Worker: worker1(1), Device: 4}}
	req := Request{PromptTokens: 64, Overlaps: o, Weights: &hot}
	e, err := r.Explain(0, &req)
	p := 1 / (1 + math.Exp(-1))
	if err != nil || math.Abs(e.Candidates[1].Probability-p) > 1e-12 || math.Abs(e.Candidates[0].Probability-(1-p)) > 1e-12 {
		t.Fatalf("%+v, %v", e, err)
	}
	away := 0
	for range 1000 {
		d := selected(t, r, 0, req)
		if d.Reason != ByChance {
			t.Fatalf("by %v", d.Reason)
		}
		if d.Worker == worker1(0) {
			away++
		}
		r.Release(0, d.Reservation)
	}
	if dev := math.Sqrt(1000 * p * (1 - p)); math.Abs(float64(away)-1000*(1-p)) > 4.5*dev {
		t.Errorf("%d of 1000 went away, want about %v", away, 1000*(1-p))
	}
	req.Weights = nil
	if d := selected(t, r, 0, req); d.Worker != worker1(1) || d.Reason != ByCost {
		t.Errorf("without a temperature: %+v", d)
	}
	if err := r.SetWeights(hot); err != nil {
		t.Fatal(err)
	}
	if d := selected(t, r, 0, req); d.Reason != ByChance {
		t.Errorf("weights changed live: %+v", d)
	}
}
