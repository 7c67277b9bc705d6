package server

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/scheduler"
)

// TestSpeculate: with a prediction, and guesses at the next tokens, an answer is the same; usage and
// metrics count the guesses. The server's value bounds that of a request.
func TestSpeculate(t *testing.T) {
	t.Parallel()
	b := start(t, setup{}) // with the default
	off := start(t, setup{Node: coppice.Config{Scheduler: scheduler.Config{Speculate: scheduler.SpeculateOff}}})
	plain := b.ask("/v1/chat/completions", chatOf(`"coppice":{"speculate":"off"}`))
	text, err := json.Marshal(plain.Choices[0].Message.Content)
	b.ok(err)
	accepted, drafted := 0, 0
	for _, tc := range []struct {
		on          *bed
		more        string
		some, right bool // guesses, and whether they are right for sure
	}{
		{b, `"coppice":{"speculate":"off"}`, false, false},
		{b, `"coppice":{"speculate":4}`, true, false},
		{b, fmt.Sprintf(`"prediction":{"type":"content","content":%s},"coppice":{"speculate":8}`, text), true, true},
		{off, `"coppice":{"speculate":8}`, false, false},
	} {
		a := tc.on.ask("/v1/chat/completions", chatOf(tc.more))
		u := a.Usage
		if got := a.Choices[0].Message.Content; got != plain.Choices[0].Message.Content || u.Completion != plain.Usage.Completion {
			t.Errorf("%s: %d tokens, %q, want %d, %q", tc.more, u.Completion, got, plain.Usage.Completion, plain.Choices[0].Message.Content)
		}
		if d := u.Drafts; d.Accepted+d.Rejected > 0 != tc.some || tc.right && d.Accepted == 0 {
			t.Errorf("%s: %+v, want some: %v, right ones: %v", tc.more, d, tc.some, tc.right)
		}
		accepted, drafted = accepted+u.Drafts.Accepted, drafted+u.Drafts.Accepted+u.Drafts.Rejected
	}
	b.quiet()
	var sums [2]float64
	for name, v := range b.samples() {
		for i, metric := range []string{"spec_decode_num_accepted_tokens_total", "spec_decode_num_draft_tokens_total"} {
			for _, source := range []string{"own", "prediction", "grammar", "tree"} {
				if name == fmt.Sprintf(`vllm:%s{model_name="nano",source="%s"}`, metric, source) {
					sums[i] += v
				}
			}
		}
	}
	if sums != [2]float64{float64(accepted), float64(drafted)} {
		t.Errorf("metrics have %v accepted and drafted, usage %d and %d", sums, accepted, drafted)
	}
	b.refused("POST", "/v1/chat/completions", chatOf(`"coppice":{"speculate":0}`), 400, "invalid_value")
	b.refused("POST", "/v1/chat/completions", chatOf(`"coppice":{"speculate":"on"}`), 400, "invalid_value")
}

func chatOf(more string) string {
	return `{"messages":[{"role":"user","content":"What is light?"}],"max_tokens":64,"temperature":0,` + more + `}`
}
