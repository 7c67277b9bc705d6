package server

import (
	"errors"
	"net/http"
	"strings"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/internal/wording"
	"github.com/coppice-llm/coppice/openai"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// causes maps what a node and a chat template refuse. Errors that come wrapped in
// another one of the list stand before it.
var causes = []struct {
	is     error
	status int
	kind   string
	param  string
	code   string
}{
	{coppice.ErrQueueFull, http.StatusTooManyRequests, openai.RateLimit, "", "server_busy"},
	{coppice.ErrDisplaced, http.StatusTooManyRequests, openai.RateLimit, "", "displaced"},
	{coppice.ErrTenantFull, http.StatusTooManyRequests, openai.RateLimit, "", "rate_limit_exceeded"},
	{coppice.ErrPromptTooLong, http.StatusBadRequest, openai.InvalidRequest, "", "context_length_exceeded"},
	{coppice.ErrTooLarge, http.StatusBadRequest, openai.InvalidRequest, "", "request_too_large"},
	{coppice.ErrEmptyPrompt, http.StatusBadRequest, openai.InvalidRequest, "prompt", "empty_prompt"},
	{coppice.ErrFormatTimeout, http.StatusBadRequest, openai.InvalidRequest, "response_format", "format_timeout"},
	{coppice.ErrInvalid, http.StatusBadRequest, openai.InvalidRequest, "", "invalid_value"},
	{coppice.ErrDeadline, http.StatusRequestTimeout, openai.TimedOut, "", "deadline_exceeded"},
	{coppice.ErrQueueTimeout, http.StatusRequestTimeout, openai.TimedOut, "", "queue_timeout"},
	{coppice.ErrClosed, http.StatusServiceUnavailable, openai.ServerError, "", "shutting_down"},
	{coppice.ErrContract, http.StatusInternalServerError, openai.ServerError, "", "backend_fault"},
	{coppice.ErrLogits, http.StatusInternalServerError, openai.ServerError, "", "backend_fault"},
	{chat.ErrControl, http.StatusBadRequest, openai.InvalidRequest, "messages", "control_token"},
	{chat.ErrRefused, http.StatusBadRequest, openai.InvalidRequest, "messages", "template_refused"},
	{chat.ErrRender, http.StatusBadRequest, openai.InvalidRequest, "messages", "template_failed"},
	{chat.ErrLimit, http.StatusBadRequest, openai.InvalidRequest, "messages", "template_limit"},
	{coppice.ErrNotCached, http.StatusBadRequest, openai.InvalidRequest, "", "not_cached"},
	{coppice.ErrPinBudget, http.StatusBadRequest, openai.InvalidRequest, "", "pin_budget"},
	{coppice.ErrNoCache, http.StatusBadRequest, openai.InvalidRequest, "", "unsupported"},
}

// errorOf is what a caller is told of err: an openai.Error in it as it is, the errors of
// package coppice and of chat templates by their kind and with their text. What else
// happens is the server's own affair: status 500, and the text is not told.
func errorOf(err error) *openai.Error {
	if e := (*openai.Error)(nil); errors.As(err, &e) {
		return e
	}
	for _, c := range causes {
		if errors.Is(err, c.is) {
			return &openai.Error{Status: c.status, Message: outer(err), Type: c.kind, Param: c.param, Code: c.code}
		}
	}
	return &openai.Error{Status: http.StatusInternalServerError, Type: openai.ServerError, Code: "internal_error", Message: "the server failed at this request; its log says why"}
}

// outer is the text of err without the name of a package.
func outer(err error) string { return strings.TrimPrefix(wording.Public(err.Error()), wording.Name) }

// blame is errorOf for a request with these parameters: what the node refuses because
// of one field names the parameter that it came from.
func blame(p *openai.Params, err error) error {
	var field *coppice.FieldError
	if !errors.As(err, &field) {
		return err
	}
	e := *errorOf(err)
	switch field.Field {
	case "Format":
		e.Param = p.From.Format
	case "Samples":
		e.Param = "n"
	case "MaxTokens":
		e.Param = p.From.Limit
	case "MinTokens":
		e.Param = "min_tokens"
	case "Prompt":
		e.Param = p.From.Prompt
	case "StopTokens":
		e.Param = "stop_token_ids"
	case "AllowedTokens":
		e.Param = "allowed_token_ids"
	case "Logprobs":
		e.Param, e.Code = "logprobs", openai.Unsupported
	case "PromptLogprobs":
		if e.Param, e.Code = "echo", openai.Unsupported; p.PromptLogprobs {
			e.Param = "prompt_logprobs"
		}
	case "Penalties":
		e.Code = openai.Unsupported
	}
	return &e
}
