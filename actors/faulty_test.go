package actors

import (
	"errors"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/engine/enginetest"
	"github.com/coppice-llm/coppice/scheduler"
)

// TestFaultyAnswers: if a backend answers one row wrongly, that request fails and the node
// serves the next one. If a result can't be attributed to a row, the node ends with an error
// that gives the reason, and every request has its ending.
func TestFaultyAnswers(t *testing.T) {
	for _, fault := range enginetest.Faults() {
		t.Run(fault.Name, func(t *testing.T) {
			planted := false
			device := fault.Plant(backend(t, cpu.Config{}), func(x *engine.Batch) (int, bool) {
				for i := range x.Rows {
					if len(x.Binds) > 0 && !planted && fault.Fits(&x.Rows[i], &x.Binds[0].Sampling) {
						planted = true
						return i, true
					}
				}
				return 0, false
			})
			s := start(t, Config{Backend: device}, cpu.Config{})
			req := Request{Prompt: prompt, MaxTokens: 3, IgnoreEOS: true, PromptLogprobs: true, PromptTop: 2, AllowedTokens: s.Tokenizer().Encode(nil, prompt),
				Sampling: engine.SamplingParams{Logprobs: true, TopLogprobs: 2}}
			if fault.Needs == enginetest.NeedsHidden {
				req = Request{Prompt: prompt, Embed: Embed{Pooling: scheduler.MeanTokens}}
			}
			if _, _, e := drain(t, open(t, s, req)); e.Reason != scheduler.Failed || e.Err == nil || !planted {
				t.Errorf("the request ends with %+v", e)
			}
			if fault.Whole {
				if err := s.Close(); err == nil || errors.Is(err, ErrClosed) {
					t.Errorf("the node ended with %v", err)
				}
				return
			}
			if _, _, e := drain(t, open(t, s, req)); e.Reason != scheduler.Length && (e.Reason != scheduler.Stop || fault.Needs != enginetest.NeedsHidden) {
				t.Errorf("the next request ends with %+v", e)
			}
			credits(t, s)
			conserve(t, s)
		})
	}
}
