package cpu

import (
	"fmt"

	"github.com/coppice-llm/coppice/engine"
)

// hiddenSum is a slot's sum of hidden states. It has f64 elements and one chain of additions by ascending
// position, so chunks change no bit of it.
type hiddenSum struct {
	end int32 // positions in the sum
	sum []float64
}

// hidden fills the hidden states that rows ask for: the residual stream after the last norm. It fails a
// row with engine.ErrLogits if a value is not finite.
func (s *step) hidden(res *engine.Result) {
	s.want = s.want[:0]
	for t := range s.tokens {
		if r := &s.batch.Rows[s.rowOf[t]]; r.Hidden == engine.HiddenSum || r.Hidden == engine.HiddenLast && s.sampleAt(t) == 0 {
			s.want = append(s.want, int32(t))
		}
	}
	if len(s.want) == 0 {
		return
	}
	s.rows = len(s.want)
	s.byBlock(phaseHidden)
	d := s.config.Hidden
	for i, t := range s.want {
		row := int(s.rowOf[t])
		out := &res.Out[s.outOfRow[row]]
		if out.Err != nil {
			continue
		}
		state := s.wide[i*d : (i+1)*d]
		if r := &s.batch.Rows[row]; !finite(state) {
			out.Err = fmt.Errorf("%w: row %d, position %d", engine.ErrLogits, row, s.pos[t])
			s.draw.Fail(r.Slot)
		} else if r.Hidden == engine.HiddenLast {
			out.Hidden = append([]float32(nil), state...)
		} else {
			s.addHidden(int(t), row, state, out)
		}
	}
}

// addHidden adds the state of token t, of row row, to the sum of its slot, and at the end of the row gives
// the sum to out.
func (s *step) addHidden(t, row int, state []float32, out *engine.RowOut) {
	kept := &s.kept[s.batch.Rows[row].Slot].hidden
	switch {
	case s.pos[t] == 0:
		kept.sum = append(kept.sum[:0], make([]float64, len(state))...)
	case s.pos[t] != kept.end: // an earlier row of the slot failed after this batch was submitted
		out.Err = fmt.Errorf("%w: row %d, the sum of hidden states before it failed", engine.ErrLogits, row)
		return
	}
	for j, v := range state {
		kept.sum[j] += float64(v)
	}
	kept.end = s.pos[t] + 1
	if s.sampleAt(t) == 0 {
		out.Hidden = make([]float32, len(state))
		for j, v := range kept.sum {
			out.Hidden[j] = float32(v)
		}
	}
}
