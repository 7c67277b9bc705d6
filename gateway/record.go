package gateway

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/gateway/internal/dispatch"
	"github.com/coppice-llm/coppice/gateway/internal/recording"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/router/decisions"
)

// openRecording begins the file of Config.Record, if there is one.
func (g *Gateway) openRecording() (err error) {
	if g.cfg.Record == "" {
		return nil
	}
	g.recorder, err = recording.Open(recording.Config{
		Path: g.cfg.Record, MaxBytes: int64(g.cfg.RecordBytes), Head: g.recordingHead, Describe: g.describeWorker, Log: g.log,
	})
	return err
}

func (g *Gateway) recordingHead() decisions.Head {
	c := g.dispatch.Router()
	h := decisions.Head{
		BlockTokens: g.dispatch.BlockTokens(), Policy: c.Policy.String(), Weights: g.dispatch.Weights(), TierWeights: c.TierWeights.String(), Profile: c.Profile,
		SessionTTL: c.SessionTTL, Predict: c.Predict, Began: g.metrics.begun.UTC().Format(time.RFC3339),
	}
	if h.Profile == (router.Profile{}) {
		h.Profile = router.DefaultProfile()
	}
	return h
}

// describeWorker returns what the gateway knows of a worker. Of one that has left, that is its id.
func (g *Gateway) describeWorker(w kv.Rank) decisions.Worker {
	name := fmt.Sprintf("%016x", uint64(w.Worker))
	if m := g.members.Summary().ByID[w.Worker]; m != nil {
		name = m.Name()
	}
	spec, _ := g.dispatch.Spec(w)
	return decisions.Describe(name, w, &spec)
}

// recorded is the decision of an attempt, for the recording; Decision is nil without one.
type recorded struct {
	recording.Entry
	at time.Time // of the choice
}

// remember copies the facts that the recording needs of the decision that was just made. The time since began passed with choosing.
func (p *proxiedRequest) remember(began time.Time) {
	if p.g.recorder == nil {
		return
	}
	ask := &p.buffer.ask
	req, seen := &ask.Request, &ask.Seen
	e := recorded{recording.Entry{Chosen: p.decision.Worker, Hashes: slices.Clone(req.Hashes), Session: req.Session}, time.Now()}
	e.Decision = &decisions.Decision{
		At: seen.At, Waited: max(0, time.Since(began)), Attempt: p.attempts + 1, Model: req.Model, Pool: req.Pool, PromptTokens: req.PromptTokens,
		ExpectedOutput: req.ExpectedOutput, Streamed: req.Reply == router.Streamed, Weights: req.Weights, Reason: p.decision.Reason.String(),
	}
	e.Decision.Candidates, e.Ranks, e.Decision.Others = candidates(seen, p.decision.Worker)
	p.recorded = e
}

// candidates returns the chosen worker and those with the lowest costs, at most decisions.MaxCandidates, by cost, and how many are
// left out.
func candidates(seen *dispatch.Seen, chosen kv.Rank) (list []decisions.Candidate, ranks []kv.Rank, others int) {
	all := seen.Explanation.Candidates
	slices.SortStableFunc(all, func(a, b router.Candidate) int {
		return cmp.Or(cmp.Compare(a.Cost, b.Cost), a.Worker.Compare(b.Worker))
	})
	for i := range all {
		c := &all[i]
		if len(list) >= decisions.MaxCandidates-1 && c.Worker != chosen && (len(list) == decisions.MaxCandidates || !slices.Contains(ranks, chosen)) {
			others++ // the last place is the chosen worker's
			continue
		}
		d := decisions.Candidate{Cost: c.Cost, Overlap: tiers(&c.Overlap), Terms: slices.Clone(c.Terms[:])}
		if at, ok := slices.BinarySearchFunc(seen.Loads, c.Worker, func(l router.Load, w kv.Rank) int { return l.Worker.Compare(w) }); ok {
			l := &seen.Loads[at]
			d.Requests, d.Prefilling, d.PrefillTokens, d.Blocks, d.ContextTokens, d.Pending = l.Requests, l.Prefilling, l.PrefillTokens, l.Blocks, l.ContextTokens, l.Pending
		}
		list, ranks = append(list, d), append(ranks, c.Worker)
	}
	return list, ranks, others
}

// tiers returns the blocks of o by tier, without zeros at the end.
func tiers(o *router.Overlap) []int {
	all := []int{o.Device, o.Host, o.Disk, o.Shared, o.Object}
	for len(all) > 0 && all[len(all)-1] == 0 {
		all = all[:len(all)-1]
	}
	return all
}

// learnt records the decision with what became of it, once.
func (p *proxiedRequest) learnt(outcome string, status int) {
	e := p.recorded
	if e.Decision == nil {
		return
	}
	p.recorded = recorded{}
	r := &e.Decision.Result
	r.Outcome, r.Status, r.Total = outcome, status, time.Since(e.at)
	if outcome == outcomeAnswered {
		a := &p.answer
		if a.usage.reported {
			r.Cached = new(min(a.usage.cached, e.Decision.PromptTokens))
		}
		if !a.firstAt.IsZero() {
			r.TTFT = max(1, a.firstAt.Sub(e.at))
		}
		r.OutputTokens = a.tokens
	}
	p.g.recorder.Add(e.Entry)
}
