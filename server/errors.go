package server

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/internal/web"
	"github.com/coppice-llm/coppice/internal/wording"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// causes maps the errors of a node and of a chat template to statuses, parameters and codes. The
// first match wins: of two errors that may occur together, the more specific one is listed first.
var causes = []struct {
	is     error
	status int
	param  string
	code   string
}{
	{coppice.ErrMemory, http.StatusServiceUnavailable, "", "server_busy"},
	{coppice.ErrQueueFull, http.StatusTooManyRequests, "", "server_busy"},
	{coppice.ErrDisplaced, http.StatusTooManyRequests, "", "displaced"},
	{coppice.ErrTenantFull, http.StatusTooManyRequests, "", "rate_limit_exceeded"},
	{coppice.ErrPromptTooLong, http.StatusBadRequest, "", "context_length_exceeded"},
	{coppice.ErrTooLarge, http.StatusBadRequest, "", "request_too_large"},
	{coppice.ErrEmptyPrompt, http.StatusBadRequest, "prompt", "empty_prompt"},
	{coppice.ErrFormatTimeout, http.StatusBadRequest, "response_format", "format_timeout"},
	{coppice.ErrInvalid, http.StatusBadRequest, "", "invalid_value"},
	{coppice.ErrDeadline, http.StatusRequestTimeout, "", "deadline_exceeded"},
	{coppice.ErrQueueTimeout, http.StatusRequestTimeout, "", "queue_timeout"},
	{coppice.ErrClosed, http.StatusServiceUnavailable, "", "shutting_down"},
	{coppice.ErrContract, http.StatusInternalServerError, "", "backend_fault"},
	{coppice.ErrLogits, http.StatusInternalServerError, "", "backend_fault"},
	{engine.ErrMemory, http.StatusServiceUnavailable, "", "server_busy"},
	{chat.ErrControl, http.StatusBadRequest, "messages", "control_token"},
	{chat.ErrToolsDropped, http.StatusBadRequest, "tools", "tools_dropped"},
	{chat.ErrRefused, http.StatusBadRequest, "messages", "template_refused"},
	{chat.ErrRender, http.StatusBadRequest, "messages", "template_failed"},
	{chat.ErrLimit, http.StatusBadRequest, "messages", "template_limit"},
	{coppice.ErrNotCached, http.StatusBadRequest, "", "not_cached"},
	{coppice.ErrNoSession, http.StatusNotFound, "", "unknown_session"},
	{coppice.ErrNoTier, http.StatusBadRequest, "", "no_tier"},
	{coppice.ErrParkFailed, http.StatusServiceUnavailable, "", "park_failed"},
	{coppice.ErrPinBudget, http.StatusBadRequest, "", "pin_budget"},
	{coppice.ErrNoCache, http.StatusBadRequest, "", "unsupported"},
}

// errorOf returns the error to send for err: an conversation.Error unchanged; a web.Refusal as it is; errors of package
// coppice and of chat templates by their kind, with their text. Any other error gives status 500 without
// its text, which is for the log only.
func errorOf(err error) *conversation.Error {
	if e := (*conversation.Error)(nil); errors.As(err, &e) {
		return e
	}
	if r := (*web.Refusal)(nil); errors.As(err, &r) {
		return conversation.NewError(r.Status, r.Code, "%s", r.Message)
	}
	for _, c := range causes {
		if errors.Is(err, c.is) {
			return conversation.NewError(c.status, c.code, "%s", outer(err)).At(c.param)
		}
	}
	return conversation.NewError(http.StatusInternalServerError, "internal_error", "internal error; the server's log has the cause")
}

// outer returns the text of err without the package's name.
func outer(err error) string { return strings.TrimPrefix(wording.Public(err.Error()), wording.Name) }

// blame returns err, the error of a request with parameters p. If the node refused a field of
// coppice.Request, blame returns an conversation.Error instead, which names the JSON parameter that the
// field came from.
func blame(p *conversation.Params, err error) error {
	var field *coppice.FieldError
	if !errors.As(err, &field) {
		return err
	}
	e := *errorOf(err)
	echo := "echo"
	if p.PromptLogprobs {
		echo = "prompt_logprobs"
	}
	if param, ok := map[string]string{
		"Format": p.From.Format, "Samples": "n", "MaxTokens": p.From.Limit, "MinTokens": "min_tokens", "Prompt": p.From.Prompt,
		"StopTokens": "stop_token_ids", "Dimensions": "dimensions", "AllowedTokens": "allowed_token_ids", "Logprobs": "logprobs", "PromptLogprobs": echo,
	}[field.Field]; ok {
		e.Param = param
	}
	if slices.Contains([]string{"Logprobs", "PromptLogprobs", "Penalties"}, field.Field) {
		e.Code = conversation.Unsupported
	}
	return &e
}

// renamed returns err, the error of a request with parameters p. Where it names a field of chat completions, renamed gives it the
// name in the API that the request is of.
func renamed(p *conversation.Params, err error) error {
	if err == nil {
		return nil
	}
	e := *errorOf(err)
	switch e.Param {
	case "messages":
		e.Param = p.From.Prompt
	case "response_format":
		e.Param = p.From.Format
	default:
		return err
	}
	return &e
}
