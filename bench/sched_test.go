package bench

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/scheduler"
)

func TestPlaySched(t *testing.T) {
	for _, policy := range scheduler.Policies() {
		for _, queue := range []int{0, 40} {
			cfg := SchedConfig{Rows: 8, Queue: queue, Policy: policy, PromptTokens: 100, OutputTokens: 16, Requests: 200, Inflight: 1 + queue/40}
			calls := 0
			s, err := PlaySched(context.Background(), cfg, func() { calls++ })
			if err != nil {
				t.Fatal(err)
			}
			// 8 running requests of 16 output tokens: one ends every other step on average.
			// All that end in the last step count.
			if s.Requests < 200 || s.Requests > 208 || s.Steps < 380 || s.Steps > 480 {
				t.Errorf("%v, queue %d: %d requests in %d steps", policy, queue, s.Requests, s.Steps)
			}
			// At most half of a prompt is cached, and all output tokens but the last are run.
			if least, most := s.Requests*(50+15), s.Requests*(100+16)+1000; s.Tokens < least-1000 || s.Tokens > most {
				t.Errorf("%v, queue %d: %d tokens, want %d to %d", policy, queue, s.Tokens, least, most)
			}
			if calls != s.Requests {
				t.Errorf("%v: progress was called %d times for %d requests", policy, calls, s.Requests)
			}
			if s.NextP50 <= 0 || s.NextP99 < s.NextP50 || s.DecodeNextP50 <= 0 || s.CompletePerRow <= 0 || s.Add <= 0 || s.RequestsPerS <= 0 || s.TokensPerS <= s.RequestsPerS {
				t.Errorf("%v: %+v", policy, s)
			}
		}
	}
}

// TestSchedJSON pins the JSON keys, which other tools read.
func TestSchedJSON(t *testing.T) {
	checkKeys(t, reread[map[string]any](t, new(SchedSummary)), `add_ns allocs_per_step complete_ns_per_row decode_next_ns_p50 next_ns_per_step_p50 next_ns_per_step_p99
		requests requests_per_s steps tokens tokens_per_s`)
}

func TestPlaySchedRefuses(t *testing.T) {
	_, err := PlaySched(context.Background(), SchedConfig{Rows: -1, Queue: -1, PromptTokens: 1, OutputTokens: -1, Requests: -1, PageTokens: 257, Inflight: -1}, nil)
	for _, want := range []string{"Rows is -1", "Queue is -1", "PromptTokens is 1", "OutputTokens is -1", "Requests is -1", "PageTokens is 257", "Inflight is -1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not mention %q", err, want)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := PlaySched(ctx, SchedConfig{Rows: 2}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
