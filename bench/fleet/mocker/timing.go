package mocker

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Load is the work of one pass.
type Load struct {
	Prompts       int // prompts with tokens in this pass
	PromptTokens  int // prompt tokens computed
	Pairs         int // attention pairs: each of these tokens with itself and all tokens before it
	Rows          int // decoding sequences
	ContextTokens int // tokens whose KV the decoding rows read
	ActiveTokens  int // capacity of the active blocks
	TotalTokens   int // capacity of the device
}

// addPrompt adds a chunk of n tokens after c earlier ones: n*c + n*(n+1)/2 pairs.
func (l *Load) addPrompt(n, c int) {
	l.Prompts++
	l.PromptTokens += n
	l.Pairs += n*c + n*(n+1)/2
}

// Timing computes the time of a pass: [Polynomial] as upstream, [Coefficients] as the
// rest of this project.
type Timing interface {
	// Pass returns the time of a pass. It is pure. The worker limits it to 1 ns to 24 h.
	Pass(Load) time.Duration
	// Validate reports all faults at once.
	Validate() error
}

// Polynomial is upstream's timing (lib/mocker, perf_model), in milliseconds. The time of
// prompts is quadratic in the tokens computed, that of decoding rows quadratic in the
// share of the device in use. The time of a pass is the sum of both.
type Polynomial struct {
	Prefill [3]float64 // coefficients of 1, n and n², for n prompt tokens of the pass
	Decode  [3]float64 // coefficients of 1, x and x², for x the active share of the tokens, in [0, 1]
	Floor   float64    // least time of decoding rows
}

// DefaultPolynomial has upstream's coefficients: 16.5 ms for an empty prompt, 169 ms
// for 8192 tokens; decoding 5.7 ms on an empty device and 34 ms on a full one.
func DefaultPolynomial() Polynomial {
	return Polynomial{
		Prefill: [3]float64{16.50142, 1.518344e-2, 4.209989e-7},
		Decode:  [3]float64{5.74, 54.01, -25.74},
		Floor:   1,
	}
}

// Pass implements Timing. It returns 0 if there are neither prompts nor rows.
func (p Polynomial) Pass(l Load) time.Duration {
	ms := 0.0
	if l.Prompts > 0 {
		ms = max(0, square(p.Prefill, float64(l.PromptTokens)))
	}
	if l.Rows > 0 {
		// Above 1 the negative square would win, and decoding would become free, as in an
		// early form of upstream's.
		full := min(1, float64(l.ActiveTokens)/float64(max(l.TotalTokens, 1)))
		ms += max(p.Floor, square(p.Decode, full))
	}
	return seconds(ms / 1000)
}

// Validate implements Timing.
func (p Polynomial) Validate() error {
	var errs []error
	for _, f := range []struct {
		name   string
		values []float64
	}{{"Prefill", p.Prefill[:]}, {"Decode", p.Decode[:]}, {"Floor", []float64{p.Floor}}} {
		for i, v := range f.values {
			if math.IsNaN(v) || math.Abs(v) > 1e6 {
				errs = append(errs, fmt.Errorf("mocker: Polynomial.%s[%d] is %v, want a number up to 1e6", f.name, i, v))
			}
		}
	}
	return errors.Join(errs...)
}

// square evaluates a quadratic polynomial.
func square(c [3]float64, x float64) float64 { return c[0] + x*(c[1]+x*c[2]) }

// Coefficients is a linear timing, in seconds, with the coefficients of router.Profile.
// With it, a mocker and our scheduler can be compared on the same device.
type Coefficients struct {
	Step  float64 // for the pass itself: reading the weights, launching
	Token float64 // for each token of a prompt
	Pair  float64 // for each token of a prompt and each token before it
	Row   float64 // for each decoding row
	KV    float64 // for each token of KV that a decoding row reads
}

// Pass implements Timing.
func (c Coefficients) Pass(l Load) time.Duration {
	return seconds(c.Step + c.Token*float64(l.PromptTokens) + c.Pair*float64(l.Pairs) +
		c.Row*float64(l.Rows) + c.KV*float64(l.ContextTokens))
}

// Validate implements Timing.
func (c Coefficients) Validate() error {
	var errs []error
	for _, f := range []struct {
		name  string
		value float64
	}{{"Step", c.Step}, {"Token", c.Token}, {"Pair", c.Pair}, {"Row", c.Row}, {"KV", c.KV}} {
		if !(f.value >= 0 && f.value <= 1000) {
			errs = append(errs, fmt.Errorf("mocker: Coefficients.%s is %v, want 0 to 1000 seconds", f.name, f.value))
		}
	}
	return errors.Join(errs...)
}

// maxPass bounds the time of a pass, so that sums of times do not overflow.
const maxPass = 24 * time.Hour

// seconds converts to a Duration, rounded to nanoseconds and limited to maxPass.
func seconds(s float64) time.Duration {
	if s >= maxPass.Seconds() {
		return maxPass
	}
	return time.Duration(math.Round(s * 1e9))
}
