package scheduler

import (
	"time"

	"github.com/coppice-llm/coppice/engine"
)

// leastPrompt is what prompts get of a step at least while others decode, in tokens,
// however little of the target time is left: so they come to an end.
const leastPrompt = 16

// stepTime predicts how long steps take: by the backend's figures, corrected by the times
// of those that ran. What prompts add is corrected apart from the rest, as a backend may
// be wrong about either.
type stepTime struct {
	cost   engine.StepCost
	target float64 // seconds of a step while others decode; 0: none
	learns bool    // its figures are used
	fixed  correction
	prompt correction
}

func newStepTime(cfg *Config, info *engine.Info) stepTime {
	t := stepTime{cost: info.Cost, learns: cfg.Tiers != nil}
	if info.Cost.Known() && cfg.ITLTarget > 0 {
		t.target, t.learns = cfg.ITLTarget.Seconds(), true
	}
	return t
}

// correction is a factor between measured and predicted times; 0 before the first one.
type correction struct{ factor float64 }

// at is the factor in force.
func (c *correction) at() float64 {
	if c.factor == 0 {
		return 1
	}
	return c.factor
}

// learn takes a time and what was predicted for it. A single time counts for an eighth, and
// for no more than the double or half of those before it: a step may have been held up.
func (c *correction) learn(measured, predicted float64) {
	if predicted <= 0 {
		return
	}
	ratio := max(measured/predicted, 1.0/1024)
	if c.factor == 0 {
		c.factor = ratio
		return
	}
	ratio = min(max(ratio, c.factor/2), float64(2*c.factor))
	c.factor += float64((ratio - c.factor) / 8)
}

// learn takes the device's time of a plan, and returns the part of it that its prompts took,
// and how many of their tokens it ran.
func (t *stepTime) learn(p *Plan, nanos int64) (tokens int, prompts time.Duration) {
	if !t.learns || nanos <= 0 || len(p.rows) == 0 {
		return 0, 0
	}
	var shape engine.StepShape
	for i := range p.rows {
		shape.Add(int(p.rows[i].start), int(p.rows[i].end-p.rows[i].start))
	}
	tokens = shape.PromptTokens
	if !t.cost.Known() { // all tokens count alike
		return tokens, time.Duration(nanos / int64(p.tokens) * int64(tokens))
	}
	took, fixed := time.Duration(nanos).Seconds(), t.cost.Fixed(&shape)
	if tokens == 0 {
		t.fixed.learn(took, fixed)
		return 0, 0
	}
	rest := took - float64(t.fixed.at()*fixed)
	t.prompt.learn(rest, t.cost.Prompts(&shape))
	if len(p.rows) == 1 { // a prompt alone takes all of the step
		rest = took
	}
	return tokens, time.Duration(rest * 1e9)
}

// fits is how many tokens of prompts fit beside the sequences that decode, as the budget
// counts them: the context of a prompt makes a token count for more than one.
func (t *stepTime) fits(decoding int, context int64) int {
	shape := engine.StepShape{Rows: decoding + 1, Context: context}
	left := t.target - float64(t.fixed.at()*t.cost.Fixed(&shape))
	if left <= 0 {
		return leastPrompt
	}
	return max(int(min(left/float64(t.prompt.at()*t.cost.Token), 1<<30)), leastPrompt)
}
