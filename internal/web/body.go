package web

import (
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"sync/atomic"

	"github.com/coppice-llm/coppice/openai"
)

// Bodies reads the bodies of requests. It counts the bytes that open requests hold, and bounds
// them. Any goroutine may call its methods.
type Bodies struct {
	atomic.Int64     // bytes held
	Most         int // limit of all open requests together
}

var (
	errBodies = openai.NewError(http.StatusServiceUnavailable, "server_busy", "the bodies of open requests fill the server's limit; retry later")
	errBroken = openai.NewError(http.StatusBadRequest, "broken_body", "the body is incomplete, or its framing does not match the header")
	errSlow   = openai.NewError(http.StatusRequestTimeout, "body_timeout", "the body was not complete in time")
)

// Read appends the body of r to dst, limit bytes at most. The error is an *openai.Error, next to
// the part that was read. The caller subtracts the length of that part, or of the whole body, from b
// when the request ends.
func (b *Bodies) Read(w http.ResponseWriter, r *http.Request, dst []byte, limit int) ([]byte, error) {
	if r.ContentLength > int64(limit) {
		return dst, tooLong(w, limit)
	}
	in := http.MaxBytesReader(w, r.Body, int64(limit))
	for {
		dst = slices.Grow(dst, 1)
		n, err := in.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		if b.Add(int64(n)) > int64(b.Most) {
			return dst, errBodies
		}
		switch long := (*http.MaxBytesError)(nil); {
		case err == nil:
		case errors.Is(err, io.EOF):
			return dst, nil
		case errors.As(err, &long):
			return dst, tooLong(w, limit)
		case errors.Is(err, os.ErrDeadlineExceeded):
			w.Header().Set("Connection", "close")
			return dst, errSlow
		default:
			return dst, errBroken
		}
	}
}

// tooLong returns the error for a body over its limit, and makes the connection close.
func tooLong(w http.ResponseWriter, limit int) error {
	w.Header().Set("Connection", "close") // do not read the rest of the body
	return openai.NewError(http.StatusRequestEntityTooLarge, "body_too_large", "the body has more than %d bytes, the limit here: send less", limit)
}
