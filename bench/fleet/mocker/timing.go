package mocker

import (
	"math"
	"time"
)

// load is the work of one pass.
type load struct {
	Prompts      int // prompts with tokens in this pass
	PromptTokens int // prompt tokens computed
	Rows         int // decoding sequences
	ActiveTokens int // tokens for which the active blocks have room
	TotalTokens  int // tokens for which all blocks of the device have room
}

// addPrompt adds a chunk of n tokens of a prompt.
func (l *load) addPrompt(n int) {
	l.Prompts++
	l.PromptTokens += n
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

// pass returns the time of a pass with load l, 0 if it has neither prompts nor rows.
func (p Polynomial) pass(l load) time.Duration {
	ms := 0.0
	if l.Prompts > 0 {
		ms = max(0, square(p.Prefill, float64(l.PromptTokens)))
	}
	if l.Rows > 0 {
		// For x above 1 the negative coefficient of x² would prevail, and decoding would become free, as in an
		// early version of upstream.
		full := min(1, float64(l.ActiveTokens)/float64(max(l.TotalTokens, 1)))
		ms += max(p.Floor, square(p.Decode, full))
	}
	return time.Duration(math.Round(ms / 1000 * 1e9))
}

// square returns c[0] + c[1]·x + c[2]·x².
func square(c [3]float64, x float64) float64 { return c[0] + x*(c[1]+x*c[2]) }
