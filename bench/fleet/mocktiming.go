package fleet

import (
	"math"
	"time"
)

// mockLoad is the work of one pass of a mocker.
type mockLoad struct {
	prompts      int     // prompts with tokens in this pass
	promptTokens int     // prompt tokens computed
	rows         int     // decoding sequences
	used         float64 // share of the blocks that are active
}

// addPrompt adds a chunk of n tokens of a prompt.
func (l *mockLoad) addPrompt(n int) {
	l.prompts++
	l.promptTokens += n
}

// polynomial is upstream's timing (lib/mocker, perf_model), in milliseconds. The time of
// prompts is quadratic in the tokens computed, that of decoding rows quadratic in the
// share of the device in use. The time of a pass is the sum of both.
type polynomial struct {
	prefill [3]float64 // coefficients of 1, n and n², for n prompt tokens of the pass
	decode  [3]float64 // coefficients of 1, x and x², for x the active share of the blocks, in [0, 1]
	floor   float64    // least time of decoding rows
}

// dynamoTiming returns upstream's coefficients: 16.5 ms for an empty prompt, 169 ms
// for 8192 tokens; decoding 5.7 ms on an empty device and 34 ms on a full one.
func dynamoTiming() polynomial {
	return polynomial{
		prefill: [3]float64{16.50142, 1.518344e-2, 4.209989e-7},
		decode:  [3]float64{5.74, 54.01, -25.74},
		floor:   1,
	}
}

// pass returns the time of a pass with load l, 0 if it has neither prompts nor rows.
func (p polynomial) pass(l mockLoad) time.Duration {
	ms := 0.0
	if l.prompts > 0 {
		ms = max(0, square(p.prefill, float64(l.promptTokens)))
	}
	if l.rows > 0 {
		ms += max(p.floor, square(p.decode, min(1, l.used)))
	}
	return time.Duration(math.Round(ms / 1000 * 1e9))
}

// square returns c[0] + c[1]·x + c[2]·x².
func square(c [3]float64, x float64) float64 { return c[0] + x*(c[1]+x*c[2]) }
