package openai

import (
	"fmt"
	"net/http"

	"github.com/coppice-llm/coppice/internal/jsonbody"
	"github.com/coppice-llm/coppice/internal/jsontext"
)

// Error is OpenAI's error object, with its HTTP status.
type Error struct {
	Status  int
	Message string
	Type    string // class of the error: correct the request, retry later, or report it
	Param   string // the faulty field, "messages[2].content"; "" is written as null
	Code    string // for programs: "context_length_exceeded"; "" is written as null
}

// Values of Error.Type.
const (
	invalidRequest = "invalid_request_error"
	rateLimit      = "rate_limit_error"
	timedOut       = "timeout_error"
	serverError    = "server_error"
)

// Unsupported is Error.Code for a parameter that this server does not support.
const Unsupported = "unsupported_parameter"

// ErrAdminOnly refuses a request that only an administrator may send.
var ErrAdminOnly = NewError(http.StatusForbidden, "admin_only", "this request requires the key of an admin")

func (e *Error) Error() string { return e.Message }

// Append writes {"error":{...}}.
func (e *Error) Append(dst []byte) []byte {
	dst = append(dst, `{"error":{"message":`...)
	dst = jsontext.AppendString(dst, e.Message)
	dst = append(dst, `,"type":`...)
	dst = jsontext.AppendString(dst, e.Type)
	dst = append(dst, `,"param":`...)
	dst = jsontext.AppendOptional(dst, e.Param)
	dst = append(dst, `,"code":`...)
	dst = jsontext.AppendOptional(dst, e.Code)
	return append(dst, "}}"...)
}

// NewError returns an error with this status, the Type for the status, and a code. The message has
// the form of fmt.Sprintf.
func NewError(status int, code, format string, args ...any) *Error {
	kind := invalidRequest
	switch {
	case status == http.StatusTooManyRequests:
		kind = rateLimit
	case status == http.StatusRequestTimeout:
		kind = timedOut
	case status >= http.StatusInternalServerError:
		kind = serverError
	}
	return &Error{Status: status, Message: fmt.Sprintf(format, args...), Type: kind, Code: code}
}

// At sets the faulty field. It changes e and returns it.
func (e *Error) At(param string) *Error {
	e.Param = param
	return e
}

// invalid returns the error with status 400 for a request whose field param is faulty.
func invalid(param, code, format string, args ...any) *Error {
	return NewError(http.StatusBadRequest, code, format, args...).At(param)
}

// ModelNotFound returns the error for a model that is not served.
func ModelNotFound(id string) *Error {
	return NewError(http.StatusNotFound, "model_not_found", "the model %q is not served here; /v1/models lists the models", jsonbody.Clip(id)).At("model")
}
