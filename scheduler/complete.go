package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/engine"
)

// Complete takes the result of p, which must be the oldest plan in flight; for another plan
// it panics. It appends tokens and endings to out, in the order of the plan's rows, and
// publishes the computed KV to the cache.
//
// A row whose answer breaks the backend's contract fails its own request with ErrContract.
// A result that can't be attributed to the plan's rows panics. Complete reuses the plan, so
// the caller must not use it afterwards. Result.Stats.Nanos is an input like any other:
// record it to replay a run.
func (s *Scheduler) Complete(now time.Duration, p *Plan, result *engine.Result, out []Output) []Output {
	if len(s.plans.inflight) == 0 || p != s.plans.inflight[0] {
		panic(fmt.Sprintf("scheduler: Complete of plan %d, which is not the next one", p.Batch.Seq))
	}
	p.checkResult(&s.info, result)
	if tokens, took := s.budget.learn(p, result.Stats.Nanos); s.tiers != nil {
		s.tiers.book.Cost(tokens, took)
	}
	s.plans.inflight = slices.Delete(s.plans.inflight, 0, 1)
	next := 0
	for i := range p.rows {
		var row *engine.RowOut
		if next < len(result.Out) && result.Out[next].Row == i {
			row = &result.Out[next]
			next++
		}
		out = s.advance(now, p, i, row, out)
		if id := p.Batch.Rows[i].Mask; id != 0 {
			s.plans.masks.Done(id)
		}
	}
	p.release()
	s.plans.spare = append(s.plans.spare, p)
	if len(s.open) == 0 {
		s.prefixes.expire(now) // so that Config.CacheTTL counts from here, not from the next step
	}
	s.verify()
	return out
}

// advance applies the outcome of row i of plan p and appends the row's token and ending, if
// any, to out. row is nil if the backend gave no answer for it. The order matters: KV is
// published before the token is handled, because the sample may end and give its pages up.
// An aborted sequence ends, and a preempted one is queued again, when its last row in
// flight has completed.
func (s *Scheduler) advance(now time.Duration, p *Plan, i int, row *engine.RowOut, out []Output) []Output {
	r := &p.rows[i]
	q := r.q
	q.rows.inflight--
	if r.sample {
		q.rows.sampling--
	}
	if q.place == ended { // the sample ended while this row ran
		s.metrics.VoidTokens += uint64(r.end - r.start)
		return out
	}
	held := q.rows.life == r.life // false: q was preempted meanwhile and lost the pages that the row wrote to
	if err := p.checkRow(&s.info, i, row); err != nil {
		// The KV that the row wrote may be wrong, and so may the KV that it read.
		if !errors.Is(err, engine.ErrNoToken) {
			s.prefixes.distrust(q)
		}
		return s.end(now, q, Ending{Reason: Failed, Err: q.blame(err)}, out)
	}
	if held {
		q.done = int(r.end)
		if q.done <= q.target {
			s.prefixes.publishChunk(q)
		}
	}
	if row != nil && held && q.wantsPrompt() {
		q.text.addPrompt(q.req, int(r.start), row.Prompt, row.PromptTop)
	}
	if r.sample && held && !q.cache.vouches && p.Batch.Seq > q.cache.swapped {
		s.prefixes.vouch(q)
	}
	if r.sample && q.abort == nil {
		if out = s.sampled(now, q, row, out); q.place == ended {
			return out
		}
	}
	if q.rows.inflight > 0 {
		return out
	}
	switch {
	case q.abort != nil:
		return s.end(now, q, Ending{Reason: Abort, Err: q.abort}, out)
	case q.place == preempted:
		s.running.preempted = remove(s.running.preempted, q)
		s.queue.enqueue(q)
	}
	return out
}

// sampled appends the token in row to q, charges it to the tenant, and appends an Output to
// out. It ends q if the output is complete. A stop token is looked for first, then a stop
// string or the end of the format, then the output limit: a last token that is also a stop
// token gives Stop and not Length.
func (s *Scheduler) sampled(now time.Duration, q *sequence, row *engine.RowOut, out []Output) []Output {
	q.tokens = append(q.tokens, row.Token)
	q.rows.sampled++
	q.group.tenant.Serve(1)
	s.metrics.OutputTokens++
	if !q.bill.seenToken {
		q.bill.seenToken, q.bill.firstToken = true, now-q.bill.arrived
		q.bill.mark(now, FirstToken, 1)
	}
	o := Output{
		Request: q.req.ID, Sample: q.sample, Sampled: true,
		Token: row.Token, Logprob: row.Logprob, Top: row.Top, Digest: row.Digest,
	}
	if q.text.promptLogprobs != nil && q.outputTokens() == 1 {
		o.Prompt, o.PromptTop = q.text.promptLogprobs, q.text.promptTop
	}
	switch {
	case len(q.req.StopTokens) > 0 && slices.Contains(q.req.StopTokens, row.Token):
		o.Ending.Reason, o.Ending.StopToken = Stop, true
	case q.text.checked && q.completes(&s.cfg, row.Token, &o.Ending):
	case q.outputTokens() >= q.limit:
		o.Ending.Reason = Length
	default:
		return append(out, o)
	}
	n := len(out)
	out = s.end(now, q, o.Ending, out)
	o.Ending, o.Final = out[n].Ending, out[n].Final
	out[n] = o
	return out
}
