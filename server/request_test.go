package server

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/openai"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// TestErrorOf: errors of the node become the statuses and codes that clients act on.
func TestErrorOf(t *testing.T) {
	own := conversation.NewError(401, "invalid_api_key", "who are you?")
	for _, tc := range []struct {
		err    error
		status int
		kind   string
		code   string
	}{
		{coppice.ErrQueueFull, 429, "rate_limit_error", "server_busy"},
		{coppice.ErrDisplaced, 429, "rate_limit_error", "displaced"},
		{coppice.ErrTenantFull, 429, "rate_limit_error", "rate_limit_exceeded"},
		{coppice.ErrPromptTooLong, 400, "invalid_request_error", "context_length_exceeded"},
		{coppice.ErrTooLarge, 400, "invalid_request_error", "request_too_large"},
		{coppice.ErrEmptyPrompt, 400, "invalid_request_error", "empty_prompt"},
		{coppice.ErrInvalid, 400, "invalid_request_error", "invalid_value"},
		{coppice.ErrFormatTimeout, 400, "invalid_request_error", "format_timeout"},
		{coppice.ErrDeadline, 408, "timeout_error", "deadline_exceeded"},
		{coppice.ErrQueueTimeout, 408, "timeout_error", "queue_timeout"},
		{coppice.ErrClosed, 503, "server_error", "shutting_down"},
		{chat.ErrRefused, 400, "invalid_request_error", "template_refused"},
		{chat.ErrRender, 400, "invalid_request_error", "template_failed"},
		{chat.ErrLimit, 400, "invalid_request_error", "template_limit"},
		{conversation.ModelNotFound("x"), 404, "invalid_request_error", "model_not_found"},
		{own, 401, "invalid_request_error", "invalid_api_key"},
	} {
		e := errorOf(fmt.Errorf("%w: with figures", tc.err))
		if e.Status != tc.status || !strings.Contains(string(openai.AppendError(nil, e)), `"type":"`+tc.kind+`"`) || e.Code != tc.code || !strings.Contains(e.Message, outer(tc.err)) {
			t.Errorf("%v becomes %+v, want %+v", tc.err, e, tc)
		}
	}
	secret := errors.New("device 3 at 10.0.0.1 is lost")
	if e := errorOf(secret); e.Status != 500 || e.Code != "internal_error" || strings.Contains(e.Message, "10.0.0.1") {
		t.Errorf("%v becomes %+v", secret, e)
	}
}

// TestNoInnerNames: no error for a client begins with the name of an internal package.
func TestNoInnerNames(t *testing.T) {
	for _, c := range causes {
		if got := errorOf(fmt.Errorf("scheduler: %w", c.is)).Message; regexp.MustCompile(`^[a-z]+: `).MatchString(got) {
			t.Errorf("%v is told as %q", c.is, got)
		}
	}
}

// FuzzRequest: every request that decodes can be sent to a node.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{
		`{"prompt":"x","logit_bias":{"5":-100},"stop":["a"],"top_p":0.5}`, `{"prompt":[[1,2],[3]],"n":2,"coppice":{"regex":"a|b"}}`,
		`{"prompt":"x","logprobs":20,"echo":true}`, `{"prompt":"x","logprobs":2,"echo":true,"prompt_logprobs":5}`,
		`{"messages":[{"role":"user","content":"x"}],"top_k":5,"min_p":1,"repetition_penalty":1e-9}`,
	} {
		f.Add([]byte(s))
	}
	check := func(t *testing.T, p *conversation.Params, req *coppice.Request) {
		if err := req.Sampling.Validate(1<<32 - 1); err != nil || req.Samples != p.N || int(req.Sampling.TopLogprobs) != p.TopLogprobs || req.Sampling.Logprobs != p.Logprobs {
			t.Errorf("%+v becomes %+v: %v", p, req, err)
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if c, err := openai.DecodeCompletion(body, openai.Options{}); err == nil {
			for i := range c.Prompts {
				req := completionRequest(c, i)
				check(t, &c.Params, &req)
				if req.Prompt != c.Prompts[i].Text || !slices.Equal(req.Tokens, c.Prompts[i].Tokens) {
					t.Errorf("request %d does not have its prompt", i)
				}
				if c.Echo && c.Logprobs && (!req.PromptLogprobs || int(req.PromptTop) < c.TopLogprobs) {
					t.Errorf("echo with logprobs asks for %v, %d", req.PromptLogprobs, req.PromptTop)
				}
			}
		}
		if c, err := openai.DecodeChat(body, openai.Options{}); err == nil {
			req := request(&c.Params)
			check(t, &c.Params, &req)
		}
	})
}

// TestSamplingThereAndBack: the server's defaults equal those of a request without parameters.
func TestSamplingThereAndBack(t *testing.T) {
	want := engine.SamplingParams{Temperature: .5, TopK: 3, TopP: .25, MinP: .125, RepetitionPenalty: 1.5, PresencePenalty: 1, FrequencyPenalty: -1, Seed: 7,
		Bias: []engine.TokenBias{{Token: 5, Bias: -2}}}
	c, err := openai.DecodeCompletion([]byte(`{"prompt":"x"}`), openai.Options{Sampling: sampling(&want)})
	if err != nil {
		t.Fatal(err)
	}
	if got := request(&c.Params).Sampling; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v becomes %+v", want, got)
	}
	if openai.MaxTopLogprobs != engine.MaxTopLogprobs {
		t.Errorf("%d others in each place are read, and %d computed", openai.MaxTopLogprobs, engine.MaxTopLogprobs)
	}
}
