package cuda

import (
	"strings"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cuda/kernels"
	"github.com/coppice-llm/coppice/engine/model"
)

// stepCost estimates the duration of a step on the device of that name, from the computed limits of
// its launches; zero for unknown devices. The scheduler corrects the estimate by measured steps.
func stepCost(name string, c *model.Config) engine.StepCost {
	var gpu kernels.GPU
	for _, g := range []kernels.GPU{kernels.H200, kernels.H100} {
		if short, _, _ := strings.Cut(g.Name, " "); strings.Contains(name, short) {
			gpu = g
		}
	}
	if gpu.Name == "" {
		return engine.StepCost{}
	}
	s := kernels.Shape{Hidden: c.Hidden, FFN: c.FFN, Layers: c.Layers, Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, Vocab: c.Vocab}
	decode := func(rows, context int) float64 { return kernels.Seconds(s.Decode(rows, context), gpu) }
	const rows, context, prompt = 64, 1024, 4096
	one := decode(1, 1)
	row := (decode(rows, 1) - one) / (rows - 1)
	x := engine.StepCost{Step: one - row, Row: row, Context: (decode(rows, 2*context) - decode(rows, context)) / (rows * context)}
	// A prompt of 2n tokens takes twice the time of one of n tokens, plus the time of n² more pairs.
	short, long := kernels.Seconds(s.Prefill(prompt), gpu), kernels.Seconds(s.Prefill(2*prompt), gpu)
	x.Pair = max(0, (long-2*short+one)/(prompt*prompt))
	x.Token = (short - one - x.Pair*prompt*prompt/2) / prompt
	return x
}
