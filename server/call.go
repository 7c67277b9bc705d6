package server

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/coppice-llm/coppice/internal/conns"
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
	flow      *flow // of that, once it has begun
}

// bill is what a request for tokens took, all its choices together.
type bill struct {
	reason                                   scheduler.Reason // of the last
	promptTokens, cachedTokens, outputTokens int
	servedTokens                             int           // computed: of prompts, and outputs
	firstToken                               time.Duration // since the request came
}

// serve answers one request.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, at *endpoint) {
	c := &call{s: s, at: at, w: w, client: web.NewClient(w, r, s.cfg.WriteTimeout), r: r, start: time.Now()}
	c.id = requestID(r)
	w.Header().Set("X-Request-Id", c.id)
	if s.Draining() || !conns.Admitted(r.Context()) {
		w.Header().Set("Connection", "close")
	}
	if !at.quiet {
		c.startSpan()
	}
	c.client.Extend()
	if r.Body != http.NoBody {
		c.client.Out.SetReadDeadline(c.start.Add(s.cfg.ReadTimeout))
	}
	defer c.end()
	if answered, err := c.admit(); err != nil {
		c.fail(err)
		return
	} else if answered {
		return
	}
	if !at.drained {
		if s.door.Enter() != nil {
			c.fail(errDraining)
			return
		}
		defer s.door.Leave()
	}
	defer c.settle()
	defer c.recover()
	if err := at.serve(c); err != nil {
		c.fail(err)
	}
}

var errConns = openai.NewError(http.StatusServiceUnavailable, "too_many_connections", "the server has as many connections as it may (--max-conns), and answers health probes alone; ask again later, or over a connection that is open")

// admit reports whether the caller may ask for this at all. A preflight, by which a browser
// asks whether a page may call, is answered here.
func (c *call) admit() (answered bool, err error) {
	if !c.at.probe && !conns.Admitted(c.r.Context()) {
		return false, errConns
	}
	preflight, refusal := c.s.screen.sites.Check(c.w.Header(), c.r)
	switch {
	case refusal != nil:
		return false, openai.NewError(http.StatusForbidden, refusal.Code, "%s", refusal.Message)
	case preflight:
		c.w.Header().Del("Allow") // of a path's methods, which is not what was asked
		c.status = http.StatusNoContent
		c.w.WriteHeader(c.status)
		return true, nil
	}
	return false, c.identify()
}

// identify finds out who calls, and refuses those who may not.
func (c *call) identify() error {
	if c.at.access == everybody {
		return nil
	}
	var err error
	if c.who, err = c.s.keys.find(c.r); err != nil {
		c.w.Header().Set("WWW-Authenticate", "Bearer")
		return err
	}
	if c.at.access == admins && !c.who.admin {
		return errNoAdmin
	}
	return nil
}

// requestID is the caller's, if it is fit for a line of a log, or a new one.
func requestID(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	ok := id != "" && len(id) <= 128
	for i := 0; i < len(id) && ok; i++ {
		ok = id[i] > ' ' && id[i] < 0x7f
	}
	if ok {
		return id
	}
	var b [8]byte
	n := rand.Uint64()
	for i := range b {
		b[i] = byte(n >> (8 * i))
	}
	return hex.EncodeToString(b[:])
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

// recover keeps a panic from ending more than its request.
func (c *call) recover() {
	v := recover()
	if v == nil {
		return
	}
	if v != http.ErrAbortHandler {
		c.s.log.Error("panic", zap.String("request", c.id), zap.String("path", c.at.path), zap.Any("value", v), zap.Stack("stack"))
	}
	if c.status != 0 { // the client must not take what it has for all
		panic(http.ErrAbortHandler)
	}
	c.fail(fmt.Errorf("server: panic: %v", v))
}

// end counts the request, and logs it.
func (c *call) end() {
	c.s.bodies.Add(-int64(c.held))
	total := time.Since(c.start)
	status := c.status
	if c.gone != nil {
		status = statusGone
	}
	slow := c.gone != nil && errors.Is(c.gone, os.ErrDeadlineExceeded)
	c.s.metrics.answered(c, status, slow, total)
	c.endSpan(status)
	if c.generates {
		c.finished(total)
	}
	if line := c.logLine(status); line != nil {
		line.Write(c.logFields(status, slow, total)...)
	}
}

// logLine is the line of log that the request gets: at debug level, or at info level with
// Config.AccessLog. One that failed for a reason that nobody else is told always has one, a
// probe never.
func (c *call) logLine(status int) *zapcore.CheckedEntry {
	switch {
	case c.at.probe:
		return nil
	case status == http.StatusInternalServerError, c.s.cfg.AccessLog && (!c.at.quiet || status >= 400):
		return c.s.log.Check(zap.InfoLevel, "request")
	}
	return c.s.log.Check(zap.DebugLevel, "request")
}

func (c *call) logFields(status int, slow bool, total time.Duration) []zap.Field {
	fields := append(make([]zap.Field, 0, 16), zap.String("request", c.id), zap.String("method", c.r.Method), zap.String("path", c.at.path),
		zap.Int("status", status), zap.Duration("total", total))
	if c.who != nil && c.who.tenant != "" {
		fields = append(fields, zap.String("tenant", c.who.tenant))
	}
	if c.generates {
		fields = append(fields, zap.Int("prompt_tokens", c.bill.promptTokens), zap.Int("cached_tokens", c.bill.cachedTokens),
			zap.Int("output_tokens", c.bill.outputTokens), zap.Duration("ttft", c.bill.firstToken), zap.Stringer("reason", c.bill.reason))
	}
	switch {
	case slow:
		fields = append(fields, zap.Bool("slow_client", true))
	case c.fault != nil && c.gone == nil:
		fields = append(fields, zap.String("error", c.code())) // its text may quote what the caller sent
		if status == http.StatusInternalServerError {
			fields = append(fields, zap.NamedError("cause", c.fault)) // nobody else is told
		}
	}
	return fields
}

// code names the error that was answered, for logs, metrics and traces.
func (c *call) code() string {
	e := c.s.lost(c.fault)
	if e == nil {
		e = errorOf(c.fault)
	}
	return cmp.Or(e.Code, "error")
}
