package enginetest

import (
	"reflect"
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// checkOwnership overwrites each batch once its ticket is done, and keeps all results: no later
// batch may read an earlier one, or write to an earlier result. One sequence has a bias, the other
// a mask if the backend has masks.
func checkOwnership(h *harness) {
	const steps, forced, allowed = 5, 77, 9
	only := func(t kv.Token) engine.SamplingParams {
		return engine.SamplingParams{Bias: []engine.TokenBias{{Token: t, Bias: 1e3}}}
	}
	r := h.openRaw(usual(8))
	prompt, other := r.tokens(1, 21), r.tokens(2, 13)
	biased, masked := r.sequence(0, only(forced), prompt, steps), r.sequence(1, only(allowed), other, steps)
	want := [][]sample{h.solo(only(forced), prompt, steps), h.solo(only(allowed), other, steps)}
	first := &engine.Batch{}
	if r.info.MaxMasks > 0 {
		masked.params = engine.SamplingParams{}
		first.Masks = []engine.MaskSet{{ID: 1, Bits: r.maskOf(allowed)}}
	}
	if r.info.Capabilities.Logprobs {
		biased.params.TopLogprobs = 3
	}
	var results, copies []*engine.Result
	for n := range steps {
		b := &engine.Batch{}
		if n == 0 {
			b = first
		}
		for _, s := range []*sequence{biased, masked} {
			row := s.row(&r.info, 100)
			if row.Pages = nil; n == 0 {
				bind := s.bind()
				bind.Pages = slices.Clone(s.pages)
				b.Binds = append(b.Binds, bind)
			}
			b.Rows = append(b.Rows, row)
		}
		if r.info.MaxMasks > 0 {
			b.Rows[1].Mask = 1
		}
		res := r.run(b)
		biased.take(b, res, 0)
		masked.take(b, res, 1)
		results, copies = append(results, res), append(copies, cloneResult(res))
		overwrite(b)
	}
	equal("biased request whose batches are overwritten", biased.out, want[0])
	equal("masked request whose batches are overwritten", masked.out, want[1])
	for i := range results {
		if !reflect.DeepEqual(results[i], copies[i]) {
			failf("result %d has become %+v, it was %+v", i, *results[i], *copies[i])
		}
	}
}

func cloneResult(res *engine.Result) *engine.Result {
	c := *res
	c.Out = slices.Clone(res.Out)
	for i := range c.Out {
		c.Out[i].Top = slices.Clone(c.Out[i].Top)
	}
	return &c
}

// overwrite changes all of a batch, as a caller that reuses its memory does.
func overwrite(b *engine.Batch) {
	for _, s := range b.Binds {
		for i := range s.Sampling.Bias {
			s.Sampling.Bias[i].Token ^= 1
		}
		clear(s.Pages)
		clear(s.Prompt)
		clear(s.Output)
	}
	for _, m := range b.Masks {
		clear(m.Bits)
	}
	for _, r := range b.Rows {
		clear(r.Tokens)
	}
	clear(b.Binds)
	clear(b.Masks)
	clear(b.Rows)
	*b = engine.Batch{}
}

// ownershipControls are backends that checkOwnership must fail.
func ownershipControls() []control {
	var bound engine.SlotBind // the latest bind of slot 0; its Bias is the caller's
	var shared []engine.RowOut
	return []control{
		{"ownership", "reads a bind's biases after its batch", with(broken{batch: func(_ *broken, x *engine.Batch) {
			if len(x.Binds) > 0 {
				bound = x.Binds[0]
				bound.Pages, bound.Prompt = slices.Clone(bound.Pages), nil
			} else {
				x.Binds = []engine.SlotBind{bound}
			}
		}})},
		{"ownership", "reuses the memory of its results", with(broken{result: func(res *engine.Result) {
			shared = append(shared[:0], res.Out...)
			res.Out = shared
		}})},
	}
}
