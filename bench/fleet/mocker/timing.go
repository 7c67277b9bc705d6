package mocker

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Load is the work of one pass.
type Load struct {
	Prompts       int // prompts of which something is computed
	PromptTokens  int // that are computed of them
	Pairs         int // of these tokens with themselves and all before them
	Rows          int // decoding sequences
	ContextTokens int // whose KV these read
	ActiveTokens  int // in blocks that requests hold, each block as full
	TotalTokens   int // that the device has room for
}

// addPrompt counts n tokens of a prompt behind c others.
func (l *Load) addPrompt(n, c int) {
	l.Prompts++
	l.PromptTokens += n
	l.Pairs += n*c + n*(n+1)/2
}

// Timing says how long a pass takes: [Polynomial] as the mocker has it,
// [Coefficients] as the rest of the house.
type Timing interface {
	// Pass is pure. A pass takes a nanosecond at least, whatever it says.
	Pass(Load) time.Duration
	// Validate reports all faults at once.
	Validate() error
}

// Polynomial is upstream's timing (lib/mocker, perf_model): a prompt's time grows
// with the square of its tokens, a decoding pass's with how full the device is.
// Prompts and rows of a pass follow on each other. All in milliseconds.
type Polynomial struct {
	Prefill [3]float64 // constant, for each token, for its square: of all new tokens of the pass
	Decode  [3]float64 // constant, for the part of the tokens that is active, for its square
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

// Pass implements Timing. No prompts and no rows take no time.
func (p Polynomial) Pass(l Load) time.Duration {
	ms := 0.0
	if l.Prompts > 0 {
		ms = max(0, square(p.Prefill, float64(l.PromptTokens)))
	}
	if l.Rows > 0 {
		// Above 1 the square would win: upstream's first form became free there.
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

func square(c [3]float64, x float64) float64 { return c[0] + x*(c[1]+x*c[2]) }

// Coefficients is a timing by counts, in seconds, with the meaning that
// router.Profile gives them: so a mocker and our scheduler compare on one device.
type Coefficients struct {
	Step  float64 // of a pass by itself: reading the weights, launching
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

// maxPass bounds what a pass takes, so that no sum of times overflows.
const maxPass = 24 * time.Hour

func seconds(s float64) time.Duration {
	if s >= maxPass.Seconds() {
		return maxPass
	}
	return time.Duration(math.Round(s * 1e9))
}
