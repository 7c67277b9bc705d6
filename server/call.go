package server

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/coppice-llm/coppice/internal/web"
	"github.com/coppice-llm/coppice/openai"
	"github.com/coppice-llm/coppice/scheduler"
)

// statusGone is what logs and metrics say of a request whose client left before its
// answer, as nginx does. Nobody is sent it.
const statusGone = 499

// call is a request that is being answered, on one goroutine.
type call struct {
	s      *Server
	at     *endpoint
	w      http.ResponseWriter
	r      *http.Request
	client web.Client
	id     string // X-Request-Id
	who    *holder
	start  time.Time

	status  int   // 0: no answer yet
	most    int   // bytes that the body may have; 0: MaxBodyBytes
	interim bool  // the interim response was sent, see progress.go
	held    int   // bytes of the body, against MaxBodiesBytes
	gone    error // why writing failed
	fault   error // that was answered
	span    trace.Span

	generates bool // it asks the node for tokens
	bill      bill
	after     func() // settles what it began, behind its answer; nil: nothing
}

// bill is what a request for tokens took, all its choices together.
type bill struct {
	reason                                   scheduler.Reason // of the last
	promptTokens, cachedTokens, outputTokens int
	servedTokens                             int           // computed: of prompts, and outputs
	firstToken                               time.Duration // since the request came
}

// begin writes the header.
func (c *call) begin(status int, contentType string) {
	h := c.w.Header()
	h.Set("Content-Type", contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	c.status = status
	c.w.WriteHeader(status)
}

// json answers with a whole body.
func (c *call) json(status int, body []byte) error {
	c.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	c.client.Extend()
	c.begin(status, "application/json")
	c.write(body)
	return nil
}

// parts answers with a body that next makes part by part, until there is no more or nobody
// takes it.
func (c *call) parts(next func([]byte) ([]byte, bool)) error {
	buf := c.s.buffer()
	defer c.s.release(buf)
	c.begin(http.StatusOK, "application/json")
	for more := true; more; {
		*buf, more = next((*buf)[:0])
		c.client.Extend()
		if c.s.door.Over().Err() != nil || !c.write(*buf) {
			break
		}
	}
	return nil
}

// write writes, and notes why it could not. Then the request has no client any more.
func (c *call) write(b []byte) bool {
	if c.gone == nil && c.r.Method != http.MethodHead {
		_, c.gone = c.w.Write(b)
	}
	return c.gone == nil
}

// fail answers with an error, if no answer has begun.
func (c *call) fail(err error) {
	c.fault = err
	e := c.translate(err)
	if c.status != 0 || e == nil {
		return
	}
	switch e.Status {
	case http.StatusTooManyRequests:
		c.w.Header().Set("Retry-After", strconv.Itoa(c.s.pace.retryAfter(time.Now())))
	case http.StatusServiceUnavailable:
		c.w.Header().Set("Retry-After", "5")
	}
	if len(c.w.Header().Values("Content-Length")) > 0 {
		c.w.Header().Del("Content-Length")
	}
	buf := c.s.buffer()
	defer c.s.release(buf)
	*buf = e.Append((*buf)[:0])
	c.json(e.Status, *buf)
}

// translate says what the caller is told of err: nil if nobody is there to be told.
func (c *call) translate(err error) *openai.Error {
	if c.gone != nil {
		return nil
	}
	if cause := context.Cause(c.s.door.Over()); cause != nil && errors.Is(err, context.Canceled) {
		err = cause
	}
	if c.r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		c.gone = context.Cause(c.r.Context())
		return nil
	}
	if lost := c.s.lost(err); lost != nil {
		return lost
	}
	return errorOf(err)
}

// foreign serves with a handler that is not of this package.
func (c *call) foreign(h http.Handler) {
	ctx, cancel := c.s.door.Bound(c.r.Context())
	defer cancel()
	w := &recorder{ResponseWriter: c.w, status: http.StatusOK}
	h.ServeHTTP(w, c.r.WithContext(ctx))
	c.status = w.status
}

// recorder notes the status that a foreign handler gives.
type recorder struct {
	http.ResponseWriter
	status int
}

func (w *recorder) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// code names the error that was answered, for logs, metrics and traces.
func (c *call) code() string {
	e := c.s.lost(c.fault)
	if e == nil {
		e = errorOf(c.fault)
	}
	return cmp.Or(e.Code, "error")
}

// access says who may call.
type access uint8

const (
	everybody access = iota
	holders          // of a key, if there are any
	admins
)

// endpoint is what a method of a path does.
type endpoint struct {
	path   string // for logs and metrics
	access access
	// drained: it answers while the server drains.
	drained bool
	// quiet: a line of log at debug level only, even with Config.AccessLog, for what is asked
	// all the time.
	quiet bool
	// probe: no line at all, nor a span, for what asks whether the server is well.
	probe bool
	serve func(*call) error
}

// settled waits for what the call began.
func (c *call) settled() {
	if c.after != nil {
		c.after()
	}
}
