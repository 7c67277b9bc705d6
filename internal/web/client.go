package web

import (
	"bytes"
	"io"
	"log"
	"net/http"
	"time"

	"go.uber.org/zap"
)

// Client is the connection to a client, with a deadline for writes. A ResponseWriter without
// deadlines, as in tests, has none.
type Client struct {
	Out   *http.ResponseController
	limit time.Duration // longest time without progress of a write
	until time.Time     // current write deadline
	http2 bool
}

// ReadOn prepares an answer that refuses a body before its end, with header h. After the answer, Swallow
// reads the rest: many clients read no answer before they have sent all, and would see a broken connection.
func (c *Client) ReadOn(h http.Header) {
	h.Set("Connection", "close")
	c.Out.EnableFullDuplex() // else net/http reads a part of the body before the answer, and closes
}

// Swallow reads up to n more bytes of a body, until the read deadline at most, and keeps nothing. The
// answer must have been flushed.
func (c *Client) Swallow(body io.Reader, n int) { io.Copy(io.Discard, io.LimitReader(body, int64(n))) }

// NewClient returns the Client of a request. limit is the longest time that the client may read
// nothing while there are bytes for it.
func NewClient(w http.ResponseWriter, r *http.Request, limit time.Duration) Client {
	return Client{Out: http.NewResponseController(w), http2: r.ProtoMajor >= 2, limit: limit}
}

// Extend gives the client time to read the next bytes. It moves the deadline only when less than
// half of limit is left, not for each token.
func (c *Client) Extend() {
	now := time.Now()
	if c.until.Sub(now) > c.limit/2 {
		return
	}
	c.until = now.Add(c.limit)
	c.Out.SetWriteDeadline(c.until)
}

// Rest removes the deadline while there is nothing to write: over HTTP/2 an expired deadline
// would end the stream by itself.
func (c *Client) Rest() {
	if c.http2 {
		c.until = time.Time{}
		c.Out.SetWriteDeadline(c.until)
	}
}

// Log returns a logger for net/http's messages, mostly about clients that abort a handshake or a
// header: at debug level, except for connections that can't be accepted.
func Log(l *zap.Logger) *log.Logger { return log.New(complaints{l.Named("http")}, "", 0) }

// complaints is an io.Writer that logs each line.
type complaints struct{ log *zap.Logger }

// Write logs one line.
func (c complaints) Write(line []byte) (int, error) {
	level := zap.DebugLevel
	if bytes.Contains(line, []byte("Accept error")) {
		level = zap.WarnLevel
	}
	c.log.Log(level, "net/http", zap.ByteString("says", bytes.TrimSpace(line)))
	return len(line), nil
}
