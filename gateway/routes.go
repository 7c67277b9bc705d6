package gateway

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/anthropic"
	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/gateway/fleetview"
	"github.com/coppice-llm/coppice/gateway/internal/prompt"
	"github.com/coppice-llm/coppice/internal/web"
	"github.com/coppice-llm/coppice/openai/responses"
)

// mount sets up the routes and the reverse proxy.
func (g *Gateway) mount() {
	g.proxy = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetXForwarded()
			r.Out.Header.Add("Via", g.via)
			r.Out.Header.Del("Accept-Encoding") // a compressed answer can't be scanned for events and usage
			r.Out.Header.Del("Origin")          // the gateway enforces CORS, workers must not
			r.Out.Header.Del("Sec-Fetch-Site")
		},
		Transport:     g,
		FlushInterval: -1,
		BufferPool:    (*pool)(g),
		ErrorHandler:  g.failed,
		ErrorLog:      web.Log(g.log),
	}
	g.routes = http.NewServeMux()
	g.on("/v1/completions", map[string]http.HandlerFunc{"POST": g.generate(prompt.Completions)})
	g.on("/v1/chat/completions", map[string]http.HandlerFunc{"POST": g.generate(prompt.Chat)})
	g.on("/v1/embeddings", map[string]http.HandlerFunc{"POST": g.generate(prompt.Embeddings)})
	g.on(responses.Path, map[string]http.HandlerFunc{"POST": g.generate(prompt.Responses)})
	g.on(anthropic.Path, map[string]http.HandlerFunc{"POST": g.generate(prompt.Messages)})
	for _, path := range []string{"/v1/cache/park", "/v1/cache/release", "/v1/cache/expect"} {
		g.on(path, map[string]http.HandlerFunc{"POST": g.hint})
	}
	g.mountPassed()
	g.mountOllama()
	scrape := promhttp.HandlerFor(g.cfg.Registry, promhttp.HandlerOpts{MaxRequestsInFlight: 8, Timeout: 10 * time.Second})
	g.on("/v1/models", map[string]http.HandlerFunc{"GET": g.withKey(g.models)})
	g.on("/v1/models/{id...}", map[string]http.HandlerFunc{"GET": g.withKey(g.model)})
	g.on("/health", map[string]http.HandlerFunc{"GET": g.health})
	g.on("/ready", map[string]http.HandlerFunc{"GET": g.ready})
	g.on("/metrics", map[string]http.HandlerFunc{"GET": scrape.ServeHTTP})
	g.on("/v1/fleet", map[string]http.HandlerFunc{"GET": g.adminOnly(g.fleet)})
	g.on("/v1/fleet/weights", map[string]http.HandlerFunc{"GET": g.adminOnly(g.showWeights), "PUT": g.adminOnly(g.putWeights)})
	g.on("/v1/fleet/explain", map[string]http.HandlerFunc{"POST": g.adminOnly(g.explainRequest)})
	g.on("/v1/fleet/view", map[string]http.HandlerFunc{"GET": g.adminOnly(serveView(g))})
	g.on("/openapi.json", map[string]http.HandlerFunc{"GET": g.withKey(serveOpenAPI)})
	if page := fleetview.Page(); !g.cfg.NoPage {
		g.routes.Handle("GET /{$}", page)
		g.routes.Handle("GET /page/{file}", page)
	}
	g.routes.HandleFunc("/", g.unknown)
	g.http = http.Server{
		Handler: g, TLSConfig: g.cfg.TLS, ConnContext: web.ConnContext, ReadHeaderTimeout: g.cfg.ReadHeaderTimeout, IdleTimeout: g.cfg.IdleTimeout,
		MaxHeaderBytes: g.cfg.MaxHeaderBytes, ErrorLog: web.Log(g.log),
	}
}

// unknown answers a request for a path that does not exist.
func (g *Gateway) unknown(w http.ResponseWriter, r *http.Request) {
	g.refuse(w, r, conversation.NewError(http.StatusNotFound, "unknown_url",
		"the gateway does not serve %.10s %.100q: see /openapi.json; a worker's own endpoints, such as those of its cache, are at its URL in /v1/fleet", r.Method, r.URL.Path))
}

// on adds a path with a handler for each of its methods. Other methods get status 405.
func (g *Gateway) on(path string, methods map[string]http.HandlerFunc) {
	allow := strings.Join(slices.Sorted(maps.Keys(methods)), ", ")
	for method, serve := range methods {
		g.routes.HandleFunc(method+" "+path, serve)
	}
	g.routes.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", allow)
		g.refuse(w, r, conversation.NewError(http.StatusMethodNotAllowed, "method_not_allowed", "%s does not allow %.20s, only %s", path, r.Method, allow))
	})
}

// ServeHTTP answers a request. It sets deadlines for reading and writing on every path, because
// before net/http answers, it reads what is left of a body, however slowly that arrives.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out, now := http.NewResponseController(w), time.Now() // only test writers lack deadlines
	if r.Body != http.NoBody {
		out.SetReadDeadline(now.Add(g.cfg.ReadTimeout))
	}
	out.SetWriteDeadline(now.Add(g.cfg.ReadTimeout + g.cfg.WriteTimeout))
	if g.Draining() {
		w.Header().Set("Connection", "close")
	}
	probe := r.URL.Path == "/health" || r.URL.Path == "/ready"
	if !web.Admitted(r.Context()) {
		if w.Header().Set("Connection", "close"); !probe {
			g.refuse(w, r, errConns)
			return
		}
	}
	preflight, refusal := g.sites.Check(w.Header(), r)
	switch {
	case refusal != nil:
		g.refuse(w, r, refusal)
	case preflight:
		w.WriteHeader(http.StatusNoContent)
	default:
		g.routes.ServeHTTP(w, r)
	}
}

// generate returns the handler for requests to the endpoint kind, which are routed by their
// prompt.
func (g *Gateway) generate(kind prompt.Kind) http.HandlerFunc {
	return g.proxied(g.cfg.Tenant, func(p *proxiedRequest, r *http.Request, tenant string) error {
		if err := p.readPrompt(r, kind, tenant); err != nil {
			return err
		}
		return p.stage(false)
	})
}

// hint handles news of a session, which its worker gets.
func (g *Gateway) hint(w http.ResponseWriter, r *http.Request) {
	g.proxied(g.cfg.Tenant, func(p *proxiedRequest, _ *http.Request, tenant string) error { return p.readHint(tenant) })(w, r)
}

// proxied returns a handler that admits a request whose caller tenantOf knows, reads its body, calls read to prepare the
// question to the dispatcher, and forwards the request to a worker.
func (g *Gateway) proxied(tenantOf tenantFunc, read readFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p := g.admit(w, r, tenantOf, read)
		if p == nil {
			return
		}
		if picker, ok := w.(*picker); ok { // someone else sends the request, and ends it
			picker.admitted = p
			return
		}
		defer p.leave(r)
		r.Header.Del("Expect") // the body has been read already
		r.Header.Del("Upgrade")
		ctx, end := g.open.Bound(context.WithValue(r.Context(), requestKey{}, p))
		defer end()
		p.client.Out.SetWriteDeadline(time.Time{}) // none until there is something to write
		p.ctx = ctx
		g.proxy.ServeHTTP(w, r.WithContext(ctx))
	}
}

type (
	// tenantFunc returns the tenant of a request, or refuses it, as Config.Tenant.
	tenantFunc = func(*http.Request) (tenant string, admin bool, err error)
	// readFunc prepares the question to the dispatcher for a request whose body has been read. The error is for the client.
	readFunc = func(p *proxiedRequest, r *http.Request, tenant string) error
)

// admit admits a request whose caller tenantOf knows, reads its body and calls read to prepare the question to the dispatcher. If
// any of this fails, admit answers the request and returns nil. Otherwise the caller must call leave.
func (g *Gateway) admit(w http.ResponseWriter, r *http.Request, tenantOf tenantFunc, read readFunc) *proxiedRequest {
	tenant, admin, err := tenantOf(r)
	if err == nil {
		err = g.enter(r)
	}
	if err != nil {
		g.refuse(w, r, err)
		return nil
	}
	p, admitted := g.newRequest(w, r, admin), false
	defer func() {
		if !admitted {
			p.leave(r)
		}
	}()
	if err = p.readBody(r); err != nil {
		p.status, p.fault = p.refuseBody(r, err), err
		return nil
	}
	if picker, ok := w.(*picker); ok {
		err = picker.edit(p)
	}
	if err == nil {
		err = read(p, r, tenant)
	}
	if err != nil {
		p.status, p.fault = g.refuse(w, r, err), err
		return nil
	}
	admitted = true
	return p
}

// leave ends an admitted request, however it went.
func (p *proxiedRequest) leave(r *http.Request) {
	defer p.g.open.Leave()
	defer p.close()
	p.ended(r)
}

// statusGone is the status that metrics show for a request whose client left before its answer.
// It is never sent.
const statusGone = 499

// refuse answers the request with err, as translate converts it, and returns the status.
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
	g.metrics.Refused.WithLabelValues(e.Code).Inc()
	writeJSON(w, e.Status, wireOf(r).fault(nil, e))
	return e.Status
}

// document answers with v as indented JSON.
func (g *Gateway) document(w http.ResponseWriter, r *http.Request, v any) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		g.refuse(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, append(text, '\n'))
}

// withKey wraps serve so that only callers with a valid key reach it.
func (g *Gateway) withKey(serve http.HandlerFunc) http.HandlerFunc { return g.guard(serve, false) }

// adminOnly wraps serve so that only callers with admin rights reach it.
func (g *Gateway) adminOnly(serve http.HandlerFunc) http.HandlerFunc { return g.guard(serve, true) }

// guard wraps a handler with a check of the caller's key. With admins, the caller needs admin
// rights.
func (g *Gateway) guard(serve http.HandlerFunc, admins bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, admin, err := g.cfg.Tenant(r)
		if err == nil && admins && !admin {
			err = conversation.ErrAdminOnly
		}
		if err != nil {
			g.refuse(w, r, err)
			return
		}
		serve(w, r)
	}
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body) // a write error means that the client has gone
}
