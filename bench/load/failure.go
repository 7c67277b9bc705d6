package load

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/coppice-llm/coppice/internal/enum"
	"github.com/coppice-llm/coppice/internal/terminal"
)

// Failure is the reason why a request failed.
type Failure uint8

const (
	// None means that the request did not fail.
	None Failure = iota
	// Connection means that the request could not be sent, or the connection broke.
	Connection
	// Timeout means that Config.Timeout passed before the end of the answer.
	Timeout
	// Refused is a status 4xx except 429: the request is at fault.
	Refused
	// Busy is status 429 or 503: the server is overloaded.
	Busy
	// ServerError is a status 5xx except 503, or any other status but 200.
	ServerError
	// StreamError means that the stream began and then contained an error.
	StreamError
	// Malformed means that the answer is not a stream of chunks.
	Malformed
	// Truncated means that the stream ended without [DONE] and without a finish_reason.
	Truncated
	// Unfinished means that the run was cancelled during the request. It does not count
	// as failed.
	Unfinished
	failures // number of values
)

var failureNames = enum.New[Failure]("load", "failure", "none", "connection", "timeout", "refused", "busy", "server_error", "stream_error", "malformed", "truncated", "unfinished")

// String returns a short name in lower case.
func (f Failure) String() string { return failureNames.Name(f) }

// MarshalText returns the name that String returns.
func (f Failure) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// errTimeout is the cause of a context cancelled by Config.Timeout.
var errTimeout = errors.New("load: timeout of a request")

// ofStatus returns the failure for an HTTP status other than 200.
func ofStatus(status int) Failure {
	switch {
	case status == 429 || status == 503:
		return Busy
	case status >= 400 && status < 500:
		return Refused
	}
	return ServerError
}

// ofError returns the failure for an error of sending or reading under ctx.
func ofError(ctx context.Context, err error) Failure {
	switch {
	case errors.Is(context.Cause(ctx), errTimeout):
		return Timeout
	case ctx.Err() != nil:
		return Unfinished
	case errors.Is(err, io.ErrUnexpectedEOF):
		return Truncated
	case errors.Is(err, ErrEventTooLong):
		return Malformed
	}
	return Connection
}

// Said quotes a server's error for an error of ours: the message in its JSON, or else its text.
func Said(body []byte) string {
	var whole struct {
		Error   json.RawMessage
		Message string
	}
	if json.Unmarshal(body, &whole) != nil {
		return terminal.Quote(bytes.TrimSpace(body))
	}
	message := ""
	var inner struct{ Message string }
	if json.Unmarshal(whole.Error, &inner) == nil {
		message = inner.Message
	} else if json.Unmarshal(whole.Error, &message) != nil {
		message = "" // neither an object with a message nor a text
	}
	if text := cmp.Or(message, whole.Message); text != "" {
		return terminal.Quote(text)
	}
	return terminal.Quote(bytes.TrimSpace(body))
}

// StatusText returns the status of an answer with our words for it: those of the server are any text.
func StatusText(code int) string {
	return strings.TrimSpace(strconv.Itoa(code) + " " + http.StatusText(code))
}
