package server

import (
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine/sim"
)

// TestLogprobsOnASimulatedDevice: log-probabilities of a long prompt are refused if the device
// has no logits, and answered if it has. The node keeps serving.
func TestLogprobsOnASimulatedDevice(t *testing.T) {
	ids := "[" + strings.Repeat("5,", 2999) + "5]"
	for _, logits := range []bool{false, true} {
		b := start(t, setup{Sim: &sim.Config{Logits: logits}})
		for _, tc := range []struct{ more, param string }{
			{`"prompt_logprobs":0`, `"prompt_logprobs"`},
			{`"echo":true,"logprobs":1`, `"logprobs"`},
			{`"logprobs":1`, `"logprobs"`},
			{`"frequency_penalty":1`, "null"},
		} {
			body := `{"max_tokens":1,"prompt":` + ids + `,` + tc.more + `}`
			if logits {
				b.ask("/v1/completions", body)
				continue
			}
			if a := b.refused("POST", "/v1/completions", body, 400, "unsupported_parameter"); !strings.Contains(string(a.body), `"param":`+tc.param) ||
				!strings.Contains(string(a.body), "the backend sim") {
				t.Errorf("%s: %s", tc.more, a.body)
			}
		}
		b.ask("/v1/completions", `{"max_tokens":1,"prompt":`+ids+`}`)
		b.quiet()
	}
}
