package router

import (
	"fmt"
	"math"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

func TestExplainGolden(t *testing.T) {
	r := newRouter(t, Config{Policy: CostCredits}, WorkerSpec{}, WorkerSpec{}, WorkerSpec{})
	selected(t, r, 0, Request{PromptTokens: 64, Hashes: hashes(1, 2, 3, 4), Pinned: &kv.Rank{Worker: 2}})
	req := Request{PromptTokens: 100, Hashes: hashes(1, 2, 3, 9), Overlaps: []Overlap{
		{Worker: worker1(1), Device: 3}, {Worker: worker1(2), Device: 1, Host: 2, Disk: 1},
	}}
	e, err := r.Explain(0, &req)
	if err != nil {
		t.Fatal(err)
	}
	d := selected(t, r, 0, req)
	const want = `policy credits
  worker   cost  chance  device  host  disk  shared  object  active  prefill  credits  decode
     3/0    7.5       1       1     2     1       0       0       0     6.25     2.75       4
     1/0  10.25       0       0     0     0       0       0       0     6.25        0       4
     2/0  12.25       0       3     0     0       0       0       3    10.25        3       5
`
	if got := fmt.Sprint(e); got != want {
		t.Errorf("%s", got)
	}
	if d.Worker != e.Candidates[2].Worker || d.Cost != e.Candidates[2].Cost || d.Reason != e.Reason {
		t.Errorf("explained %+v, chosen %+v", e, d)
	}
}

// TestExplainDrawsNothing: choices are the same with and without Explain.
func TestExplainDrawsNothing(t *testing.T) {
	for _, policy := range Policies() {
		for _, temperature := range []float64{0, 0.7} {
			play := func(explain bool) (all []Decision) {
				w := DefaultWeights()
				w.Temperature = temperature
				r := newRouter(t, Config{Policy: policy, Weights: w, Seed: 3}, make([]WorkerSpec, 5)...)
				for i := range 60 {
					var explained Explanation
					req := Request{PromptTokens: 50 + i, Hashes: hashes(1, i%4)}
					if explain {
						e, err := r.Explain(0, &req)
						if err != nil {
							t.Fatal(err)
						}
						sum := 0.0
						for _, c := range e.Candidates {
							sum += c.Probability
						}
						if math.Abs(sum-1) > 1e-9 {
							t.Fatalf("%v: chances add up to %v", policy, sum)
						}
						explained = e
					}
					d := selected(t, r, 0, req)
					if explain {
						if p := explained.Candidates[d.Worker.Worker-1].Probability; !(p > 0) {
							t.Fatalf("%v: worker %v was chosen with probability %v", policy, d.Worker, p)
						}
					}
					all = append(all, d)
				}
				return all
			}
			with, without := play(true), play(false)
			for i := range with {
				if with[i] != without[i] {
					t.Fatalf("%v: choice %d is %+v with an explanation, %+v without", policy, i, with[i], without[i])
				}
			}
		}
	}
}
