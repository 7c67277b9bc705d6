package enginetest

import (
	"github.com/coppice-llm/coppice/engine"
)

// checkAnswers checks the parts of a result: one entry for each row that samples or requests
// its prompt's log-probabilities, ascending, with everything that the row requested and only
// possible values.
func checkAnswers(h *harness) {
	r := h.open(usual(16))
	can := r.info.Capabilities
	params := engine.SamplingParams{}
	if can.Logprobs {
		params.Logprobs, params.TopLogprobs = true, 5
	}
	chunk := r.sequence(0, params, r.tokens(1, 20), 1)
	whole := r.sequence(1, params, r.tokens(2, 12), 1)
	masked := r.sequence(2, params, r.tokens(3, 9), 1)
	b := &engine.Batch{Binds: []engine.SlotBind{chunk.bind(), whole.bind(), masked.bind()}}
	b.Rows = []engine.Row{chunk.row(&r.info, 16), whole.row(&r.info, 100), masked.row(&r.info, 100)}
	if r.info.MaxMasks > 0 {
		b.Masks = []engine.MaskSet{{ID: 2, Bits: r.maskOf(7)}}
		b.Rows[2].Mask = 2
	}
	want := []int{1, 2}
	if can.PromptLogprobs {
		for i := range 2 {
			b.Rows[i].PromptLogprobs, b.Rows[i].PromptTop = true, 4
		}
		want = []int{0, 1, 2}
	}
	if offersHidden(&r.info) {
		b.Rows[1].Hidden = engine.HiddenSum
	}
	res := r.run(b)
	if len(res.Out) != len(want) {
		failf("%d rows are answered, want %v", len(res.Out), want)
	}
	for i, row := range want {
		judge(&r.info, &b.Rows[row], maskOf(b, row), &params, row, &res.Out[i])
	}
}

// maskOf returns the bits of the row's mask, which must be set by the same batch.
func maskOf(b *engine.Batch, row int) []uint64 {
	for _, m := range b.Masks {
		if m.ID == b.Rows[row].Mask {
			return m.Bits
		}
	}
	return nil
}

// judge fails if o, the answer for row number row, does not fit the request r, the row's mask and
// the slot's parameters p.
func judge(info *engine.Info, r *engine.Row, mask []uint64, p *engine.SamplingParams, row int, o *engine.RowOut) {
	bad := func(format string, args ...any) {
		failf("row %d: "+format, append([]any{row}, args...)...)
	}
	if o.Row != row {
		bad("the answer is for row %d", o.Row)
	}
	if o.Err != nil {
		bad("%w", o.Err)
	}
	if o.Confirmed < 0 || int(o.Confirmed) > len(r.Drafts) {
		bad("%d of %d drafts are confirmed", o.Confirmed, len(r.Drafts))
	}
	if r.Sample {
		switch {
		case uint64(o.Token) >= uint64(info.Vocab):
			bad("token %d of a vocabulary of %d", o.Token, info.Vocab)
		case !allows(mask, o.Token):
			bad("token %d is sampled, the mask forbids it", o.Token)
		case p.Logprobs && !(o.Logprob <= 0):
			bad("token %d has log-probability %v", o.Token, o.Logprob)
		}
		if len(o.Top) != min(int(p.TopLogprobs), info.Vocab) {
			bad("%d most probable tokens, want %d", len(o.Top), p.TopLogprobs)
		}
		if i := wrongEntry(info, o.Top); i >= 0 {
			bad("entry %d of the most probable tokens: %+v", i, o.Top[i])
		}
	}
	if r.Hidden != engine.HiddenNone {
		(&rig{info: *info}).checkHidden(o.Hidden)
	}
	if r.PromptLogprobs {
		want := r.Len()
		if r.Start == 0 {
			want--
		}
		if len(o.Prompt) != want {
			bad("%d log-probabilities of the prompt, want %d", len(o.Prompt), want)
		}
		if r.PromptTop == 0 {
			want = 0
		}
		if len(o.PromptTop) != want {
			bad("the most probable tokens in %d places of the prompt, want %d", len(o.PromptTop), want)
		}
		for i, l := range o.Prompt {
			if !(l <= 0) {
				bad("log-probability %d of the prompt is %v", i, l)
			}
		}
		for i, top := range o.PromptTop {
			if len(top) != min(int(r.PromptTop), info.Vocab) {
				bad("%d most probable tokens in place %d of the prompt, want %d", len(top), i, r.PromptTop)
			}
			if j := wrongEntry(info, top); j >= 0 {
				bad("entry %d of the most probable tokens in place %d of the prompt: %+v", j, i, top[j])
			}
		}
	}
}

// wrongEntry returns the index of the first impossible entry in a list of most probable tokens,
// or -1.
func wrongEntry(info *engine.Info, top []engine.TokenLogprob) int {
	for i, e := range top {
		if uint64(e.Token) >= uint64(info.Vocab) || !(e.Logprob <= 0) || i > 0 && e.Logprob > top[i-1].Logprob {
			return i
		}
	}
	return -1
}

// answerControls are the faults of single answers and of whole results, each in the first row
// that can show it.
func answerControls(info *engine.Info) []control {
	var all []control
	for _, f := range Faults() {
		if !needs[f.Needs].offered(info) {
			continue
		}
		all = append(all, control{"answers", f.Name, func(sound engine.Backend) engine.Backend {
			return f.Plant(sound, func(x *engine.Batch) (int, bool) {
				for i := range x.Rows {
					p := &engine.SamplingParams{}
					for j := range x.Binds {
						if x.Binds[j].Slot == x.Rows[i].Slot {
							p = &x.Binds[j].Sampling
						}
					}
					if f.Fits(&x.Rows[i], p) {
						return i, true
					}
				}
				return 0, false
			})
		}})
	}
	return all
}
