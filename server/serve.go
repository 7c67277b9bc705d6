package server

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/anthropic"
	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/web"
)

// serve answers one request with the endpoint at.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, at *endpoint) {
	c := &call{s: s, at: at, w: w, client: web.NewClient(w, r, s.cfg.WriteTimeout), r: r, start: time.Now(), after: func() {}}
	c.id = requestID(r)
	w.Header().Set("X-Request-Id", c.id)
	if anthropic.Speaks(r) {
		w.Header().Set(anthropic.RequestHeader, c.id)
	}
	if s.Draining() || !web.Admitted(r.Context()) {
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
		if s.open.Enter() != nil {
			c.fail(errDraining)
			return
		}
		defer s.open.Leave()
	}
	defer func() { c.after() }()
	defer c.recover()
	if err := at.serve(c); err != nil {
		c.fail(err)
		c.swallow()
	}
}

var errConns = conversation.NewError(http.StatusServiceUnavailable, "too_many_connections", "all connections are in use (--max-conns), and this one serves health probes only; retry later, or over an open connection")

// admit returns an error for a caller that may not use this endpoint. It answers CORS preflights
// itself; answered is true then.
func (c *call) admit() (answered bool, err error) {
	if !c.at.probe && !web.Admitted(c.r.Context()) {
		return false, errConns
	}
	preflight, refusal := c.s.policies.sites.Check(c.w.Header(), c.r)
	if refusal == nil && c.at.place {
		refusal = c.s.policies.sites.CheckPlace(c.r)
	}
	switch {
	case refusal != nil:
		return false, refusal
	case preflight:
		c.w.Header().Del("Allow") // the path's methods, set by the mux: not the answer to a preflight
		c.status = http.StatusNoContent
		c.w.WriteHeader(c.status)
		return true, nil
	}
	return false, c.identify()
}

// identify finds the caller's key and refuses one without the needed access.
func (c *call) identify() error {
	if c.at.access == everybody {
		return nil
	}
	var err error
	if c.caller.tenant, c.caller.admin, err = c.s.keys.Find(c.r); err != nil {
		c.w.Header().Set("WWW-Authenticate", "Bearer")
		return err
	}
	if c.at.access == admins && !c.caller.admin {
		return conversation.ErrAdminOnly
	}
	return nil
}

// requestID returns the caller's X-Request-Id if it is printable ASCII of at most 128 bytes,
// else a random one.
func requestID(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	if id != "" && len(id) <= 128 && !strings.ContainsFunc(id, func(c rune) bool { return c <= ' ' || c >= 0x7f }) {
		return id
	}
	return fmt.Sprintf("%016x", rand.Uint64())
}

// recover limits the damage of a panic to its own request.
func (c *call) recover() {
	v := recover()
	if v == nil {
		return
	}
	if v != http.ErrAbortHandler {
		c.s.log.Error("panic", zap.String("request", c.id), zap.String("path", c.at.path), zap.Any("value", v), zap.Stack("stack"))
	}
	if c.status != 0 { // abort the connection: a truncated answer must not look complete
		panic(http.ErrAbortHandler)
	}
	c.fail(fmt.Errorf("server: panic: %v", v))
}

// end counts the request in metrics, and writes its span and log line.
func (c *call) end() {
	c.forget()
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

// logLine returns the request's log entry: at debug level, or at info level with
// Config.AccessLog. Status 500 is always logged, because only the log has its cause.
// Probes are never logged.
func (c *call) logLine(status int) *zapcore.CheckedEntry {
	switch {
	case c.at.probe:
		return nil
	case status == http.StatusInternalServerError, c.s.cfg.AccessLog && (!c.at.quiet || status >= 400):
		return c.s.log.Check(zap.InfoLevel, "request")
	}
	return c.s.log.Check(zap.DebugLevel, "request")
}

// logFields returns the fields of the request's log line. None contains text of a prompt or an
// output.
func (c *call) logFields(status int, slow bool, total time.Duration) []zap.Field {
	fields := append(make([]zap.Field, 0, 16), zap.String("request", c.id), zap.String("method", c.r.Method), zap.String("path", c.at.path),
		zap.Int("status", status), zap.Duration("total", total))
	if c.caller.tenant != "" {
		fields = append(fields, zap.String("tenant", c.caller.tenant))
	}
	if c.generates {
		fields = append(fields, zap.Int("prompt_tokens", c.bill.promptTokens), zap.Int("cached_tokens", c.bill.cachedTokens),
			zap.Int("output_tokens", c.bill.outputTokens), zap.Duration("ttft", c.bill.firstToken), zap.Stringer("reason", c.bill.reason))
	}
	switch {
	case slow:
		fields = append(fields, zap.Bool("slow_client", true))
	case c.fault != nil && c.gone == nil:
		fields = append(fields, zap.String("error", c.code())) // the code only: the text may quote the prompt
		if status == http.StatusInternalServerError {
			fields = append(fields, zap.NamedError("cause", c.fault)) // the client gets no cause with status 500
		}
	}
	return fields
}

// startSpan begins the request's span, as a child of the caller's if the header names one.
// c.span stays nil if the span is not recorded.
func (c *call) startSpan() {
	if c.s.cfg.Tracer == nil {
		return
	}
	ctx := propagation.TraceContext{}.Extract(c.r.Context(), propagation.HeaderCarrier(c.r.Header))
	_, span := c.s.cfg.Tracer.Start(ctx, c.r.Method+" "+c.at.path, trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(c.start),
		trace.WithAttributes(attribute.String("http.request.method", c.r.Method), attribute.String("http.route", c.at.path),
			attribute.String("coppice.request_id", c.id), attribute.String("gen_ai.request.model", c.s.cfg.Model)))
	if span.IsRecording() {
		c.span = span
	}
}

// trace adds the timeline of one choice to the span. Its times count from when the scheduler got
// the request, which is e.Total before now.
func (c *call) trace(prompt, sample int, e *coppice.Ending) {
	if c.span == nil {
		return
	}
	begin := time.Now().Add(-e.Total)
	for _, m := range e.Timeline {
		c.span.AddEvent(m.What.String(), trace.WithTimestamp(begin.Add(m.At)), trace.WithAttributes(
			attribute.Int("coppice.prompt", prompt), attribute.Int("coppice.sample", sample), attribute.Int("coppice.tokens", m.Tokens)))
	}
}

// endSpan ends the request's span.
func (c *call) endSpan(status int) {
	if c.span == nil {
		return
	}
	c.span.SetAttributes(attribute.Int("http.response.status_code", status))
	if c.caller.tenant != "" {
		c.span.SetAttributes(attribute.String("coppice.tenant", c.caller.tenant))
	}
	if c.generates {
		c.span.SetAttributes(attribute.Int("gen_ai.usage.input_tokens", c.bill.promptTokens), attribute.Int("coppice.cached_tokens", c.bill.cachedTokens),
			attribute.Int("gen_ai.usage.output_tokens", c.bill.outputTokens), attribute.String("coppice.reason", c.bill.reason.String()))
	}
	switch {
	case c.gone != nil:
		c.span.SetStatus(codes.Error, "the client disconnected")
	case c.fault != nil:
		c.span.SetStatus(codes.Error, c.code())
	}
	c.span.End()
}
