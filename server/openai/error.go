package openai

import (
	"errors"
	"fmt"
	"net/http"

	coppice "github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Error is OpenAI's error object, and the HTTP status that goes with it.
type Error struct {
	Status  int
	Message string
	Type    string // "invalid_request_error"; what is to be done: correct, wait, report
	Param   string // the field at fault, "messages[2].content"; "" is null
	Code    string // for programs: "context_length_exceeded"; "" is null
}

// The values of Error.Type.
const (
	invalidRequest = "invalid_request_error"
	rateLimit      = "rate_limit_error"
	timedOut       = "timeout_error"
	serverError    = "server_error"
)

func (e *Error) Error() string { return e.Message }

// Append writes {"error":{...}}.
func (e *Error) Append(dst []byte) []byte {
	dst = append(dst, `{"error":{"message":`...)
	dst = appendString(dst, e.Message)
	dst = append(dst, `,"type":`...)
	dst = appendString(dst, e.Type)
	dst = append(dst, `,"param":`...)
	dst = appendOptional(dst, e.Param)
	dst = append(dst, `,"code":`...)
	dst = appendOptional(dst, e.Code)
	return append(dst, "}}"...)
}

// invalid is the fault of a request.
func invalid(param, code, format string, args ...any) *Error {
	return &Error{http.StatusBadRequest, fmt.Sprintf(format, args...), invalidRequest, param, code}
}

// ModelNotFound refuses a request for a model that the server does not have.
func ModelNotFound(id string) *Error {
	return &Error{http.StatusNotFound, fmt.Sprintf("the model %q is not served here; /v1/models lists those that are", clip(id)), invalidRequest, "model", "model_not_found"}
}

// causes maps what a node and a chat template refuse. Errors that come wrapped in
// another one of the list stand before it.
var causes = []struct {
	is     error
	status int
	kind   string
	param  string
	code   string
}{
	{coppice.ErrQueueFull, http.StatusTooManyRequests, rateLimit, "", "server_busy"},
	{coppice.ErrTenantFull, http.StatusTooManyRequests, rateLimit, "", "rate_limit_exceeded"},
	{coppice.ErrPromptTooLong, http.StatusBadRequest, invalidRequest, "", "context_length_exceeded"},
	{coppice.ErrTooLarge, http.StatusBadRequest, invalidRequest, "", "request_too_large"},
	{coppice.ErrEmptyPrompt, http.StatusBadRequest, invalidRequest, "prompt", "empty_prompt"},
	{coppice.ErrFormatTimeout, http.StatusBadRequest, invalidRequest, "response_format", "format_timeout"},
	{coppice.ErrInvalid, http.StatusBadRequest, invalidRequest, "", "invalid_value"},
	{coppice.ErrDeadline, http.StatusRequestTimeout, timedOut, "", "deadline_exceeded"},
	{coppice.ErrQueueTimeout, http.StatusRequestTimeout, timedOut, "", "queue_timeout"},
	{coppice.ErrClosed, http.StatusServiceUnavailable, serverError, "", "shutting_down"},
	{chat.ErrRefused, http.StatusBadRequest, invalidRequest, "messages", "template_refused"},
	{chat.ErrRender, http.StatusBadRequest, invalidRequest, "messages", "template_failed"},
	{chat.ErrLimit, http.StatusBadRequest, invalidRequest, "messages", "template_limit"},
}

// ErrorOf is what a caller is told of err: an Error in it as it is, the errors of
// package coppice and of chat templates by their kind and with their text. What else
// happens is the server's own affair: status 500, and the text is not told.
func ErrorOf(err error) *Error {
	if e := (*Error)(nil); errors.As(err, &e) {
		return e
	}
	for _, c := range causes {
		if errors.Is(err, c.is) {
			return &Error{c.status, err.Error(), c.kind, c.param, c.code}
		}
	}
	return &Error{http.StatusInternalServerError, "the server failed at this request; its log says why", serverError, "", "internal_error"}
}
