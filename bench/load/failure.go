package load

import (
	"context"
	"errors"
	"io"

	"github.com/coppice-llm/coppice/internal/enum"
)

// Failure is why a request failed.
type Failure uint8

const (
	// None: it did not fail.
	None Failure = iota
	// Connection: it could not be sent, or the connection broke.
	Connection
	// Timeout: Config.Timeout was over.
	Timeout
	// Refused: status 4xx, but 429. The request is at fault.
	Refused
	// Busy: status 429 or 503. The server has too much to do.
	Busy
	// ServerError: status 5xx, but 503, or another that is not 200.
	ServerError
	// StreamError: the stream began and then held an error.
	StreamError
	// Malformed: the answer is not a stream of chunks.
	Malformed
	// Truncated: the stream ended without [DONE] or a finish_reason.
	Truncated
	// Unfinished: the run was called off while the request was out. It is not
	// counted as failed.
	Unfinished
	failures // how many there are
)

var failureNames = enum.New[Failure]("load", "failure", "none", "connection", "timeout", "refused", "busy", "server_error", "stream_error", "malformed", "truncated", "unfinished")

// String is a short name, in lower case.
func (f Failure) String() string { return failureNames.Name(f) }

// MarshalText writes String.
func (f Failure) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// errTimeout is the cause of a context that Config.Timeout ended.
var errTimeout = errors.New("load: timeout of a request")

// ofStatus is the failure that a status other than 200 is.
func ofStatus(status int) Failure {
	switch {
	case status == 429 || status == 503:
		return Busy
	case status >= 400 && status < 500:
		return Refused
	}
	return ServerError
}

// ofError is the failure that an error of sending or reading is.
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
