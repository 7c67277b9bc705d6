package anthropic

import (
	"net/http"
	"strings"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/jsontext"
)

// errorTypes are the types of errors by status. Other statuses below 500 are of the request, and others from 500
// on of the server.
var errorTypes = map[int]string{
	http.StatusUnauthorized:          "authentication_error",
	http.StatusForbidden:             "permission_error",
	http.StatusNotFound:              "not_found_error",
	http.StatusRequestTimeout:        "timeout_error",
	http.StatusRequestEntityTooLarge: "request_too_large",
	http.StatusTooManyRequests:       "rate_limit_error",
	http.StatusServiceUnavailable:    "overloaded_error",
	http.StatusGatewayTimeout:        "timeout_error",
}

// AppendError writes {"type":"error","error":{…},"request_id":…}.
func AppendError(dst []byte, e *conversation.Error) []byte {
	kind := errorTypes[e.Status]
	switch {
	case kind != "":
	case e.Status >= http.StatusInternalServerError:
		kind = "api_error"
	default:
		kind = "invalid_request_error"
	}
	dst = append(dst, `{"type":"error","error":{"type":"`...)
	dst = append(dst, kind...)
	dst = append(dst, `","message":`...)
	message := e.Message
	if e.Code == "context_length_exceeded" { // clients shorten the conversation when they read this
		message = "prompt is too long: " + strings.TrimPrefix(message, "prompt too long: ")
	}
	dst = jsontext.AppendString(dst, message)
	dst = append(dst, `},"request_id":`...)
	return append(jsontext.AppendOptional(dst, e.RequestID), '}')
}

// AppendErrorEvent writes an error as the last event of a stream.
func AppendErrorEvent(dst []byte, e *conversation.Error) []byte {
	dst = append(dst, "event: error\ndata: "...)
	return append(AppendError(dst, e), "\n\n"...)
}
