package gateway

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/router"
)

// TestHints: news of a session goes to the worker of its requests, however they name it; for an unknown session the gateway answers itself, unless it has
// one worker alone.
func TestHints(t *testing.T) {
	a, b := newWorker(t, "a", false, nil), newWorker(t, "b", false, nil)
	s := newStand(t, Config{Router: router.Config{SessionTTL: time.Hour}, Tenant: func(r *http.Request) (string, bool, error) { return r.Header.Get("X-Api-Key"), true, nil }}, a, b)
	s.ready(2)
	const key = "X-Api-Key"
	for i, tc := range []struct{ name, path, body, header string }{
		{"one", "/v1/completions", `{"model":"m","prompt":[1,2],"prompt_cache_key":"one"}`, ""},
		{"two", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"x"}],"session_id":"two"}`, "no"},
		{"three", "/v1/messages", messagesBody, "three"},
		{"four", "/v1/responses", `{"model":"m","input":"x","prompt_cache_key":"four"}`, ""},
		{"five", "/api/chat", ollamaBody, "five"},
	} {
		headers := []string{key, "t"}
		if tc.header != "" {
			headers = append(headers, headerSession, tc.header)
		}
		worker := []string{"a", "b"}[i%2]
		if got := s.send("POST", tc.path, tc.body, append(headers, headerPin, worker)...); got.worker() != worker {
			t.Errorf("%s: %s by %q, want %q", tc.name, got.Status, got.worker(), worker)
		}
		for _, path := range []string{"/v1/cache/park", "/v1/cache/expect", "/v1/cache/release"} {
			for range 3 {
				if got := s.send("POST", path, `{"model":"m","session":"`+tc.name+`","seconds":5}`, headers...); got.worker() != worker {
					t.Errorf("%s of %s: %s by %q, want %q", path, tc.name, got.Status, got.worker(), worker)
				}
			}
			if got := s.send("POST", path, `{"session":"`+tc.name+`"}`, key, "other"); got.StatusCode != 404 || !strings.Contains(got.text, "unknown_session") {
				t.Errorf("another tenant's %s of %s: %s %s", path, tc.name, got.Status, got.text)
			}
		}
	}
	alone := newWorker(t, "alone", false, nil)
	s = newStand(t, Config{}, alone)
	s.ready(1)
	if got := s.send("POST", "/v1/cache/park", `{"session":"x"}`); got.worker() != "alone" {
		t.Errorf("one worker alone: %s %s", got.Status, got.text)
	}
}
