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

// small is the length up to which a body may use all of Bodies.Most. Longer bodies leave a part in spareShare, unless one
// body of the limit would not fit then. Long bodies thus don't keep short ones out.
const small, spareShare = 64 << 10, 4

// firstRead is the room for the first bytes of a body whose length the header does not give.
const firstRead = 4 << 10

var (
	errBodies = openai.NewError(http.StatusServiceUnavailable, "server_busy", "the bodies of open requests fill the server's limit; retry later")
	errBroken = openai.NewError(http.StatusBadRequest, "broken_body", "the body is incomplete, or its framing does not match the header")
	errSlow   = openai.NewError(http.StatusRequestTimeout, "body_timeout", "the body was not complete in time")
)

// Read appends the body of r to dst, limit bytes at most. Before dst grows, Read calls room, if not nil,
// with the number of further bytes, and returns its error. Other errors are an *openai.Error. Next to
// an error Read returns the part that was read. The caller subtracts the length of that part, or of the
// whole body, from b when the request ends.
func (b *Bodies) Read(w http.ResponseWriter, r *http.Request, dst []byte, limit int, room func(bytes int) error) ([]byte, error) {
	if r.ContentLength > int64(limit) {
		return dst, TooLong(w, limit)
	}
	in := http.MaxBytesReader(w, r.Body, int64(limit))
	for {
		if len(dst) == cap(dst) {
			more := max(cap(dst)/2, firstRead)
			if room != nil {
				if err := room(more); err != nil {
					return dst, err
				}
			}
			dst = slices.Grow(dst, more)
		}
		n, err := in.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		most := b.Most
		if len(dst) > small {
			most = max(most-most/spareShare, min(limit, most))
		}
		if b.Add(int64(n)) > int64(most) {
			return dst, errBodies
		}
		refusal := (*openai.Error)(nil)
		switch long := (*http.MaxBytesError)(nil); {
		case err == nil:
		case errors.Is(err, io.EOF):
			return dst, nil
		case errors.As(err, &long):
			return dst, TooLong(w, limit)
		case errors.As(err, &refusal): // by a reader that the caller has put around r.Body
			w.Header().Set("Connection", "close")
			return dst, refusal
		case errors.Is(err, os.ErrDeadlineExceeded):
			w.Header().Set("Connection", "close")
			return dst, errSlow
		default:
			return dst, errBroken
		}
	}
}

// TooLong returns the error for a body over its limit, and makes the connection close.
func TooLong(w http.ResponseWriter, limit int) error {
	w.Header().Set("Connection", "close") // do not read the rest of the body
	return openai.NewError(http.StatusRequestEntityTooLarge, "body_too_large", "the body has more than %d bytes, the limit here: send less", limit)
}
