package load

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestClosedConnections checks that no request fails if a server closes a connection
// unannounced after a stream, while the next request is on its way. A request fails if the
// connection is closed before its first answer.
func TestClosedConnections(t *testing.T) {
	type served struct{ requests int }
	type key struct{}
	f := &fake{model: "m", answer: steady(0, 0, 3)}
	closed := 0
	hangUp := func(w http.ResponseWriter) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		conn.Close()
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn := r.Context().Value(key{}).(*served) // a connection carries one request at a time
		if r.Header["Idempotency-Key"] != nil {
			t.Error("the header was sent")
		}
		if conn.requests++; r.URL.Path == "/v1/models" {
			conn.requests = 0
		}
		if conn.requests > 1 {
			f.mu.Lock()
			closed++
			f.mu.Unlock()
			hangUp(w)
			return
		}
		f.ServeHTTP(w, r)
	}))
	s.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, key{}, &served{})
	}
	s.Start()
	defer s.Close()
	for _, endpoint := range []Endpoint{Completions, Chat} {
		c, err := Dial(t.Context(), ClientConfig{URL: s.URL, Endpoint: endpoint})
		if err != nil {
			t.Fatal(err)
		}
		r, err := Run(t.Context(), c, &Random{InputTokens: 4, OutputTokens: 3}, Config{Concurrency: 4, Requests: 60}, nil)
		c.Close()
		if err != nil || r.Completed != 60 || r.Failed != 0 {
			t.Errorf("endpoint %v: %d requests completed, %d failed: %v %v", endpoint, r.Completed, r.Failed, r.Failures, err)
		}
	}
	if closed < 60 || len(f.queries) != 120 {
		t.Errorf("%d connections were closed, %d requests answered, want some hundred and 120", closed, len(f.queries))
	}

	silent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { hangUp(w) }))
	defer silent.Close()
	c, err := Dial(t.Context(), ClientConfig{URL: silent.URL, Model: "m"})
	if err == nil {
		c.Close()
		t.Error("a server that answers nothing at all was dialled")
	}
}
