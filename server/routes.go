package server

import (
	"maps"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"
	"time"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/events/card"
	"github.com/coppice-llm/coppice/openai/responses"
	"github.com/coppice-llm/coppice/server/view"
)

// mount registers all routes.
func (s *Server) mount() {
	s.routes = http.NewServeMux()
	// on adds a path with an endpoint per method. GET serves HEAD too.
	on := func(path string, methods map[string]endpoint) {
		names := slices.Sorted(maps.Keys(methods))
		s.paths = append(s.paths, Route{path, names})
		byMethod := make(map[string]*endpoint, len(methods)+1)
		var fault func(dst []byte, e *conversation.Error) []byte // of the path's API
		for name, e := range methods {
			e.path, fault = path, e.fault
			byMethod[name] = &e
		}
		if e := byMethod[http.MethodGet]; e != nil {
			byMethod[http.MethodHead] = e
		}
		allow := strings.Join(names, ", ")
		s.routes.HandleFunc(patternOf(path), func(w http.ResponseWriter, r *http.Request) {
			e := byMethod[r.Method]
			if e == nil {
				w.Header().Set("Allow", allow)
				e = &endpoint{path: path, drained: true, fault: fault, serve: func(c *call) error {
					return conversation.NewError(http.StatusMethodNotAllowed, "method_not_allowed", "%s does not support %.20s; use %s", path, r.Method, allow)
				}}
			}
			s.serve(w, r, e)
		})
	}
	get := func(e endpoint) map[string]endpoint { return map[string]endpoint{http.MethodGet: e} }
	post := func(serve func(*call) error) map[string]endpoint {
		return map[string]endpoint{http.MethodPost: {access: anyKey, serve: serve}}
	}
	on("/v1/completions", post((*call).completions))
	on("/v1/chat/completions", post((*call).chatCompletions))
	on("/v1/messages", post((*call).messages))
	on("/v1/messages/count_tokens", post((*call).countTokens))
	on("/v1/embeddings", post((*call).embeddings))
	on("/v1/models", get(endpoint{access: anyKey, serve: (*call).models}))
	on("/v1/models/{id}", get(endpoint{access: anyKey, serve: (*call).model}))
	on("/tokenize", post((*call).tokenize))
	on("/detokenize", post((*call).detokenize))
	on("/tokenizer_info", get(endpoint{access: anyKey, serve: tokenizerInfo}))
	on("/version", get(endpoint{drained: true, serve: version}))
	on("/health", get(endpoint{drained: true, quiet: true, probe: true, serve: (*call).health}))
	on("/ready", get(endpoint{drained: true, quiet: true, probe: true, serve: (*call).ready}))
	on("/metrics", get(endpoint{drained: true, quiet: true, serve: s.metrics.serve()}))
	on("/openapi.json", get(endpoint{drained: true, serve: whole(s.fixed.document)}))
	on(card.Path, get(endpoint{access: anyKey, drained: true, quiet: true, serve: (*call).worker}))
	on(card.TokenizerPath, get(endpoint{access: anyKey, serve: (*call).tokenizer}))
	s.mountCache(on)
	s.mountResponses(on)
	s.mountOllama(on)
	on("/debug/pprof/", get(endpoint{access: admins, drained: true, serve: (*call).pprof}))
	slices.SortFunc(s.paths, func(a, b Route) int { return strings.Compare(a.Path, b.Path) })

	api := s.paths
	if s.feed != nil {
		page := view.Handler(s.feed)
		for _, path := range []string{"/{$}", "/page/{file}", "/v1/view", "/v1/view/stream"} {
			watches := strings.HasPrefix(path, "/v1/")
			on(path, get(endpoint{quiet: true, drained: true, place: watches, serve: func(c *call) error { c.delegate(page); return nil }}))
		}
	}
	s.paths = api // the page's paths are not part of the API
	rest := &endpoint{path: "other", drained: true, serve: (*call).notFound}
	s.routes.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, rest) })
}

// patternOf returns the pattern of a path for http.ServeMux. An id at the end may contain slashes, as names of models do.
func patternOf(path string) string {
	if before, ok := strings.CutSuffix(path, "{id}"); ok {
		return before + "{id...}"
	}
	return path
}

// mountResponses registers the routes of /v1/responses with on.
func (s *Server) mountResponses(on func(path string, methods map[string]endpoint)) {
	on(responses.Path, map[string]endpoint{http.MethodPost: {access: anyKey, serve: (*call).createResponse}})
	on(responses.Path+"/{id}", map[string]endpoint{
		http.MethodGet:    {access: anyKey, drained: true, serve: (*call).storedResponse},
		http.MethodDelete: {access: anyKey, drained: true, serve: (*call).deleteResponse},
	})
	on(responses.Path+"/{id}/input_items", map[string]endpoint{http.MethodGet: {access: anyKey, drained: true, serve: (*call).inputItems}})
	on(responses.Path+"/{id}/cancel", map[string]endpoint{http.MethodPost: {access: anyKey, serve: (*call).cancelResponse}})
}

// mountCache registers the routes of the cache with on.
func (s *Server) mountCache(on func(path string, methods map[string]endpoint)) {
	on("/v1/cache/stats", map[string]endpoint{http.MethodGet: {access: anyKey, drained: true, quiet: true, serve: (*call).cacheStats}})
	on("/v1/cache/tree", map[string]endpoint{http.MethodGet: {access: anyKey, drained: true, serve: (*call).cacheTree}})
	on("/v1/cache/explain", map[string]endpoint{http.MethodPost: {access: anyKey, serve: (*call).explain}})
	for _, path := range []string{"/v1/cache/flush", "/reset_prefix_cache"} { // the second is vLLM's name
		on(path, map[string]endpoint{http.MethodPost: {access: admins, serve: (*call).cacheFlush}})
	}
	on("/v1/cache/release", map[string]endpoint{http.MethodPost: {access: anyKey, serve: (*call).cacheRelease}})
	on("/v1/cache/expect", map[string]endpoint{http.MethodPost: {access: anyKey, serve: (*call).cacheExpect}})
	on("/v1/cache/park", map[string]endpoint{http.MethodPost: {access: anyKey, serve: (*call).cachePark}})
	on("/v1/cache/parked", map[string]endpoint{http.MethodGet: {access: anyKey, drained: true, serve: (*call).cacheParked}})
	on("/v1/cache/pin", map[string]endpoint{
		http.MethodPost:   {access: admins, serve: (*call).cachePin},
		http.MethodDelete: {access: admins, serve: (*call).cacheUnpin},
	})
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.routes.ServeHTTP(w, r) }

// notFound answers all paths without a route.
func (c *call) notFound() error {
	return conversation.NewError(http.StatusNotFound, "unknown_url", "there is no route for %.100q; /openapi.json lists the routes", c.r.URL.Path)
}

// whole returns an endpoint that answers with body, which is JSON.
func whole(body []byte) func(*call) error {
	return func(c *call) error { return c.json(http.StatusOK, body) }
}

var errNoPprof = conversation.NewError(http.StatusNotFound, "unknown_url", "profiles are off; coppice serve --pprof turns them on")

// pprof answers /debug/pprof/ if Config.Pprof is set.
func (c *call) pprof() error {
	if !c.s.cfg.Pprof {
		return errNoPprof
	}
	h := map[string]http.HandlerFunc{"cmdline": pprof.Cmdline, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace}[strings.TrimPrefix(c.r.URL.Path, "/debug/pprof/")]
	if h == nil {
		h = pprof.Index
	}
	c.client.Out.SetWriteDeadline(time.Time{}) // a profile is sent only once complete
	c.delegate(h)
	return nil
}
