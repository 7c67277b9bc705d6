package web

import (
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
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

// Refusal is the error of a request that a server refuses before it looks at its content.
type Refusal struct {
	Status        int
	Code, Message string
}

func (r *Refusal) Error() string { return r.Message }

// Stop is an error of a reader that a caller has put around a request's body: [Bodies.Read] ends with Err.
type Stop struct{ Err error }

func (s *Stop) Error() string { return s.Err.Error() }

var (
	errBodies = &Refusal{http.StatusServiceUnavailable, "server_busy", "the bodies of open requests fill the server's limit; retry later"}
	errBroken = &Refusal{http.StatusBadRequest, "broken_body", "the body is incomplete, or its framing does not match the header"}
	errSlow   = &Refusal{http.StatusRequestTimeout, "body_timeout", "the body was not complete in time"}
)

// Read appends the body of r to dst, limit bytes at most. Before dst grows, Read calls room, if not nil,
// with the number of further bytes, and returns its error. Other errors are a *Refusal, or that of a [Stop]. Next to
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
		stop := (*Stop)(nil)
		switch long := (*http.MaxBytesError)(nil); {
		case err == nil:
		case errors.Is(err, io.EOF):
			return dst, nil
		case errors.As(err, &long):
			return dst, TooLong(w, limit)
		case errors.As(err, &stop):
			w.Header().Set("Connection", "close")
			return dst, stop.Err
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
	return &Refusal{http.StatusRequestEntityTooLarge, "body_too_large", "the body has more than " + strconv.Itoa(limit) + " bytes, the limit here: send less"}
}
