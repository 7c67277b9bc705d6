package gateway

import (
	"net/http"
	"strconv"
	"time"
)

// client is the connection to a client, and how long it may be written to.
type client struct {
	w     http.ResponseWriter
	out   *http.ResponseController
	limit time.Duration // what the client may take to read a part of the answer
	until time.Time     // the deadline of writing
	http2 bool
}

func newClient(w http.ResponseWriter, r *http.Request, limit time.Duration) client {
	return client{w: w, out: http.NewResponseController(w), http2: r.ProtoMajor >= 2, limit: limit}
}

// extend gives the client time to take what comes next. The deadline moves when half of it has
// passed, not with each token. A writer that has no deadlines is a test's.
func (c *client) extend() {
	now := time.Now()
	if c.until.Sub(now) > c.limit/2 {
		return
	}
	c.until = now.Add(c.limit)
	c.out.SetWriteDeadline(c.until)
}

// rest takes the deadline off while there is nothing to write: over HTTP/2 it would end the
// stream by itself.
func (c *client) rest() {
	if c.http2 {
		c.until = time.Time{}
		c.out.SetWriteDeadline(c.until)
	}
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body) // a client that has gone is told nothing
}
