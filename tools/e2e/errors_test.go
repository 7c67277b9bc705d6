package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// detail returns err with the parts of the client's error that its text leaves out.
func detail(err error) error {
	if e := (*openai.Error)(nil); errors.As(err, &e) {
		return fmt.Errorf("%w: %s", err, e.RawJSON())
	}
	return err
}

// refused checks that err is an error of the server with a status, the field at fault, a code and a
// message.
func refused(t *testing.T, what string, err error, status int, param, code string) *openai.Error {
	t.Helper()
	e := (*openai.Error)(nil)
	if !errors.As(err, &e) {
		t.Errorf("%s: %v, want status %d", what, err, status)
		return nil
	}
	if e.StatusCode != status || e.Param != param || e.Code != code || e.Message == "" || e.Type == "" {
		t.Errorf("%s: status %d, param %q, code %q, type %q, %q; want %d, %q, %q", what, e.StatusCode, e.Param, e.Code, e.Type, e.Message, status, param, code)
	}
	return e
}

// TestFields checks that invalid requests are refused with the name of the field at fault.
func TestFields(t *testing.T) {
	p := serve(t, "--max-body", "64KiB")
	for _, c := range []struct {
		name  string
		set   map[string]any
		param string
		code  string
	}{
		{"temperature", map[string]any{"temperature": 3}, "temperature", "invalid_value"},
		{"type", map[string]any{"temperature": "hot"}, "temperature", "invalid_type"},
		{"top_p", map[string]any{"top_p": 0}, "top_p", "invalid_value"},
		{"n", map[string]any{"n": 0}, "n", "invalid_value"},
		{"max_tokens", map[string]any{"max_tokens": -1}, "max_tokens", "invalid_value"},
		{"logprobs", map[string]any{"logprobs": 1000}, "logprobs", "invalid_value"},
		{"presence_penalty", map[string]any{"presence_penalty": 2.5}, "presence_penalty", "invalid_value"},
		{"logit_bias", map[string]any{"logit_bias": map[string]int{"70": 101}}, "logit_bias.70", "invalid_value"},
		{"logit_bias key", map[string]any{"logit_bias": map[string]int{"light": 1}}, "logit_bias.light", "invalid_value"},
		{"stop", map[string]any{"stop": []any{"a", 1}}, "stop[1]", "invalid_type"},
		{"suffix", map[string]any{"suffix": "the end"}, "suffix", "unsupported_parameter"},
		{"best_of", map[string]any{"best_of": 3}, "best_of", "unsupported_parameter"},
		{"unknown", map[string]any{"tempreature": 1}, "tempreature", "unknown_parameter"},
		{"extension", map[string]any{"coppice": map[string]any{"timeout": -1}}, "coppice.timeout", "invalid_value"},
		{"token", map[string]any{"prompt": []int{1, 1 << 20}}, "", "invalid_value"},
		{"prompt", map[string]any{"prompt": []any{"a", 1}}, "prompt[1]", "invalid_type"},
		{"empty prompt", map[string]any{"prompt": []int{}}, "prompt", "invalid_value"},
		{"regex", map[string]any{"regex": "("}, "", "invalid_value"},
		{"formats", map[string]any{"regex": "a", "guided_json": map[string]any{}}, "", "invalid_value"},
		{"too long", map[string]any{"prompt": words("light", 2000)}, "", "context_length_exceeded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var opts []option.RequestOption
			for k, v := range c.set {
				opts = append(opts, option.WithJSONSet(strings.ReplaceAll(k, ".", `\.`), v))
			}
			_, err := p.client.Completions.New(within(t), text("light", 4), opts...)
			param := c.param
			if e := (*openai.Error)(nil); param == "" && errors.As(err, &e) {
				param = e.Param // the error of the node, which has no field names
			}
			refused(t, c.name, err, http.StatusBadRequest, param, c.code)
			s := p.client.Completions.NewStreaming(within(t), text("light", 4), opts...)
			defer s.Close()
			if s.Next() {
				t.Error("the stream of a bad request has something in it")
			}
			refused(t, "streamed", s.Err(), http.StatusBadRequest, param, c.code)
		})
	}
	if f := p.stats(p.client); f.Requests != 0 {
		t.Errorf("%d of the refused requests ran", f.Requests)
	}
}

// TestRoutes checks unknown paths and wrong methods.
func TestRoutes(t *testing.T) {
	p := serve(t, "--max-body", "64KiB")
	ctx := within(t)
	other := text("light", 4)
	other.Model = "gpt-4"
	_, err := p.client.Completions.New(ctx, other)
	refused(t, "completion of another model", err, http.StatusNotFound, "model", "model_not_found")
	_, err = p.client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{Model: "gpt-4", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi")}})
	refused(t, "chat of another model", err, http.StatusNotFound, "model", "model_not_found")
	_, err = p.client.Models.Get(ctx, "org/gpt-4")
	refused(t, "another model", err, http.StatusNotFound, "model", "model_not_found")

	_, err = p.client.Embeddings.New(ctx, openai.EmbeddingNewParams{Model: "nano", Input: openai.EmbeddingNewParamsInputUnion{OfString: openai.String("")}})
	refused(t, "the embedding of nothing", err, http.StatusBadRequest, "input", "invalid_value")
	_, err = p.client.Moderations.New(ctx, openai.ModerationNewParams{Input: openai.ModerationNewParamsInputUnion{OfString: openai.String("light")}})
	refused(t, "moderations", err, http.StatusNotFound, "", "unknown_url")
	err = p.client.Get(ctx, "completions", nil, nil)
	if e := refused(t, "GET", err, http.StatusMethodNotAllowed, "", "method_not_allowed"); e != nil && e.Response.Header.Get("Allow") != "POST" {
		t.Errorf("Allow is %q", e.Response.Header.Get("Allow"))
	}
	_, err = p.client.Completions.New(ctx, text(strings.Repeat("light ", 20_000), 4))
	refused(t, "a long body", err, http.StatusRequestEntityTooLarge, "", "body_too_large")

	post := func(kind, body string) error {
		return p.client.Post(context.WithoutCancel(ctx), "completions", nil, nil, option.WithRequestBody(kind, []byte(body)))
	}
	refused(t, "half of a body", post("application/json", `{"prompt":"light"`), http.StatusBadRequest, "", "invalid_json")
	refused(t, "deep", post("application/json", `{"prompt":`+strings.Repeat("[", 10_000)), http.StatusBadRequest, "", "invalid_json")
	refused(t, "a list", post("application/json", `[]`), http.StatusBadRequest, "", "invalid_type")
	refused(t, "nothing", post("application/json", `{}`), http.StatusBadRequest, "prompt", "missing_required_parameter")
	refused(t, "text", post("text/plain", `{"prompt":"light"}`), http.StatusUnsupportedMediaType, "", "unsupported_media_type")
	if p.complete(text("light", 4)).Usage.CompletionTokens == 0 {
		t.Error("the server is worse for it")
	}
	p.quiet(p.client)
}
