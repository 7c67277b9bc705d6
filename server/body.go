package server

import (
	"mime"
	"net/http"
	"slices"
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
	most := c.s.cfg.MaxBodyBytes
	if c.most > 0 {
		most = min(c.most, most)
	}
	if err := c.reserve(most); err != nil {
		if err == errMemory {
			c.swallowLater(most)
		}
		return nil, nil, err
	}
	buf := c.s.buffer()
	if n := c.r.ContentLength; n > 0 {
		*buf = slices.Grow(*buf, int(n)+1) // one more byte to see the end
	}
	*buf, err = c.s.bodies.Read(c.w, c.r, *buf, most, func(more int) error { return c.charge(decodedBytes * more) })
	if c.held = len(*buf); err != nil {
		c.s.release(buf)
		if m, ok := c.r.Body.(*measured); ok && m.refused || errorOf(err).Status == http.StatusServiceUnavailable {
			c.swallowLater(most - c.held)
		}
		return nil, nil, err
	}
	c.client.Out.SetReadDeadline(time.Time{}) // later reads only notice a disconnect
	return *buf, func() {
		c.s.release(buf)
		c.memory.Shrink((decodedBytes - 1) * c.held)
	}, nil
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
