package router

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/coppice-llm/coppice/kv"
)

// Explanation is the reason of a choice: the cost of each candidate.
type Explanation struct {
	Policy      Policy
	Temperature float64
	Reason      Reason
	Candidates  []Candidate // ordered by worker
}

// Candidate is a worker that could have been chosen.
type Candidate struct {
	Worker      kv.Rank
	Cost        float64
	Probability float64 // of being chosen
	Overlap     Overlap
	Shared      int               // blocks of the prompt that its active requests hold
	Terms       [maxTerms]float64 // of the cost, without weights, in the order of termNames
}

// explain returns the explanation of a choice, after score. slot is the chosen
// candidate; it matters only if reason is ByPin or BySession, when that candidate has
// probability 1. No random number is drawn: tied candidates get equal probabilities, except
// under CostRoundRobin, which takes the first of them.
func (s *scorer) explain(slot int32, reason Reason) Explanation {
	e := Explanation{Policy: s.cfg.Policy, Temperature: s.weights.Temperature, Reason: reason}
	var ties []int32
	sum := 1.0
	if reason == ByChance {
		sum = s.weigh()
	} else {
		ties, _ = s.lowest()
	}
	for i, at := range s.candidates {
		c := Candidate{Worker: s.fleet.workers[at].id, Overlap: s.overlaps[at], Shared: int(s.depths[at])}
		c.Overlap.Worker = c.Worker
		c.Cost, c.Terms = s.cost(at)
		switch {
		case reason == ByChance:
			c.Probability = s.chances[i] / sum
		case reason == ByPin || reason == BySession:
			if at == slot {
				c.Probability = 1
			}
		case s.cfg.Policy == CostRoundRobin:
			if at == ties[0] {
				c.Probability = 1
			}
		case slices.Contains(ties, at):
			c.Probability = 1 / float64(len(ties))
		}
		e.Candidates = append(e.Candidates, c)
	}
	return e
}

// String returns a table of the candidates, the most probable first.
func (e Explanation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "policy %v", e.Policy)
	if e.Temperature > 0 {
		fmt.Fprintf(&b, ", temperature %v", e.Temperature)
	}
	b.WriteString("\n")
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	names := termNames[e.Policy]
	fmt.Fprint(t, "worker\tcost\tchance\tdevice\thost\tdisk\tshared\tobject\tactive\t")
	for _, name := range names {
		fmt.Fprintf(t, "%s\t", name)
	}
	fmt.Fprintln(t)
	rows := slices.Clone(e.Candidates)
	slices.SortStableFunc(rows, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(b.Probability, a.Probability), cmp.Compare(a.Cost, b.Cost))
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
