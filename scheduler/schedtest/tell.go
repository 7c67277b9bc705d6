package schedtest

import "github.com/coppice-llm/coppice/scheduler"

// tell delivers outputs to the callers, one by one.
func (r *rig) tell(out []scheduler.Output) {
	r.out = out
	for _, o := range r.bug.outputs(r, out) {
		r.tellOne(&o)
	}
}

func (r *rig) tellOne(o *scheduler.Output) {
	r.sum.add(*o)
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
