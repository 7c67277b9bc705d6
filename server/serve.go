package server

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/coppice-llm/coppice/internal/web"
	"github.com/coppice-llm/coppice/openai"
)

// serve answers one request with the endpoint at.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, at *endpoint) {
	c := &call{s: s, at: at, w: w, client: web.NewClient(w, r, s.cfg.WriteTimeout), r: r, start: time.Now(), after: func() {}}
	c.id = requestID(r)
	w.Header().Set("X-Request-Id", c.id)
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
		if s.door.Enter() != nil {
			c.fail(errDraining)
			return
		}
		defer s.door.Leave()
	}
	defer func() { c.after() }()
	defer c.recover()
	if err := at.serve(c); err != nil {
		c.fail(err)
		c.swallow()
	}
}

var errConns = openai.NewError(http.StatusServiceUnavailable, "too_many_connections", "all connections are in use (--max-conns), and this one serves health probes only; retry later, or over an open connection")

// admit returns an error for a caller that may not use this endpoint. It answers CORS preflights
// itself; answered is true then.
func (c *call) admit() (answered bool, err error) {
	if !c.at.probe && !web.Admitted(c.r.Context()) {
		return false, errConns
	}
	preflight, refusal := c.s.screen.sites.Check(c.w.Header(), c.r)
	if refusal == nil && c.at.place {
		refusal = c.s.screen.sites.CheckPlace(c.r)
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
		return openai.ErrAdminOnly
	}
	return nil
}

// requestID returns the caller's X-Request-Id if it is printable ASCII of at most 128 bytes,
// else a random one.
func requestID(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	ok := id != "" && len(id) <= 128
	for i := 0; i < len(id) && ok; i++ {
		ok = id[i] > ' ' && id[i] < 0x7f
	}
	if ok {
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
