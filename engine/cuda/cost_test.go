package cuda

import (
	"math"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cuda/kernels"
	"github.com/coppice-llm/coppice/engine/model"
)

// TestStepCost checks that the estimate of a step is near the sum over its kernels, also for shapes
// that the estimate was not derived from, and that it is zero for unknown devices.
func TestStepCost(t *testing.T) {
	s := kernels.Llama8B
	c := &model.Config{Hidden: s.Hidden, FFN: s.FFN, Layers: s.Layers, Heads: s.Heads, KVHeads: s.KVHeads, HeadDim: s.HeadDim, Vocab: s.Vocab}
	for _, name := range []string{"PTX interpreter", "NVIDIA GH200 480GB"} {
		if x := stepCost(name, c, nil); x != (engine.StepCost{}) {
			t.Errorf("%s, whose limits are not known: %+v", name, x)
		}
	}
	x := stepCost("NVIDIA H200", c, nil)
	if older := stepCost("NVIDIA H100 80GB HBM3", c, nil); older.Step <= x.Step || older.Context <= x.Context || x.BalanceTokens() < 1000 {
		t.Errorf("an H100 %+v, an H200 %+v", older, x)
	}
	for _, e := range []struct {
		rows, context, prompt int
		within                float64
	}{{1, 1, 0, 0.01}, {1, 4096, 0, 0.2}, {64, 1024, 0, 0.1}, {64, 8192, 0, 0.1}, {0, 0, 4096, 0.1}, {0, 0, 2048, 0.1}, {0, 0, 16384, 0.1}} {
		var shape engine.StepShape
		costs := s.Prefill(max(e.prompt, 1))
		if e.prompt > 0 {
			shape.Add(0, e.prompt)
		} else {
			costs = s.Decode(e.rows, e.context)
		}
		for range e.rows {
			shape.Add(e.context-1, 1)
		}
		want, got := kernels.Seconds(costs, kernels.H200), x.Fixed(&shape)+x.Prompts(&shape)
		if off := math.Abs(got/want - 1); off > e.within {
			t.Errorf("%+v: %.3g s, the kernels add up to %.3g", e, got, want)
		}
	}
}
