package scheduler

import (
	"math"
	"time"

	"github.com/coppice-llm/coppice/engine"
)

// leastPrompt is what prompts get of a step at least while others decode, in tokens,
// however little of the target time is left: so they come to an end.
const leastPrompt = 16

// stepTime predicts the duration of steps from the backend's figures, corrected by the
// measured times of earlier steps.
type stepTime struct {
	cost    engine.StepCost
	target  float64 // seconds of a step while others decode; 0: none
	learns  bool    // its figures are used
	factors [stepParts]factor
	spread  float64 // mean error of predictions of steps with prompts, relative
}

// The parts of a step's time. Each has its own correction, as a backend may be wrong about
// each.
const (
	partStep    = iota // every step
	partRows           // its rows and their context
	partPrompts        // its prompts
	stepParts
)

func newStepTime(cfg *Config, info *engine.Info) stepTime {
	t := stepTime{cost: info.Cost, learns: cfg.Tiers != nil, spread: leastSpread}
	if info.Cost.Known() && cfg.ITLTarget > 0 {
		t.target, t.learns = cfg.ITLTarget.Seconds(), true
	}
	for i := range t.factors {
		t.factors[i] = factor{1, mostDoubt}
	}
	return t
}

// predict returns the corrected seconds of each part of a step, and their sum.
func (t *stepTime) predict(shape *engine.StepShape) (parts [stepParts]float64, sum float64) {
	parts = [stepParts]float64{partStep: t.cost.Step, partRows: t.cost.Fixed(shape) - t.cost.Step, partPrompts: t.cost.Prompts(shape)}
	for i := range parts {
		parts[i] *= t.factors[i].value
		sum += parts[i]
	}
	return parts, sum
}

// factor corrects the backend's seconds of a part. doubt is the variance of the relative
// error of value.
type factor struct{ value, doubt float64 }

const (
	mostDoubt   = 1.0    // before the first step
	doubtGrowth = 0.0002 // per step: in the long run a measured time weighs an eighth
	timeNoise   = 0.1    // relative deviation between the times of equal steps
	outlier     = 3      // deviations at which an error is cut off
	leastFactor = 1.0 / 1024
	leastSpread = 1.0 / 16
	mostSpread  = 1.0 / 8
)

// correct divides the error of a prediction among the factors, by the seconds of their
// parts and by their doubt: a Kalman filter without covariances. It cuts off errors that are
// too large for the doubts, as other work on the machine may have delayed the step.
func (t *stepTime) correct(parts *[stepParts]float64, sum, took float64) {
	variance := float64(timeNoise * sum * timeNoise * sum)
	for i, p := range parts {
		variance += float64(t.factors[i].doubt * p * p)
	}
	miss, most := took-sum, outlier*math.Sqrt(variance)
	held := math.Abs(miss) > most
	miss = min(max(miss, -most), most)
	for i, p := range parts {
		f := &t.factors[i]
		gain := f.doubt * p / variance
		f.value = max(f.value*(1+float64(gain*miss)), leastFactor)
		if !held {
			f.doubt -= float64(gain * p * f.doubt)
		}
		f.doubt = min(f.doubt+doubtGrowth, mostDoubt)
	}
}

// learn takes the device's time of a plan. It returns the number of prompt tokens in the
// plan and the time that they took.
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
	took := time.Duration(nanos).Seconds()
	parts, sum := t.predict(&shape)
	t.correct(&parts, sum, took)
	if tokens == 0 {
		return 0, 0
	}
	if len(p.rows) == 1 { // a prompt alone takes all of the step
		return tokens, time.Duration(nanos)
	}
	t.spread += float64((min(math.Abs(took-sum)/sum, mostSpread) - t.spread) / 16)
	return tokens, time.Duration(max(took-sum+parts[partPrompts], 0) * 1e9)
}

// fits returns the budget for prompts beside the sequences that decode, in tokens without
// context. It leaves a margin for the errors of predictions, so that nearly all steps keep
// the target.
func (t *stepTime) fits(decoding int, context int64) int {
	shape := engine.StepShape{Rows: decoding + 1, Context: context}
	_, sum := t.predict(&shape)
	left := t.target/(1+float64(2*max(t.spread, leastSpread))) - sum
	if left <= 0 {
		return leastPrompt
	}
	return max(int(min(left/float64(t.factors[partPrompts].value*t.cost.Token), 1<<30)), leastPrompt)
}
