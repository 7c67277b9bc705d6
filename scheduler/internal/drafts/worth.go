package drafts

// Step has the costs of a step that may verify drafts.
type Step struct {
	Rows    int     // that decode: each gets a token without drafts
	Seconds float64 // of these rows, without drafts and prompts
	Lost    float64 // seconds that the step takes longer if any row has a draft
	Draft   float64 // seconds for each guess that is verified
	Most    int     // guesses that the step can verify
}

// Floor returns the probability that a guess must exceed to be worth its time in the step, whatever else
// the step verifies: none is, if costs are unknown.
func (s *Step) Floor() float64 {
	if s.Rows == 0 || !(s.Seconds > 0) || !(s.Draft > 0) {
		return 1
	}
	return float64(s.Rows) / s.Seconds * s.Draft
}

const (
	// margin is by how much the rate of tokens must rise, at least, for a step to verify drafts. Within
	// it, errors of the estimates decide.
	margin = 1.03
	// rounds bounds the rounds of Choose. Each raises the rate; the third changes it by less than a
	// hundredth.
	rounds = 6
)

// Choose sets Take of the offers so that the step gives the most tokens a second, and returns the
// sum. A row of a draft with gains g takes k guesses that are worth their time: those with
//
//	g[k-1] / Draft > tokens / seconds of the whole step
//
// as gains fall, these are the first k. The rate on the right depends on all rows: Choose begins with
// the rate without drafts and repeats until the rate stands (Dinkelbach's method for ratios). With 1
// row, a step of 40 ms, 15 ms a guess and gains of 0.9, 0.81, 0.73 and so on, it takes 5 guesses: 5.1
// expected tokens in 115 ms instead of 1 in 40. If the rate does not rise by margin, no guess is
// taken.
func Choose(offers []Offer, step Step) (taken int) {
	if step.Floor() >= 1 {
		return clearTakes(offers)
	}
	base := float64(step.Rows) / step.Seconds
	rate, expected := base, 0.0
	for range rounds {
		taken, expected = takeAbove(offers, float64(rate*step.Draft), step.Most)
		next := (float64(step.Rows) + expected) / (step.Seconds + step.Lost + float64(step.Draft*float64(taken)))
		if next <= rate {
			break
		}
		rate = next
	}
	taken, expected = takeAbove(offers, float64(rate*step.Draft), step.Most)
	rate = (float64(step.Rows) + expected) / (step.Seconds + step.Lost + float64(step.Draft*float64(taken)))
	if rate < float64(margin*base) {
		return clearTakes(offers)
	}
	return taken
}

// takeAbove takes the guesses with gains above least, at most the number most, and returns their
// number and the sum of their gains. If there are more, the offers that come last get fewer.
func takeAbove(offers []Offer, least float64, most int) (taken int, expected float64) {
	for i := range offers {
		o := &offers[i]
		o.Take = 0
		for o.Take < len(o.Gains) && taken < most && o.Gains[o.Take] > least {
			expected += o.Gains[o.Take]
			o.Take++
			taken++
		}
	}
	return taken, expected
}

func clearTakes(offers []Offer) int {
	for i := range offers {
		offers[i].Take = 0
	}
	return 0
}

// Balance compares the time that drafts have saved with the time that they took, by measured steps.
// While drafts lose, it pauses them, longer each time. So the loss is bounded, however wrong the
// backend's figures are: a pause begins after a loss of maxLoss steps, and the n-th pause in a row
// takes firstPause·2ⁿ steps, at most lastPause: drafts that always lose cost less than a half per cent of
// the time. The zero Balance does not pause.
type Balance struct {
	saved float64 // in steps without drafts: decayed sum
	pause int     // steps left of the pause
	next  int     // length of the next pause; 0: firstPause
}

const (
	maxLoss    = 1.0
	firstPause = 32
	lastPause  = 512  // short enough for a request that copies a file to gain after others have lost
	decay      = 0.98 // per step: some 50 steps count
)

// Settle counts a step with drafts: it was to take base seconds without them and took took, both
// without prompts; rows have decoded, and accepted guesses were right. Each saves the part of a row in
// a step without drafts.
func (b *Balance) Settle(rows, accepted int, base, took float64) {
	saved := float64(accepted)/float64(rows) - (took-base)/base
	saved = min(max(saved, -2*maxLoss), float64(2*maxLoss*float64(max(accepted, 1)))) // other work on the machine may delay a step
	b.saved = min(float64(b.saved*decay)+saved, 8*maxLoss)
	switch {
	case b.saved < -maxLoss:
		b.next = min(max(b.next, firstPause), lastPause)
		b.pause, b.saved = b.next, 0
		b.next *= 2
	case b.saved > maxLoss:
		b.next = 0
	}
}

// Pauses reports whether the next step must be without drafts, and counts that step.
func (b *Balance) Pauses() bool {
	if b.pause == 0 {
		return false
	}
	b.pause--
	return true
}
