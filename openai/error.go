package openai

import (
	"fmt"
	"net/http"

	"github.com/coppice-llm/coppice/internal/jsontext"
)

// Error is OpenAI's error object, and the HTTP status that goes with it.
type Error struct {
	Status  int
	Message string
	Type    string // what is to be done: correct the request, wait, report
	Param   string // the field at fault, "messages[2].content"; "" is null
	Code    string // for programs: "context_length_exceeded"; "" is null
}

// The values of Error.Type.
const (
	InvalidRequest = "invalid_request_error"
	RateLimit      = "rate_limit_error"
	TimedOut       = "timeout_error"
	ServerError    = "server_error"
)

// Unsupported is Error.Code where a parameter means something that is not done here.
const Unsupported = "unsupported_parameter"

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

// invalid is the fault of a request.
func invalid(param, code, format string, args ...any) *Error {
	return &Error{http.StatusBadRequest, fmt.Sprintf(format, args...), InvalidRequest, param, code}
}

// ModelNotFound refuses a request for a model that the server does not have.
func ModelNotFound(id string) *Error {
	return &Error{http.StatusNotFound, fmt.Sprintf("the model %q is not served here; /v1/models lists those that are", clip(id)), InvalidRequest, "model", "model_not_found"}
}
