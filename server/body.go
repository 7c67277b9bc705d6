package server

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/coppice-llm/coppice/openai"
)

var errNotJSON = openai.NewError(http.StatusUnsupportedMediaType, "unsupported_media_type", "send JSON, with the header Content-Type: application/json")

var errCompressed = openai.NewError(http.StatusUnsupportedMediaType, "unsupported_media_type", "compressed bodies are not supported: send the body without Content-Encoding")

// body reads the request's body, which must be uncompressed JSON within the limits of size and
// time. The returned bytes are valid until the caller calls release. On an error, release is nil.
func (c *call) body() (body []byte, release func(), err error) {
	if kind, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, nil, errNotJSON
	}
	if coding := c.r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return nil, nil, errCompressed
	}
	most := c.longest()
	if c.r.ContentLength > int64(most) {
		return nil, nil, c.tooLong()
	}
	in := http.MaxBytesReader(c.w, c.r.Body, int64(most))
	buf := c.s.buffer()
	release = func() { c.s.release(buf) }
	b := (*buf)[:0]
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := in.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		*buf = b
		c.held += n
		if held := c.s.bodies.Add(int64(n)); held > int64(c.s.cfg.MaxBodiesBytes) {
			err = errBodies
		}
		switch long := (*http.MaxBytesError)(nil); {
		case err == nil:
			continue
		case errors.As(err, &long):
			err = c.tooLong()
		case errors.Is(err, os.ErrDeadlineExceeded):
			err = c.tooSlow()
		case errors.Is(err, io.EOF):
			c.client.Out.SetReadDeadline(time.Time{}) // later reads only notice a disconnect
			return b, release, nil
		case errors.Is(err, errBodies):
		default:
			err = errBroken
		}
		release()
		return nil, nil, err
	}
}

var (
	errBodies = openai.NewError(http.StatusServiceUnavailable, "server_busy", "the bodies of open requests fill the server's limit; retry later")
	errBroken = openai.NewError(http.StatusBadRequest, "broken_body", "the body is incomplete, or its framing does not match the header")
)

// longest returns the most bytes that the body may have.
func (c *call) longest() int {
	if c.most > 0 {
		return min(c.most, c.s.cfg.MaxBodyBytes)
	}
	return c.s.cfg.MaxBodyBytes
}

// tooLong returns the error for a body over its limit, and makes the connection close.
func (c *call) tooLong() error {
	c.w.Header().Set("Connection", "close") // do not read the rest of the body
	return openai.NewError(http.StatusRequestEntityTooLarge, "body_too_large", "the body has more than %d bytes, the limit here: send less", c.longest())
}

// tooSlow returns the error for a body that did not arrive within ReadTimeout.
func (c *call) tooSlow() error {
	c.w.Header().Set("Connection", "close")
	return openai.NewError(http.StatusRequestTimeout, "body_timeout", "the body was not complete within %v", c.s.cfg.ReadTimeout)
}

// read reads the request's body and decodes it with decode, which must not keep any part of the
// bytes.
func read[T any](c *call, decode func([]byte) (T, error)) (ask T, err error) {
	body, release, err := c.body()
	if err != nil {
		return ask, err
	}
	defer release()
	return decode(body)
}
