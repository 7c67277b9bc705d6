package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/gateway/fleetview"
	"github.com/coppice-llm/coppice/gateway/prompt"
	"github.com/coppice-llm/coppice/internal/conns"
	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/server/openai"
)

// mount sets routes and transport up.
func (g *Gateway) mount() {
	dialer := net.Dialer{Timeout: g.cfg.DialTimeout, KeepAlive: 15 * time.Second}
	g.transport = &http.Transport{
		DialContext: dialer.DialContext, MaxIdleConnsPerHost: 4096, IdleConnTimeout: 90 * time.Second,
		DisableCompression: true, TLSHandshakeTimeout: 5 * time.Second, WriteBufferSize: 64 << 10, ReadBufferSize: 16 << 10,
		MaxResponseHeaderBytes: 64 << 10,
	}
	g.proxy = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetXForwarded()
			r.Out.Header.Add("Via", g.via)
			r.Out.Header.Del("Accept-Encoding") // what is compressed can't be read on its way
			r.Out.Header.Del("Origin")          // which pages may call is decided here, not by workers
			r.Out.Header.Del("Sec-Fetch-Site")
		},
		Transport:     g,
		FlushInterval: -1,
		BufferPool:    (*pool)(g),
		ErrorHandler:  g.failed,
		ErrorLog:      stdLog(g.log),
	}
	g.routes = http.NewServeMux()
	g.on("/v1/completions", map[string]http.HandlerFunc{"POST": g.generate(prompt.Completions)})
	g.on("/v1/chat/completions", map[string]http.HandlerFunc{"POST": g.generate(prompt.Chat)})
	for _, path := range []string{"/v1/embeddings", "/tokenize", "/detokenize"} {
		g.on(path, map[string]http.HandlerFunc{"POST": g.forward})
	}
	scrape := promhttp.HandlerFor(g.cfg.Registry, promhttp.HandlerOpts{MaxRequestsInFlight: 8, Timeout: 10 * time.Second})
	g.on("/v1/models", map[string]http.HandlerFunc{"GET": g.known(g.models)})
	g.on("/v1/models/{id...}", map[string]http.HandlerFunc{"GET": g.known(g.model)})
	g.on("/health", map[string]http.HandlerFunc{"GET": g.health})
	g.on("/ready", map[string]http.HandlerFunc{"GET": g.ready})
	g.on("/metrics", map[string]http.HandlerFunc{"GET": scrape.ServeHTTP})
	g.on("/v1/fleet", map[string]http.HandlerFunc{"GET": g.admins(g.fleet)})
	g.on("/v1/fleet/weights", map[string]http.HandlerFunc{"GET": g.admins(g.showWeights), "PUT": g.admins(g.putWeights)})
	g.on("/v1/fleet/explain", map[string]http.HandlerFunc{"POST": g.admins(g.explainRequest)})
	g.on("/v1/fleet/view", map[string]http.HandlerFunc{"GET": g.admins(serveView(g))})
	g.on("/openapi.json", map[string]http.HandlerFunc{"GET": g.known(serveOpenAPI)})
	if page := fleetview.Page(); !g.cfg.NoPage {
		g.routes.Handle("GET /{$}", page)
		g.routes.Handle("GET /page/{file}", page)
	}
	g.routes.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		g.refuse(w, r, &openai.Error{Status: http.StatusNotFound, Type: "invalid_request_error", Code: "unknown_url",
			Message: fmt.Sprintf("%.10s %.100q is nothing that the gateway has: /openapi.json lists what it has; what a worker tells of its cache is at the worker's own URL, see /v1/fleet", r.Method, r.URL.Path)})
	})
	g.http = http.Server{
		Handler: g, TLSConfig: g.cfg.TLS, ConnContext: conns.Context, ReadHeaderTimeout: g.cfg.ReadHeaderTimeout, IdleTimeout: g.cfg.IdleTimeout,
		MaxHeaderBytes: g.cfg.MaxHeaderBytes, ErrorLog: stdLog(g.log),
	}
}

// on adds a path with its methods.
func (g *Gateway) on(path string, methods map[string]http.HandlerFunc) {
	allow := strings.Join(slices.Sorted(maps.Keys(methods)), ", ")
	for method, serve := range methods {
		g.routes.HandleFunc(method+" "+path, serve)
	}
	g.routes.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", allow)
		g.refuse(w, r, &openai.Error{Status: http.StatusMethodNotAllowed, Type: "invalid_request_error", Code: "method_not_allowed",
			Message: fmt.Sprintf("%s does not take %.20s, but %s", path, r.Method, allow)})
	})
}

// ServeHTTP answers a request. Whoever sends it, and wherever to, its body and its answer have
// an end: net/http reads what is left of a body before it answers, however slowly that comes.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out, now := http.NewResponseController(w), time.Now() // what can't have deadlines is a test's
	if r.Body != http.NoBody {
		out.SetReadDeadline(now.Add(g.cfg.ReadTimeout))
	}
	out.SetWriteDeadline(now.Add(g.cfg.ReadTimeout + g.cfg.WriteTimeout))
	if g.Draining() {
		w.Header().Set("Connection", "close")
	}
	probe := r.URL.Path == "/health" || r.URL.Path == "/ready"
	if !conns.Admitted(r.Context()) {
		if w.Header().Set("Connection", "close"); !probe {
			g.refuse(w, r, errConns)
			return
		}
	}
	preflight, refusal := g.sites.Check(w.Header(), r)
	switch {
	case refusal != nil:
		g.refuse(w, r, &openai.Error{Status: http.StatusForbidden, Type: "invalid_request_error", Code: refusal.Code, Message: refusal.Message})
	case preflight:
		w.WriteHeader(http.StatusNoContent)
	default:
		g.routes.ServeHTTP(w, r)
	}
}

// generate routes by the prompt.
func (g *Gateway) generate(kind prompt.Kind) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		g.travel(w, r, func(j *journey, tenant string) error {
			if err := j.prepare(r, kind, tenant); err != nil {
				return err
			}
			return j.stage(false)
		})
	}
}

// forward goes to any worker that serves the model.
func (g *Gateway) forward(w http.ResponseWriter, r *http.Request) {
	g.travel(w, r, func(j *journey, _ string) error { return j.address() })
}

// travel takes a request through.
func (g *Gateway) travel(w http.ResponseWriter, r *http.Request, prepare func(*journey, string) error) {
	tenant, admin, err := g.cfg.Tenant(r)
	if err == nil {
		err = g.enter(r)
	}
	if err != nil {
		g.refuse(w, r, err)
		return
	}
	defer g.leave()
	j := g.journey(w, r, admin)
	defer j.arrive()
	defer g.metrics.ended(j, r)
	if err = j.take(r); err == nil {
		err = prepare(j, tenant)
	}
	if err != nil {
		j.status, j.fault = g.refuse(w, r, err), err
		return
	}
	r.Header.Del("Expect") // what is asked for has been read
	r.Header.Del("Upgrade")
	ctx, cancel := context.WithCancelCause(context.WithValue(r.Context(), journeyKey{}, j))
	defer cancel(nil)
	defer context.AfterFunc(g.over, func() { cancel(context.Cause(g.over)) })()
	j.out.SetWriteDeadline(time.Time{}) // until there is something to write
	j.ctx = ctx
	g.proxy.ServeHTTP(w, r.WithContext(ctx))
}

// take reads the body, within its limits.
func (j *journey) take(r *http.Request) error {
	g := j.g
	if r.ContentLength > int64(g.cfg.MaxBodyBytes) {
		return g.tooLong(j.w)
	}
	in := http.MaxBytesReader(j.w, r.Body, int64(g.cfg.MaxBodyBytes))
	l := j.load
	for {
		if len(l.body) == cap(l.body) {
			l.body = append(l.body, 0)[:len(l.body)]
		}
		n, err := in.Read(l.body[len(l.body):cap(l.body)])
		l.body = l.body[:len(l.body)+n]
		l.held += n
		if held := g.bodies.Add(int64(n)); held > int64(g.cfg.MaxBodiesBytes) {
			return errBodies
		}
		switch long := (*http.MaxBytesError)(nil); {
		case err == nil:
		case errors.Is(err, io.EOF):
			j.out.SetReadDeadline(time.Time{}) // from here on reading only finds out who leaves
			return nil
		case errors.As(err, &long):
			return g.tooLong(j.w)
		case errors.Is(err, os.ErrDeadlineExceeded):
			j.w.Header().Set("Connection", "close")
			return errSlow
		default:
			return errBroken
		}
	}
}

func (g *Gateway) tooLong(w http.ResponseWriter) error {
	w.Header().Set("Connection", "close") // what is left of it is not waited for
	return &openai.Error{Status: http.StatusRequestEntityTooLarge, Type: "invalid_request_error", Code: "body_too_large",
		Message: fmt.Sprintf("the body has more than %d bytes, which is the most that the gateway takes", g.cfg.MaxBodyBytes)}
}

// failed is called by the proxy for a request that no worker answers.
func (g *Gateway) failed(w http.ResponseWriter, r *http.Request, err error) {
	j := r.Context().Value(journeyKey{}).(*journey)
	if cause := context.Cause(r.Context()); cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause // the drain's
	} else if cause != nil {
		j.status = statusGone
		return
	}
	j.extend(time.Now())
	j.status = g.refuse(w, r, err)
}

// statusGone is what metrics say of a client that left before its answer. Nobody is sent
// it.
const statusGone = 499

// refuse answers with an error, and returns its status.
func (g *Gateway) refuse(w http.ResponseWriter, r *http.Request, err error) int {
	e := translate(err)
	h := w.Header()
	switch e.Status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		h.Set("Retry-After", "1")
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", "Bearer")
	case http.StatusInternalServerError:
		g.log.Error("request failed", zap.String("path", r.URL.Path), zap.Error(err))
	}
	g.metrics.refused.WithLabelValues(e.Code).Inc()
	writeJSON(w, e.Status, e.Append(nil))
	return e.Status
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body) // who has gone is told nothing
}

// translate is what a client is told of an error.
func translate(err error) *openai.Error {
	e := (*openai.Error)(nil)
	full := (*router.QueueFullError)(nil)
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, router.ErrNoWorkers):
		return errNobody
	case errors.As(err, &full), errors.Is(err, router.ErrFull):
		return errTooMany
	case errors.Is(err, errPatience):
		return errBusy
	case errors.Is(err, router.ErrRequest):
		return &openai.Error{Status: http.StatusBadRequest, Type: "invalid_request_error", Code: "invalid_value", Message: strings.TrimPrefix(err.Error(), "router: ")}
	}
	return errInternal
}
