package gateway

import (
	"strings"
	"testing"
)

const ollamaBody = `{"model":"m:latest","messages":[{"role":"user","content":"What is light?"}]}`

// TestOllamaOfAFleet: the gateway names the models of its workers, and its errors have the form of the API.
func TestOllamaOfAFleet(t *testing.T) {
	a := newWorker(t, "a", false, nil)
	s := newStand(t, Config{}, a)
	s.ready(1)
	for _, tc := range []struct{ method, path, body, says string }{
		{"GET", "/api/tags", "", `{"models":[{"name":"m:latest","model":"m:latest"`}, {"GET", "/api/ps", "", `"expires_at"`}, {"GET", "/api/version", "", `{"version":"`},
		{"POST", "/api/pull", `{"model":"m"}`, `{"status":"success"}`}, {"POST", "/api/pull", `{"model":"n"}`, `{"error":"the model \"n\" is not served here`}, {"POST", "/api/pull", `{`, `{"error":"the body is not JSON`},
		{"POST", "/api/chat", strings.Replace(ollamaBody, "m:latest", "n", 1), `{"error":"no worker serves the model \"n\"`}, {"POST", "/api/chat", "{", `{"error":"`}, {"GET", "/api/chat", "", `{"error":"`}, {"POST", "/api/create", "{}", `{"error":"the gateway does not serve`},
	} {
		if got := s.send(tc.method, tc.path, tc.body); !strings.Contains(got.text, tc.says) {
			t.Errorf("%s %s: %s %s, want %s", tc.method, tc.path, got.Status, got.text, tc.says)
		}
	}
}
