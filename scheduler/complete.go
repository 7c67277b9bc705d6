package scheduler

import (
	"fmt"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// Complete takes a plan's result: tokens and endings are appended to out, and
// what the plan computed is published to the cache. The plan is reused; the
// caller must not look at it any more.
func (s *Scheduler) Complete(now time.Duration, p *Plan, result *engine.Result, out []Output) []Output {
	if p != s.inflight || result.Seq != p.Batch.Seq {
		panic(fmt.Sprintf("scheduler: Complete of plan %d with result %d, which is not the one that runs", p.Batch.Seq, result.Seq))
	}
	s.inflight = nil
	next := 0
	for i, q := range p.rows {
		q.inPlan = false
		var row *engine.RowOut
		if next < len(result.Out) && result.Out[next].Row == i {
			row = &result.Out[next]
			next++
		}
		out = s.advance(now, q, &p.Batch.Rows[i], p.starts[i], row, out)
	}
	s.idle = append(s.idle, p)
	s.verify()
	return out
}

// advance applies one row's outcome.
func (s *Scheduler) advance(now time.Duration, q *sequence, ran *engine.Row, start int, row *engine.RowOut, out []Output) []Output {
	switch {
	case row != nil && row.Err != nil:
		q.computed = start // what the row wrote is not to be trusted
		return s.end(now, q, Ending{Reason: Failed, Err: row.Err}, out)
	case q.abort != nil:
		return s.end(now, q, Ending{Reason: Abort, Err: q.abort}, out)
	case !ran.Sample:
		s.publish(q, q.computed, false)
		return out
	case row == nil:
		panic(fmt.Sprintf("scheduler: backend %s gave no token for a sampled row", s.info.Name))
	}
	if !ran.Deferred {
		s.publish(q, q.computed, false)
	}
	q.tokens = append(q.tokens, row.Token)
	s.metrics.OutputTokens++
	if !q.seenToken {
		q.seenToken, q.firstToken = true, now-q.arrived
	}
	o := Output{Request: q.req.ID, Sampled: true, Token: row.Token, Logprob: row.Logprob, Digest: row.Digest}
	switch {
	case slices.Contains(q.req.StopTokens, row.Token):
		o.Ending.Reason = Stop
	case q.outputTokens() >= q.limit:
		o.Ending.Reason = Length
	default:
		return append(out, o)
	}
	n := len(out)
	out = s.end(now, q, o.Ending, out)
	o.Ending = out[n].Ending
	out[n] = o
	return out
}

// publish inserts the first valid tokens of q into the cache: whole pages, and
// the partial last one too if tail is set, which only a sequence that will not
// write to it any more may do. Pages that the tree has already are swapped for
// the tree's.
func (s *Scheduler) publish(q *sequence, valid int, tail bool) {
	if s.cache == nil {
		return
	}
	if !tail {
		valid -= valid % s.info.PageTokens
	}
	n := kv.CeilPages(valid, s.info.PageTokens)
	if n <= q.shared {
		return
	}
	pin, freed := s.cache.Extend(q.pin, q.key(valid), q.pages[:n], s.pages.freed[:0])
	s.pages.settle(freed)
	for i := q.shared; i < n; i++ {
		if id := q.pages[i]; id != kv.NoPage && s.pages.lease.Held(id) {
			s.pages.lease.Publish(q.pages[i : i+1])
		}
	}
	q.pin, q.shared = pin, n
}
