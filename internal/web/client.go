package web

import (
	"bytes"
	"log"
	"net/http"
	"time"

	"go.uber.org/zap"
)

// Client is the connection to a client, and how long it may be written to. A writer without
// deadlines is no connection, and has none.
type Client struct {
	Out   *http.ResponseController
	limit time.Duration // what the client may take to read a part of an answer
	until time.Time     // the deadline of writing
	http2 bool
}

// NewClient is the connection of a request. limit is how long it may take nothing of what is
// written.
func NewClient(w http.ResponseWriter, r *http.Request, limit time.Duration) Client {
	return Client{Out: http.NewResponseController(w), http2: r.ProtoMajor >= 2, limit: limit}
}

// Extend gives the client time to take what comes next. The deadline moves when half of it has
// passed, not with each token.
func (c *Client) Extend() {
	now := time.Now()
	if c.until.Sub(now) > c.limit/2 {
		return
	}
	c.until = now.Add(c.limit)
	c.Out.SetWriteDeadline(c.until)
}

// Rest takes the deadline off while there is nothing to write: over HTTP/2 it would end the
// stream by itself.
func (c *Client) Rest() {
	if c.http2 {
		c.until = time.Time{}
		c.Out.SetWriteDeadline(c.until)
	}
}

// Log takes net/http's complaints, which are mostly of clients that break a handshake or a
// header off: at debug level, but for connections that can't be accepted.
func Log(l *zap.Logger) *log.Logger { return log.New(complaints{l.Named("http")}, "", 0) }

type complaints struct{ log *zap.Logger }

// Write takes a line.
func (c complaints) Write(line []byte) (int, error) {
	level := zap.DebugLevel
	if bytes.Contains(line, []byte("Accept error")) {
		level = zap.WarnLevel
	}
	c.log.Log(level, "net/http", zap.ByteString("says", bytes.TrimSpace(line)))
	return len(line), nil
}
