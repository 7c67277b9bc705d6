package whatif

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/router/decisions"
)

// Speed is the fitted speed of the workers, in seconds. See the package.
type Speed struct {
	Base          float64 `json:"base_s"`
	Token         float64 `json:"token_s"`
	Running       float64 `json:"running_s"`
	Decode        float64 `json:"decode_s"`
	DecodeRunning float64 `json:"decode_running_s"`
}

// prompt returns the time to compute the given number of tokens beside running requests.
func (s *Speed) prompt(tokens, running int) time.Duration {
	return seconds(s.Base + s.Token*float64(tokens) + s.Running*float64(running))
}

// decode returns the time of n output tokens beside running requests.
func (s *Speed) decode(n, running int) time.Duration {
	return seconds(float64(n) * (s.Decode + s.DecodeRunning*float64(running)))
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// minSamples is the fewest answers from which a speed is fitted: more than twice the numbers to find.
const minSamples = 8

// fit finds the speed of the workers. Only streams show when a first token came. Those that found no other prompt at their worker
// waited for nothing; if there are too few, those before which the fewest prompt tokens were to be computed do.
func fit(rec *decisions.Recording, served []request) (s Speed, err error) {
	type sample struct {
		x    [3]float64
		y    float64
		wait int // prompt tokens before it
	}
	var firsts, rest []sample
	for i := range served {
		q := &served[i]
		d := q.decision
		c := chosen(d)
		if c == nil || d.TTFT == 0 {
			continue
		}
		running := float64(c.Requests - c.Prefilling)
		firsts = append(firsts, sample{[3]float64{1, float64(max(1, d.PromptTokens-q.cached)), running}, d.TTFT.Seconds(), c.PrefillTokens})
		if n := d.OutputTokens - 1; n > 0 && d.Total > d.TTFT {
			rest = append(rest, sample{[3]float64{1, running, 0}, (d.Total - d.TTFT).Seconds() / float64(n), 0})
		}
	}
	if len(firsts) < minSamples {
		return s, fmt.Errorf("whatif: %d of %d recorded answers are streams that show when their first token came, want at least %d", len(firsts), len(served), minSamples)
	}
	slices.SortStableFunc(firsts, func(a, b sample) int { return a.wait - b.wait })
	idle := 0
	for idle < len(firsts) && (firsts[idle].wait == 0 || idle < max(minSamples, len(firsts)/10)) {
		idle++
	}
	solve := func(samples []sample, first int) [3]float64 {
		x, y := make([][3]float64, len(samples)), make([]float64, len(samples))
		for i := range samples {
			x[i], y[i] = samples[i].x, samples[i].y
		}
		return leastSquares(x, y, first)
	}
	a := solve(firsts[:idle], 1)
	s.Base, s.Token, s.Running = a[0], a[1], a[2]
	a = solve(rest, 0)
	s.Decode, s.DecodeRunning = a[0], a[1]
	return s, nil
}

// leastSquares returns the coefficients of at least 0 with the least sum of (y − a·x)², by coordinate descent on the normal
// equations. Where several explain the samples alike, as when all prompts are equally long, the coefficient first does.
func leastSquares(x [][3]float64, y []float64, first int) (a [3]float64) {
	var xx [3][3]float64
	var xy [3]float64
	for i := range x {
		for j := range 3 {
			xy[j] += x[i][j] * y[i]
			for k := range 3 {
				xx[j][k] += x[i][j] * x[i][k]
			}
		}
	}
	for range 20_000 {
		moved := 0.0
		for n := range 3 {
			j := (first + n) % 3
			if xx[j][j] == 0 {
				continue
			}
			rest := xy[j]
			for k := range 3 {
				if k != j {
					rest -= xx[j][k] * a[k]
				}
			}
			next := max(0, rest/xx[j][j])
			moved = max(moved, math.Abs(next-a[j])/max(next, 1e-12))
			a[j] = next
		}
		if moved < 1e-9 {
			break
		}
	}
	return a
}

// chosen returns the candidate that was chosen, nil if it is not recorded.
func chosen(d *decisions.Decision) *decisions.Candidate {
	i := slices.IndexFunc(d.Candidates, func(c decisions.Candidate) bool { return c.Worker == d.Chosen })
	if i < 0 {
		return nil
	}
	return &d.Candidates[i]
}
