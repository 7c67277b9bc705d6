package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// Complete takes the result of the plan that has been running longest: tokens and
// endings are appended to out, and what the plan computed is published to the
// cache. A row whose answer is not what it asked for fails its request alone, with
// ErrContract; a result of which nothing can be attributed panics. The plan is
// reused; the caller must not look at it any more.
func (s *Scheduler) Complete(now time.Duration, p *Plan, result *engine.Result, out []Output) []Output {
	if len(s.plans.inflight) == 0 || p != s.plans.inflight[0] {
		panic(fmt.Sprintf("scheduler: Complete of plan %d, which is not the next one", p.Batch.Seq))
	}
	p.checkResult(&s.info, result)
	s.budget.time.learn(p, result.Stats.Nanos)
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
			s.plans.masks.done(id)
		}
	}
	p.release()
	s.plans.spare = append(s.plans.spare, p)
	if len(s.open) == 0 {
		s.expireCache(now) // what was used last ages from here on, not from the next step
	}
	s.verify()
	return out
}

// advance applies the outcome of row i, nil if the backend gave none.
func (s *Scheduler) advance(now time.Duration, p *Plan, i int, row *engine.RowOut, out []Output) []Output {
	r := &p.rows[i]
	q := r.q
	q.inflight--
	if r.sample {
		q.sampling--
	}
	if q.place == ended { // it stopped while this row was on its way
		s.metrics.VoidTokens += uint64(r.end - r.start)
		return out
	}
	here := q.life == r.life // else it was preempted meanwhile, and its KV is not its own any more
	if err := p.checkRow(&s.info, i, row); err != nil {
		// What the row wrote is not to be trusted, nor what it may have read.
		if !errors.Is(err, engine.ErrNoToken) {
			distrust(s, q)
		}
		return s.end(now, q, Ending{Reason: Failed, Err: q.blame(err)}, out)
	}
	if here {
		q.done = int(r.end)
		if q.done <= q.target {
			s.publishChunk(q)
		}
	}
	if row != nil && here && q.wantsPrompt() {
		q.addPromptLogprobs(int(r.start), row.Prompt, row.PromptTop)
	}
	if r.sample && here && !q.vouches && p.Batch.Seq > q.swapped {
		vouch(s, q)
	}
	if r.sample && q.abort == nil {
		if out = s.sampled(now, q, row, out); q.place == ended {
			return out
		}
	}
	if q.inflight > 0 {
		return out
	}
	switch {
	case q.abort != nil:
		return s.end(now, q, Ending{Reason: Abort, Err: q.abort}, out)
	case q.place == preempted:
		s.running.preempted = remove(s.running.preempted, q)
		s.enqueue(q)
	}
	return out
}

// publishChunk puts what is computed of a prompt into the cache, and lets those go
// on who wait for it.
func (s *Scheduler) publishChunk(q *sequence) {
	s.publish(q, q.done, false)
	if q.done == q.target {
		s.running.prefilling = remove(s.running.prefilling, q)
	}
	if len(q.followers) > 0 {
		s.release(q, q.done == q.target)
	}
}

// sampled takes a token.
func (s *Scheduler) sampled(now time.Duration, q *sequence, row *engine.RowOut, out []Output) []Output {
	q.tokens = append(q.tokens, row.Token)
	q.sampled++
	q.tenant.serve(1)
	s.metrics.OutputTokens++
	if !q.seenToken {
		q.seenToken, q.firstToken = true, now-q.arrived
		q.mark(now, FirstToken, 1)
	}
	o := Output{
		Request: q.req.ID, Sample: q.sample, Sampled: true,
		Token: row.Token, Logprob: row.Logprob, Top: row.Top, Digest: row.Digest,
	}
	if q.promptLogprobs != nil && q.outputTokens() == 1 {
		o.Prompt, o.PromptTop = q.promptLogprobs, q.promptTop
	}
	switch {
	case len(q.req.StopTokens) > 0 && slices.Contains(q.req.StopTokens, row.Token):
		o.Ending.Reason, o.Ending.StopToken = Stop, true
	case q.shaped && q.completes(&s.cfg, row.Token, &o.Ending):
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

// publish inserts the first valid tokens of q into the cache: whole pages, and
// the partial last one too if tail is set, which only a sequence that will not
// write to it any more may do. Pages that the tree has already are swapped for
// the tree's. After a flush it does nothing for what ran before, nor for who is doubtful.
func (s *Scheduler) publish(q *sequence, valid int, tail bool) {
	if s.cache == nil || s.flushedSince(q) || isDoubtful(s, q, valid) {
		return
	}
	valid = q.wholeMedia(valid)
	if !tail {
		valid -= valid % s.info.PageTokens
	}
	n := kv.CeilPages(valid, s.info.PageTokens)
	if n <= q.shared {
		return
	}
	// The tree may rewrite the list; rows in flight alias q's own.
	s.room.lent = append(s.room.lent[:0], q.pages[:n]...)
	pin, freed := s.cache.Extend(q.pin, q.key(valid), s.room.lent, s.room.freed[:0])
	s.room.reclaim(freed)
	rankPrefix(s.cache, pin, q)
	for i := q.shared; i < n; i++ {
		if id := s.room.lent[i]; id != kv.NoPage && s.room.lease.Held(id) {
			s.room.lease.Publish(s.room.lent[i : i+1])
		}
	}
	if !slices.Equal(s.room.lent[q.shared:], q.pages[q.shared:n]) {
		if q.inflight > 0 {
			q.pages = slices.Clone(q.pages)
		}
		s.room.swap(q, s.room.lent)
		q.swapped, q.vouches = s.plans.last, false
	}
	from := q.shared * s.info.PageTokens
	q.pin, q.shared = pin, n
	s.queue.published(q, from, valid)
}
