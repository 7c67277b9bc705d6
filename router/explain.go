package router

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// Explanation is why a worker: what each candidate would have cost. Its slices are
// reused when it is filled in again.
type Explanation struct {
	Policy      Policy
	Temperature float64
	Chosen      kv.Rank // of a Select; the zero Worker of Router.Explain
	Reason      Reason
	Decided     bool        // by a Select
	Candidates  []Candidate // in the order of workers
}

// Candidate is a worker that could have been chosen.
type Candidate struct {
	Worker      kv.Rank
	Cost        float64
	Probability float64 // that it is chosen
	Overlap     Overlap
	Shared      int               // blocks of the prompt that its active requests hold
	Terms       [maxTerms]float64 // what the cost is made of, without weights; names by TermNames
}

// TermNames are the names of the terms, as many as the policy has.
func (e *Explanation) TermNames() []string { return slices.Clone(e.Policy.terms()) }

// Explain says what Select would decide now, and with which chances, without
// deciding. Its errors are those of Select but ErrBusy and ErrFull.
func (r *Router) Explain(now time.Duration, req *Request) (Explanation, error) {
	r.advance(now)
	if err := r.check(req); err != nil {
		return Explanation{}, err
	}
	s := r.score(req)
	if len(r.scratch.candidates) == 0 {
		return Explanation{}, ErrNoWorkers
	}
	var e Explanation
	switch slot := r.sessionSlot(req); {
	case req.Pinned != nil:
		r.explain(&e, &s, r.scratch.candidates[0], ByPin)
	case slot != noEntry:
		r.explain(&e, &s, slot, BySession)
	case s.weights.Temperature > 0:
		r.explain(&e, &s, noEntry, ByChance)
	default:
		reason := ByCost
		if _, tied := r.lowest(s.policy); tied {
			reason = ByTie
		}
		r.explain(&e, &s, noEntry, reason)
	}
	e.Chosen, e.Decided = kv.Rank{}, false
	return e, nil
}

// explain fills in e for a choice of slot. It draws nothing.
func (r *Router) explain(e *Explanation, s *scorer, slot int32, reason Reason) {
	x := &r.scratch
	*e = Explanation{Policy: s.policy, Temperature: s.weights.Temperature, Reason: reason, Decided: true, Candidates: e.Candidates[:0]}
	if slot != noEntry {
		e.Chosen = r.workers[slot].id
	}
	var ties []int32
	sum := 1.0
	if reason == ByChance {
		sum = r.weigh(s.weights)
	} else {
		ties, _ = r.lowest(s.policy)
	}
	for i, at := range x.candidates {
		c := Candidate{Worker: r.workers[at].id, Overlap: *x.overlap(at), Shared: r.depth(s, at)}
		c.Overlap.Worker = c.Worker
		c.Cost, c.Terms = r.cost(s, at)
		switch {
		case reason == ByChance:
			c.Probability = x.chances[i] / sum
		case reason == ByPin || reason == BySession:
			if at == slot {
				c.Probability = 1
			}
		case s.policy == CostRoundRobin:
			if at == ties[0] {
				c.Probability = 1
			}
		case slices.Contains(ties, at):
			c.Probability = 1 / float64(len(ties))
		}
		e.Candidates = append(e.Candidates, c)
	}
}

// String is a table of the candidates, the likeliest first.
func (e Explanation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "policy %v", e.Policy)
	if e.Temperature > 0 {
		fmt.Fprintf(&b, ", temperature %v", e.Temperature)
	}
	if e.Decided {
		fmt.Fprintf(&b, ": worker %v by %v", e.Chosen, e.Reason)
	}
	b.WriteString("\n")
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	names := e.Policy.terms()
	fmt.Fprint(t, "worker\tcost\tchance\tdevice\thost\tdisk\tshared\tobject\tactive\t")
	for _, name := range names {
		fmt.Fprintf(t, "%s\t", name)
	}
	fmt.Fprintln(t)
	rows := slices.Clone(e.Candidates)
	slices.SortStableFunc(rows, func(a, b Candidate) int {
		switch {
		case a.Probability != b.Probability:
			return sign(b.Probability - a.Probability)
		default:
			return sign(a.Cost - b.Cost)
		}
	})
	for _, c := range rows {
		fmt.Fprintf(t, "%v\t%.6g\t%.4g\t%d\t%d\t%d\t%d\t%d\t%d\t", c.Worker, c.Cost, c.Probability, c.Overlap.Device, c.Overlap.Host, c.Overlap.Disk, c.Overlap.Shared, c.Overlap.Object, c.Shared)
		for i := range names {
			fmt.Fprintf(t, "%.6g\t", c.Terms[i])
		}
		fmt.Fprintln(t)
	}
	t.Flush()
	return b.String()
}

func sign(f float64) int {
	switch {
	case f < 0:
		return -1
	case f > 0:
		return 1
	}
	return 0
}
