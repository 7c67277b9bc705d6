package predict

import (
	"math"
	"time"

	"github.com/coppice-llm/coppice/engine"
)

// leastPrompt is the number of tokens that prompts get in a step at least while others
// decode, however little of the target time is left, so that prompts finish.
const leastPrompt = 16

// Steps predicts the duration of steps: from the backend's figures, corrected by the
// measured times of earlier steps. Times are seconds.
type Steps struct {
	cost    engine.StepCost
	target  float64 // of a step while sequences decode; 0: none
	learns  bool    // steps are measured: something uses the corrections
	factors [stepParts]factor
	spread  float64 // mean relative error of predictions of steps with prompts
}

// The parts of a step's time. Each has its own correction, as a backend may be wrong about
// each: one that knows the bandwidth of its weights but not its attention is right about
// the first only.
const (
	partStep    = iota // every step
	partRows           // its rows and their context
	partPrompts        // its prompts: tokens, and the context that they attend to
	partDrafts         // guesses that its rows verify; its correction is beside that of rows
	stepParts
)

// NewSteps makes a predictor with factors of 1 and the highest doubt, so that the first
// steps correct the factors most. It has the target only if the backend's cost is known;
// target 0 is none. learns says that measured times are used without a target too.
func NewSteps(cost engine.StepCost, target time.Duration, learns bool) Steps {
	t := Steps{cost: cost, learns: learns, spread: leastSpread}
	if cost.Known() && target > 0 {
		t.target, t.learns = target.Seconds(), true
	}
	for i := range t.factors {
		t.factors[i] = factor{1, mostDoubt}
	}
	return t
}

// predict returns the corrected seconds of each part of a step, and their sum. With Step 6
// ms, Token 20 µs and factors of 1, a step with a prompt chunk of 500 tokens alone takes 6
// + 10 = 16 ms, if rows and context cost nothing.
func (t *Steps) predict(shape *engine.StepShape) (parts [stepParts]float64, sum float64) {
	without := *shape
	without.Drafts, without.DraftPairs = 0, 0
	rows := t.cost.Fixed(&without)
	parts = [stepParts]float64{partStep: t.cost.Step, partRows: rows - t.cost.Step, partPrompts: t.cost.Prompts(shape), partDrafts: t.cost.Fixed(shape) - rows}
	// A guess is computed as a row is. Until some were measured, they are as much dearer than the backend's figure as
	// rows are.
	parts[partDrafts] *= t.factors[partRows].value
	for i := range parts {
		parts[i] *= t.factors[i].value
		sum += parts[i]
	}
	return parts, sum
}

// factor corrects the backend's figure for a part of a step: the prediction is value times
// the backend's seconds. doubt is the variance of value's relative error.
type factor struct{ value, doubt float64 }

// With doubtGrowth g and timeNoise s, the doubt of a part settles where growth and
// measurement balance, near √(g·s²) = 0.0014, and the gain near 0.0014/(0.0014+s²), an
// eighth: a lasting change is learnt within some 8 steps.
const (
	mostDoubt   = 1.0        // before the first step
	doubtGrowth = 0.0002     // per step
	timeNoise   = 0.1        // relative deviation between the times of equal steps
	outlier     = 3          // deviations at which an error is cut off
	leastFactor = 1.0 / 1024 // so that no factor reaches 0
	leastSpread = 1.0 / 16   // bounds of spread: margins of 1/8 to 1/4 of a step, see Fits
	mostSpread  = 1.0 / 8
)

// correct adjusts the factors after a step. parts and sum are what predict returned for the
// step, in seconds, and took is the time measured. The error took - sum is divided among
// the factors, in proportion to the seconds and the doubt of their parts: a Kalman filter
// without covariances. A step that is nearly all prompt mostly corrects the factor of
// prompts; a step of decode rows leaves that factor as it is.
//
// With parts p, doubts d and V = (timeNoise·sum)² + Σ d·p², the variance of the prediction,
// a factor moves by d·p/V times the error, and its doubt shrinks by the share of d·p² in V.
// An error beyond 3 deviations is cut off there, because other work on the machine may have
// delayed the step. Doubts do not shrink then, so that a lasting change is still learnt.
func (t *Steps) correct(parts *[stepParts]float64, sum, took float64) {
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

// Targets reports whether steps have a target.
func (t *Steps) Targets() bool { return t.target > 0 }

// limit returns the predicted seconds that a step may have to keep the target.
func (t *Steps) limit() float64 { return t.target / (1 + float64(2*max(t.spread, leastSpread))) }

// Predict returns the predicted seconds of a step of that shape.
func (t *Steps) Predict(shape *engine.StepShape) float64 {
	_, sum := t.predict(shape)
	return sum
}

// Drafts returns the predicted seconds of a step without drafts, and the seconds that a draft of one of
// its sequences adds. decoding is the number of sequences that decode in the step, and context the sum of
// their contexts in tokens. Both results are 0 if the cost of drafts is unknown.
func (t *Steps) Drafts(decoding int, context int64) (rows, draft float64) {
	if t.cost.Draft <= 0 || decoding == 0 {
		return 0, 0
	}
	shape := engine.StepShape{Rows: decoding, Context: context, Drafts: 1, DraftPairs: context / int64(decoding)}
	parts, sum := t.predict(&shape)
	return sum - parts[partDrafts], parts[partDrafts]
}

// DraftsFit returns how many drafts fit into the target time of a step with such sequences; without a
// target, any number fits. Where the rows without drafts miss the target already, a step with drafts takes at most
// twice their time: otherwise a large model, which drafts help most, would have none.
func (t *Steps) DraftsFit(decoding int, context int64) int {
	rows, draft := t.Drafts(decoding, context)
	if t.target == 0 || draft == 0 {
		return math.MaxInt32
	}
	left := t.limit() - rows
	if left < 0 {
		left = rows
	}
	return int(min(left/draft, 1<<30))
}

// Learns reports whether measured times of steps are used.
func (t *Steps) Learns() bool { return t.learns }

// Learn corrects the factors by the time that the device measured for a step of that shape, in
// nanoseconds, which is above 0. The step had that many rows and tokens in all, at least one of
// each. Learn returns the number of prompt tokens in the step and the time that they took: what
// remains of nanos when the predicted time of the other parts is subtracted. If the backend's
// costs are unknown, the time is divided evenly among all tokens of the step. Learn returns zeros
// if the step has no prompt tokens.
func (t *Steps) Learn(shape *engine.StepShape, rows, all int, nanos int64) (tokens int, prompts time.Duration) {
	tokens = shape.PromptTokens
	if !t.cost.Known() {
		return tokens, time.Duration(nanos / int64(all) * int64(tokens))
	}
	took := time.Duration(nanos).Seconds()
	parts, sum := t.predict(shape)
	t.correct(&parts, sum, took)
	if tokens == 0 {
		return 0, 0
	}
	if rows == 1 { // a prompt alone accounts for the whole step
		return tokens, time.Duration(nanos)
	}
	t.spread += float64((min(math.Abs(took-sum)/sum, mostSpread) - t.spread) / 16)
	return tokens, time.Duration(max(took-sum+parts[partPrompts], 0) * 1e9)
}

// Fits returns how many prompt tokens fit into the target time of a step, counted as tokens
// without context, and at least leastPrompt. decoding is the number of sequences that
// decode in that step, with that number of drafts, and context the sum of their contexts in tokens. Fits leaves a
// margin of twice the mean error, between 1/8 and 1/4 of the predicted time, so that nearly
// all steps keep the target.
//
// For example, with a target of 50 ms, the least margin, decode rows that take 20 ms and 20
// µs for a prompt token, prompts get (50/1.125 - 20) ms / 20 µs = 1,222 tokens.
func (t *Steps) Fits(decoding int, context int64, drafts int) int {
	shape := engine.StepShape{Rows: decoding + 1, Context: context, Drafts: drafts}
	if decoding > 0 {
		shape.DraftPairs = context / int64(decoding) * int64(drafts)
	}
	_, sum := t.predict(&shape)
	left := t.limit() - sum
	if left <= 0 {
		return leastPrompt
	}
	return max(int(min(left/float64(t.factors[partPrompts].value*t.cost.Token), 1<<30)), leastPrompt)
}
