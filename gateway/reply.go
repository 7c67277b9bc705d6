package gateway

import (
	"encoding/json"
	"net/http"
	"strconv"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/openai"
)

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
	writeJSON(w, e.Status, e.Append(nil))
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
			err = openai.ErrAdminOnly
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
