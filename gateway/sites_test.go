package gateway

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestSites: the gateway admits hosts and pages as a server would, and for its workers: their
// CORS headers are not forwarded.
func TestSites(t *testing.T) {
	a := newWorker(t, "a", false, nil)
	a.does(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" {
			rw.WriteHeader(403)
			return
		}
		rw.Header().Set("Access-Control-Allow-Origin", "https://worker.example")
		io.WriteString(rw, "{}")
	})
	s := newStand(t, Config{AllowHosts: []string{"*.lab.example"}, CORS: []string{"https://app.example"}}, a)
	s.ready(1)
	ask := func(method, path, host, origin, wants string) *http.Response {
		r := httptest.NewRequest(method, path, strings.NewReader(`{"prompt":[1,2]}`))
		r.Host = host
		for name, value := range map[string]string{"Origin": origin, "Sec-Fetch-Site": "cross-site", "Access-Control-Request-Method": wants} {
			if origin != "" && value != "" {
				r.Header.Set(name, value)
			}
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w.Result()
	}
	for _, tc := range []struct {
		method, path, host, origin, wants string
		status                            int
		reads                             string
	}{
		{"POST", "/v1/completions", "127.0.0.1:1", "", "", 200, ""},
		{"POST", "/v1/completions", "router.lab.example", "", "", 200, ""},
		{"POST", "/v1/completions", "evil.example", "", "", 403, ""},
		{"GET", "/v1/fleet", "evil.example", "", "", 403, ""},
		{"PUT", "/v1/fleet/weights", "evil.example", "http://evil.example", "", 403, ""},
		{"GET", "/nothing", "evil.example", "", "", 403, ""},
		{"POST", "/v1/completions", "localhost", "https://app.example", "", 200, "https://app.example"},
		{"POST", "/nothing", "localhost", "https://app.example", "", 404, "https://app.example"},
		{"OPTIONS", "/v1/completions", "localhost", "https://app.example", "POST", 204, "https://app.example"},
		{"POST", "/v1/completions", "localhost", "https://evil.example", "", 403, ""},
		{"OPTIONS", "/v1/completions", "localhost", "https://evil.example", "POST", 403, ""},
	} {
		res := ask(tc.method, tc.path, tc.host, tc.origin, tc.wants)
		if reads := strings.Join(res.Header.Values("Access-Control-Allow-Origin"), ","); res.StatusCode != tc.status || reads != tc.reads {
			t.Errorf("%+v: %s, for %q to read", tc, res.Status, reads)
		}
	}
	s.idle()
}
