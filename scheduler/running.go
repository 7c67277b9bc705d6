package scheduler

import (
	"time"

	"github.com/coppice-llm/coppice/scheduler/internal/planted"
	"github.com/coppice-llm/coppice/scheduler/internal/predict"
)

// runningSet holds the sequences that have a slot, and those that lost theirs while a row
// of them is in flight.
type runningSet struct {
	cfg        *Config          // the scheduler's
	lengths    *predict.Lengths // the scheduler's
	pageTokens int

	all        []*sequence // by admission, oldest first
	prefilling []*sequence // subset of all whose prompt is not fully computed
	preempted  []*sequence // not in all; each is queued again when its rows have ended
	next       int         // index in all of the next one to decode, if the budget is too small for all
	reserved   int         // sum of growth in this pass; -1: not computed yet

	candidates []*sequence // scratch of victims
	fault      planted.Fault
}

// Run describes a sample that has a slot.
type Run struct {
	Request        RequestID
	Sample         int
	Tenant         string
	PromptTokens   int
	CachedTokens   int // prompt tokens found in the cache at first admission
	ComputedTokens int // tokens with KV, of prompt and output
	OutputTokens   int
	Preemptions    int
	Age            time.Duration // since Add
}

// Running appends to dst the samples that have a slot, in the order of their admission,
// oldest first. now is the time to which Run.Age counts.
func (s *Scheduler) Running(now time.Duration, dst []Run) []Run {
	for _, q := range s.running.all {
		dst = append(dst, Run{
			Request: q.req.ID, Sample: q.sample, Tenant: q.req.Tenant,
			PromptTokens: q.prompt, CachedTokens: q.bill.cachedTokens, ComputedTokens: q.done,
			OutputTokens: q.outputTokens(), Preemptions: q.bill.preemptions, Age: now - q.bill.arrived,
		})
	}
	return dst
}

// Timeline returns what has happened so far to the open samples of a request that was
// added with Timeline, by sample; nil for other requests, and for samples that have ended.
func (s *Scheduler) Timeline(id RequestID) [][]Mark {
	g, ok := s.open[id]
	if !ok || !g.req.Timeline {
		return nil
	}
	all := make([][]Mark, g.req.Samples)
	for _, q := range g.samples {
		all[q.sample] = append([]Mark(nil), q.bill.timeline...)
	}
	return all
}
