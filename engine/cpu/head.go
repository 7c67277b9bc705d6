package cpu

import (
	"fmt"
	"sync/atomic"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/internal/sampling"
)

// slotEnd holds parts of a chunk's result that the next chunk in the same slot needs: the raw logits after
// the last position of a chunk with PromptLogprobs, for the probability of the next chunk's first
// token, and the sum of hidden states.
type slotEnd struct {
	end    int32 // position of the token that the logits predict; 0 if there are none
	logits []float32
	hidden hiddenSum
}

func (e *slotEnd) forget() { e.end, e.hidden.end = 0, 0 }

// sample computes the logits that the rows need, as many at a time as there is room for, and fills
// res.Out in the order of rows. A row needs those after its last own token and after each draft, or
// with PromptLogprobs those after every token. It checks abort before each part and returns false if
// it is set.
func (s *step) sample(res *engine.Result, stats *engine.StepStats, abort *atomic.Bool) bool {
	s.want = s.want[:0]
	for t := range s.tokens {
		r := &s.batch.Rows[s.rowOf[t]]
		if o := s.outOfRow[s.rowOf[t]]; o < 0 || res.Out[o].Err != nil {
			continue
		}
		if r.PromptLogprobs || (r.Sample || r.Digest) && s.sampleAt(t) >= 0 {
			s.want = append(s.want, int32(t))
		}
	}
	most := len(s.logits) / s.w.head.stride()
	for s.headLo = 0; s.headLo < len(s.want); s.headLo += most {
		if abort.Load() {
			return false
		}
		s.rows = min(most, len(s.want)-s.headLo)
		s.byBlock(phaseHeadNorm)
		s.product(s.w.head, s.logits)
		for i := range s.rows {
			t := int(s.want[s.headLo+i])
			lo := i * s.w.head.stride()
			row := int(s.rowOf[t])
			s.finish(t, row, s.logits[lo:lo+s.config.Vocab], &res.Out[s.outOfRow[row]], stats)
		}
	}
	return true
}

// finish evaluates logits, those after token t of row row: it records a prompt log-probability,
// samples, or takes a digest, as the row asks. It fills out and counts the sample in stats. Logits
// after a draft are evaluated only if it is confirmed.
func (s *step) finish(t, row int, logits []float32, out *engine.RowOut, stats *engine.StepStats) {
	r := &s.batch.Rows[row]
	if out.Err != nil {
		return
	}
	if r.PromptLogprobs {
		s.promptLogprob(t, row, logits, out)
	}
	i := s.sampleAt(t)
	if out.Err != nil || i != int(out.Confirmed) || !r.Sample && !r.Digest {
		return
	}
	if s.bad[t] { // a draft: the bad tokens of the row's own have failed it before
		s.draw.FailRow(r, fmt.Errorf("%w: row %d, draft %d", engine.ErrLogits, row, i-1), out)
		return
	}
	if s.draw.Sample(r, row, s.masks.Of(r.MaskAt(i)), logits, out) || out.Err != nil || !r.Sample {
		return
	}
	stats.Confirmed += int(out.Confirmed)
	stats.Samples += int(out.Confirmed) + 1
}

// promptLogprob appends to out the log-probability of the token after t; logits are those after t.
// If t is the row's last token, it instead keeps the logits for the next chunk in the row's slot.
// For the row's first token it uses the logits kept from the chunk before; if the row's prefix
// came from the cache, there are none, and the entry is NaN. Logits that are not finite fail the
// row with engine.ErrLogits.
func (s *step) promptLogprob(t, row int, logits []float32, out *engine.RowOut) {
	r, kept := &s.batch.Rows[row], &s.kept[s.batch.Rows[row].Slot]
	if !finite(logits) {
		out.Err = fmt.Errorf("%w: row %d, position %d", engine.ErrLogits, row, s.pos[t])
		s.draw.Fail(r.Slot)
		kept.end = 0
		return
	}
	if out.Prompt == nil {
		out.Prompt = make([]float32, 0, r.Len())
		switch {
		case r.Start > 0 && kept.end == r.Start:
			sampling.Prompt(r, kept.logits, s.tokens[t], out)
		case r.Start > 0:
			sampling.PromptUnknown(r, out)
		}
	}
	if s.sampleAt(t) < 0 {
		sampling.Prompt(r, logits, s.tokens[t+1], out)
		return
	}
	kept.logits = append(kept.logits[:0], logits...)
	kept.end = s.pos[t] + 1
}

// sampleAt returns the number of the sample that the logits after token t are for: 0 after the last
// own token of its row, 1 after the first draft; below 0 before.
func (s *step) sampleAt(t int) int {
	r := &s.batch.Rows[s.rowOf[t]]
	return int(s.pos[t]-r.Start) + 1 - r.Own()
}
