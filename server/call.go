package server

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/coppice-llm/coppice/anthropic"
	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/budget"
	"github.com/coppice-llm/coppice/internal/web"
	"github.com/coppice-llm/coppice/openai"
	"github.com/coppice-llm/coppice/scheduler"
)

// statusGone is the status in logs and metrics for a request whose client left before its
// answer, as in nginx. It is never sent.
const statusGone = 499

// call is one HTTP request being answered, on one goroutine.
type call struct {
	s      *Server
	at     *endpoint
	w      http.ResponseWriter
	r      *http.Request
	client web.Client
	id     string // X-Request-Id
	caller caller // zero until identify, and for endpoints open to everyone
	start  time.Time

	status  int  // 0: no answer yet
	most    int  // limit on the body, in bytes; 0: MaxBodyBytes
	interim bool // the interim response was sent, see wantsProgress
	held    int  // body bytes counted in Server.bodies, against MaxBodiesBytes
	memory  budget.Account
	rest    int   // most bytes of a refused body that are still read, see swallow
	gone    error // why writing failed, or the client's context ended
	fault   error // the error that was answered
	span    trace.Span

	followed  followed
	generates bool // asks the node for tokens
	bill      bill
	after     func() // waits for the node's work after the answer
}

// bill counts what a request for tokens used, over all its prompts and choices.
type bill struct {
	reason                                   scheduler.Reason // of the last choice to end
	promptTokens, cachedTokens, outputTokens int
	servedTokens                             int           // computed tokens: uncached prompt tokens and outputs
	firstToken                               time.Duration // since the HTTP request arrived
}

// begin writes the status and the header of the answer.
func (c *call) begin(status int, contentType string) {
	h := c.w.Header()
	h.Set("Content-Type", contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	c.status = status
	c.w.WriteHeader(status)
}

// json answers with a complete JSON body.
func (c *call) json(status int, body []byte) error {
	c.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	c.client.Extend()
	c.begin(status, "application/json")
	c.write(body)
	return nil
}

// long answers with a long body, which write writes.
func (c *call) long(write func(*bufio.Writer) error) error {
	c.begin(http.StatusOK, "application/json")
	write(bufio.NewWriterSize(longBody{c}, maxKeptBuffer)) // an error ends the answer
	return nil
}

// longBody writes a long body. Each write gives the client more time; it fails if the client has
// left or the server must end its requests.
type longBody struct{ c *call }

func (w longBody) Write(b []byte) (int, error) {
	w.c.client.Extend()
	if over := w.c.s.open.Over(); over.Err() != nil {
		return 0, context.Cause(over)
	}
	if !w.c.write(b) {
		return 0, w.c.gone
	}
	return len(b), nil
}

// write writes b. After the first failure, kept in c.gone, it writes nothing. It reports whether
// the client is still there.
func (c *call) write(b []byte) bool {
	if c.gone == nil && c.r.Method != http.MethodHead {
		_, c.gone = c.w.Write(b)
	}
	return c.gone == nil
}

// fail answers with an error, if no answer has begun yet.
func (c *call) fail(err error) {
	c.fault = err
	e := c.translate(err)
	if c.status != 0 || e == nil {
		return
	}
	switch e.Status {
	case http.StatusTooManyRequests:
		c.w.Header().Set("Retry-After", strconv.Itoa(c.s.retries.after(time.Now())))
	case http.StatusServiceUnavailable:
		c.w.Header().Set("Retry-After", "5")
	}
	if len(c.w.Header().Values("Content-Length")) > 0 {
		c.w.Header().Del("Content-Length")
	}
	buf := c.s.buffer()
	defer c.s.release(buf)
	appendError := c.at.fault
	switch {
	case appendError != nil:
	case anthropic.Speaks(c.r):
		appendError = anthropic.AppendError
	default:
		appendError = openai.AppendError
	}
	*buf = appendError((*buf)[:0], e)
	c.json(e.Status, *buf)
}

// translate returns the error to send for err, or nil if the client has gone.
func (c *call) translate(err error) *conversation.Error {
	e := c.cause(err)
	if e == nil {
		return nil
	}
	told := *e // e may be the answer to many requests
	told.RequestID = c.id
	return &told
}

// cause returns the error that the client is told of for err, or nil if the client has gone.
func (c *call) cause(err error) *conversation.Error {
	if c.gone != nil {
		return nil
	}
	if cause := context.Cause(c.s.open.Over()); cause != nil && errors.Is(err, context.Canceled) {
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

// delegate serves with a handler of another package, and records its status.
func (c *call) delegate(h http.Handler) {
	ctx, cancel := c.s.open.Bound(c.r.Context())
	defer cancel()
	w := &recorder{ResponseWriter: c.w, status: http.StatusOK}
	h.ServeHTTP(w, c.r.WithContext(ctx))
	c.status = w.status
}

// recorder records the status that the handler of another package writes.
type recorder struct {
	http.ResponseWriter
	status int
}

func (w *recorder) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap serves http.ResponseController.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// code returns the code of the answered error, for logs, metrics and traces.
func (c *call) code() string {
	e := c.s.lost(c.fault)
	if e == nil {
		e = errorOf(c.fault)
	}
	return cmp.Or(e.Code, "error")
}

// access is the group of callers that an endpoint admits.
type access uint8

const (
	everybody access = iota // no key needed
	anyKey                  // any key; everyone if no keys are configured
	admins
)

// endpoint is the handler of one method of a path.
type endpoint struct {
	path   string // for logs and metrics
	access access
	// drained endpoints answer while the server drains.
	drained bool
	// quiet requests are logged at debug level even with Config.AccessLog, because monitors send
	// them all the time. An error status is logged as usual.
	quiet bool
	// probe marks health probes: neither log line nor span.
	probe bool
	// place marks requests that take one of a few places: pages of other sites may not send them.
	place bool
	// untyped endpoints take bodies without a Content-Type, see takesUntyped.
	untyped bool
	// fault appends an error in the form of the endpoint's API; nil: OpenAI's, or Anthropic's if the request is in
	// that form.
	fault func(dst []byte, e *conversation.Error) []byte
	serve func(*call) error
}

// A router that retries a request whose worker has died must know whether the request may have
// killed the worker. So it asks with
//
//	X-Coppice-Progress: 103
//
// and gets an interim response, 103 with X-Coppice-Phase: running, before the first step that
// computes the request. Without that header none is sent: some clients, such as Python's
// http.client, take an interim response for the answer.
const (
	progressHeader, progressInterim = "X-Coppice-Progress", "103"
	phaseHeader, phaseRunning       = "X-Coppice-Phase", "running"
)

// wantsProgress reports whether the caller asked for the interim response and its HTTP version
// allows one.
func (c *call) wantsProgress() bool {
	return c.r.Header.Get(progressHeader) == progressInterim && c.r.ProtoAtLeast(1, 1)
}

// begun sends the interim response, once per HTTP request, however many prompts it has.
func (c *call) begun() {
	if c.interim || c.status != 0 || c.gone != nil || !c.wantsProgress() {
		return
	}
	c.interim = true
	c.client.Extend()
	h := c.w.Header()
	h.Set(phaseHeader, phaseRunning)
	c.w.WriteHeader(http.StatusEarlyHints)
	h.Del(phaseHeader) // the final header must not have it
	c.client.Rest()
}
