package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestHealth checks the exit status of coppice health for a server that drains, and for none.
func TestHealth(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/health" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	if _, stderr, ok := command(t, "health", "--url", s.URL); !ok || stderr != "" {
		t.Errorf("ok %v: %s", ok, stderr)
	}
	refused(t, []string{"503"}, "health", "--ready", "--url", s.URL)
	t.Setenv("COPPICE_ADDR", strings.Replace(s.URL, "http://127.0.0.1", "0.0.0.0", 1))
	if _, stderr, ok := command(t, "health"); !ok {
		t.Errorf("by COPPICE_ADDR: %s", stderr)
	}
	s.Close()
	refused(t, []string{"no answer"}, "health")
}

func TestLocalURL(t *testing.T) {
	for addr, want := range map[string]string{"": "http://127.0.0.1:8080", ":9": "http://127.0.0.1:9", "0.0.0.0:9": "http://127.0.0.1:9", "[::]:9": "http://[::1]:9", "10.0.0.7:9": "http://10.0.0.7:9", "nonsense": "http://127.0.0.1:8080"} {
		if got := localURL(addr); got != want {
			t.Errorf("%q: %s, want %s", addr, got, want)
		}
	}
}
