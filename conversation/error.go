package conversation

import (
	"fmt"
	"net/http"

	"github.com/coppice-llm/coppice/internal/jsonbody"
)

// Error is the error of a request, with its HTTP status. Each API writes it in its own form.
type Error struct {
	Status  int
	Message string
	Param   string // the faulty field, "messages[2].content", or ""
	Code    string // for programs: "context_length_exceeded", or ""
	// RequestID names the HTTP request, for APIs whose errors do so. The server sets it.
	RequestID string
}

// Unsupported is Error.Code for a parameter that this server does not support.
const Unsupported = "unsupported_parameter"

// ErrAdminOnly refuses a request that only an administrator may send.
var ErrAdminOnly = NewError(http.StatusForbidden, "admin_only", "this request requires the key of an admin")

func (e *Error) Error() string { return e.Message }

// NewError returns an error with this status and code. The message has the form of fmt.Sprintf.
func NewError(status int, code, format string, args ...any) *Error {
	return &Error{Status: status, Message: fmt.Sprintf(format, args...), Code: code}
}

// At sets the faulty field. It changes e and returns it.
func (e *Error) At(param string) *Error {
	e.Param = param
	return e
}

// Invalid returns the error with status 400 for a request whose field param is faulty.
func Invalid(param, code, format string, args ...any) *Error {
	return NewError(http.StatusBadRequest, code, format, args...).At(param)
}

// OfFault makes err an *Error if it is the fault of a body, for deferred calls around [jsonbody]:
// it runs after bail.Recover.
func OfFault(err *error) {
	if f, ok := (*err).(*jsonbody.Fault); ok {
		*err = Invalid(f.Param, f.Code, "%s", f.Message)
	}
}

// ModelNotFound returns the error for a model that is not served.
func ModelNotFound(id string) *Error {
	return NewError(http.StatusNotFound, "model_not_found", "the model %q is not served here; /v1/models lists the models", jsonbody.Clip(id)).At("model")
}
