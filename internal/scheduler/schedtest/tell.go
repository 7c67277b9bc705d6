package schedtest

import (
	"errors"
	"slices"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// tell delivers outputs to the callers, one by one.
func (r *rig) tell(out []scheduler.Output) {
	r.out = out
	for _, o := range r.spoilOutputs(out) {
		r.tellOne(&o)
	}
}

func (r *rig) tellOne(o *scheduler.Output) {
	r.sum.output(o)
	if o.Sampled {
		r.note("%d: token %d", o.Request, o.Token)
	}
	var s *sample
	if order := r.book.byID[o.Request]; order != nil {
		if o.Sample < len(order.samples) && !order.samples[o.Sample].ended {
			s = order.samples[o.Sample]
		}
	}
	r.each(func(c checker) { c.told(s, o) }) // one fails if s is nil
	if o.Sampled {
		if len(s.got) == 0 {
			s.firstAt = r.clock.Now()
		}
		s.got = append(s.got, o.Token)
		r.report.OutputTokens++
	}
	if e := &o.Ending; e.Reason != scheduler.NotEnded {
		r.note("%d: ends, %v, bill %+v", o.Request, e.Reason, *e)
		r.report.Endings[e.Reason]++
		r.report.Preemptions += e.Preemptions
		r.book.close(s)
	}
	if r.listener != nil {
		r.listener(s, o)
	}
}

// spoilOutputs returns out as the callers get it: changed by the planted bug between
// scheduler and callers, if that is due.
func (r *rig) spoilOutputs(out []scheduler.Output) []scheduler.Output {
	for i := range out {
		o := &out[i]
		over := o.Ending.Reason != scheduler.NotEnded
		switch {
		case !over && o.Sampled && r.planting.due(LoseToken, r.plans):
			return slices.Delete(slices.Clone(out), i, i+1)
		case !over && o.Sampled && r.planting.due(DoubleToken, r.plans):
			return slices.Insert(slices.Clone(out), i, *o)
		case over && errors.Is(o.Ending.Err, scheduler.ErrDisplaced) && r.planting.due(LoseDisplaced, r.plans):
			return slices.Delete(slices.Clone(out), i, i+1)
		case over && r.planting.due(LoseEnding, r.plans):
			return slices.Delete(slices.Clone(out), i, i+1)
		case o.Sampled && r.planting.due(WrongToken, r.plans):
			o.Token = (o.Token + 1) % kv.Token(r.info.Vocab)
		case over && r.planting.due(DoubleEnding, r.plans):
			return slices.Insert(slices.Clone(out), i, *o)
		case over && r.planting.due(ForgedBill, r.plans):
			o.Ending.OutputTokens++
		}
	}
	return out
}
