package gateway

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

const ollamaBody = `{"model":"m:latest","messages":[{"role":"user","content":"What is light?"}]}`

// lines writes a stream of Ollama's API in these parts.
func lines(rw http.ResponseWriter, parts ...string) {
	rw.Header().Set("Content-Type", "application/x-ndjson")
	for _, part := range parts {
		io.WriteString(rw, part)
		rw.(http.Flusher).Flush()
	}
}

// TestOllamaPasses: answers of Ollama's API pass unchanged, the gateway reads their cached tokens, and a stream that breaks
// off ends with an error in a line of its own.
func TestOllamaPasses(t *testing.T) {
	const first, last = `{"model":"m","message":{"role":"assistant","content":"x \\"done\\":true"},"done":false}` + "\n", `{"model":"m","done":true,"done_reason":"stop","prompt_cached_count":9,"eval_count":1}` + "\n"
	a := newWorker(t, "a", false, nil)
	s := newStand(t, Config{}, a)
	s.ready(1)
	for _, want := range []string{last, first + last} {
		a.does(func(rw http.ResponseWriter, r *http.Request) {
			if body, err := io.ReadAll(r.Body); err != nil || string(body) != ollamaBody || r.URL.Path != "/api/chat" {
				t.Errorf("the worker got %s %s %v", r.URL, body, err)
			}
			if want == last {
				rw.Header().Set("Content-Type", "application/json")
				io.WriteString(rw, want)
				return
			}
			lines(rw, want[:30], want[30:100], want[100:])
		})
		if got := s.post(t.Context(), "/api/chat", ollamaBody); got.text != want || got.StatusCode != 200 || got.Header.Get(headerWorker) != "a" {
			t.Errorf("%s %v %s, want %s", got.Status, got.Header, got.text, want)
		}
	}
	s.until("both are known", func() bool {
		n := 0
		for _, r := range viewOf(s.Gateway).Recent {
			if r.CachedTokens != nil && *r.CachedTokens > 0 && r.Status == 200 {
				n++
			}
		}
		return n == 2
	})
	a.does(func(rw http.ResponseWriter, r *http.Request) {
		lines(rw, first, first[:20])
		panic(http.ErrAbortHandler)
	})
	got := s.post(t.Context(), "/api/chat", ollamaBody)
	if rest, ok := strings.CutPrefix(got.text, first); !ok || !strings.HasPrefix(rest, `{"error":"worker a broke off`) || !strings.HasSuffix(rest, "\"}\n") {
		t.Errorf("a broken stream: %s", got.text)
	}
}

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
		req, err := http.NewRequest(tc.method, s.url+tc.path, strings.NewReader(tc.body))
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || !strings.Contains(string(text), tc.says) {
			t.Errorf("%s %s: %s %s, want %s (%v)", tc.method, tc.path, res.Status, text, tc.says, err)
		}
	}
}
