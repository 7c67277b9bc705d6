package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/scheduler/internal/planted"
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
	drafted := s.budget.drafted(p, result.Stats.Nanos)
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
		if row != nil && row.Err == nil {
			drafted.accepted += int(row.Confirmed)
		}
		p.doneMasks(&p.Batch.Rows[i])
	}
	if drafted.seconds > 0 {
		s.drafter.balance.Settle(len(p.rows), drafted.accepted, drafted.base, drafted.seconds)
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
		s.metrics.VoidTokens += uint64(r.end - r.start + r.drafts)
		return out
	}
	held := q.rows.life == r.life // false: q was preempted meanwhile and lost the pages that the row wrote to
	q.landDrafts()
	if err := p.checkRow(&s.info, i, row); err != nil {
		// The KV that the row wrote may be wrong, and so may the KV that it read.
		if !errors.Is(err, engine.ErrNoToken) {
			s.prefixes.distrust(q)
		}
		return s.end(now, q, Ending{Reason: Failed, Err: q.blame(err)}, out)
	}
	end := int(r.end)
	if r.drafts > 0 {
		end += int(row.Confirmed)
		q.rows.drafts.counts.count(r.source, int(r.drafts), 0)
		s.metrics.Drafts.count(r.source, int(r.drafts), 0)
	}
	switch {
	case held:
		if s.running.fault == planted.KeepRefused && r.drafts > 0 {
			s.prefixes.publishAll(q, p.Batch.Rows[i].Drafts)
		}
		q.done, q.computed = end, max(q.computed, end)
		if q.done <= q.target {
			s.prefixes.publishChunk(q)
		}
	case r.drafts > 0:
		q.bill.reached = max(q.bill.reached, end)
	}
	if row != nil && held && q.wantsPrompt() {
		q.text.addPrompt(q.req, int(r.start), row.Prompt, row.PromptTop)
	}
	answers := r.sample || q.embeds(r.end)
	if answers && held && !q.cache.vouches && p.Batch.Seq > q.cache.swapped {
		s.prefixes.vouch(q)
	}
	if answers && q.abort == nil {
		if out = s.answered(now, p, i, row, out); q.place == ended {
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

// answered applies the answer of row i of p: it ends the row's sample with an embedding, or appends its
// tokens to the sample, until that ends.
func (s *Scheduler) answered(now time.Duration, p *Plan, i int, row *engine.RowOut, out []Output) []Output {
	r := &p.rows[i]
	q := r.q
	if !r.sample {
		n := len(out)
		out = s.end(now, q, Ending{Reason: Stop}, out)
		out[n].Embedding = q.embedding(row.Hidden)
		return out
	}
	for j := range 1 + int(row.Confirmed) {
		if j < int(row.Confirmed) {
			q.rows.drafts.counts.count(r.source, 0, 1)
			s.metrics.Drafts.count(r.source, 0, 1)
		}
		one := p.sampleAt(i, j, row)
		if out = s.sampled(now, q, &one, out); q.place == ended {
			s.metrics.VoidTokens += uint64(max(int(row.Confirmed)-j-1, 0))
			return out
		}
	}
	return out
}

// landDrafts notes that q's row with drafts, if there is one, is in flight no more: tokens that its
// drafts added to computed do not count. advance counts those that are confirmed.
func (q *sequence) landDrafts() {
	if n := q.draftsInFlight(); n > 0 {
		q.rows.drafts.inflight = 0
		q.computed = max(q.computed-n, 0) // 0: it left the device meanwhile
	}
}

// sampleAt returns sample j of row i of p, whose answer is row, as if each sample had been that of a row
// of its own: first the confirmed drafts, then the token after them.
func (p *Plan) sampleAt(i, j int, row *engine.RowOut) engine.RowOut {
	drafts := p.Batch.Rows[i].Drafts
	if j == int(row.Confirmed) && !p.masks.Planted(planted.Unverified) || j == len(drafts) {
		return *row
	}
	one := engine.RowOut{Token: drafts[j]}
	if j < len(row.Drafts) {
		d := &row.Drafts[j]
		one.Logprob, one.Top, one.Digest = d.Logprob, d.Top, d.Digest
	}
	return one
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
