package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// delayed starts a worker that reads each request, and answers it after a fixed time.
func delayed(t *testing.T, name string, after time.Duration) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"data":[{"id":"m"}]}`) })
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /ready", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		time.Sleep(after)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"worker":%q,"usage":{"prompt_tokens":8000,"completion_tokens":4}}`, name)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// words returns n words of a text that is always the same for a seed.
func words(n int, seed uint64) string {
	random := rand.New(rand.NewPCG(4, seed))
	list := strings.Fields("the of a router cache prefix token block worker request tree light green river paper window answer question number simple early morning letter garden because without through under every")
	var b strings.Builder
	for range n {
		b.WriteString(list[random.IntN(len(list))])
		b.WriteByte(' ')
	}
	return b.String()
}

// chat returns a turn of one of eight conversations of about 8,000 tokens: a long beginning, and a new question.
func chat(i int) string {
	messages := []map[string]string{{"role": "system", "content": words(7600, uint64(i%8))}, {"role": "user", "content": words(60, uint64(1000+i))}}
	text, _ := json.Marshal(map[string]any{"messages": messages, "max_tokens": 4})
	return string(text)
}

// withoutFilter removes the external processing from a configuration of Envoy, and with it what names endpoints.
func withoutFilter(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	skipping := false
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "- name: envoy.filters.http.ext_proc") {
			skipping = true
		}
		if strings.Contains(line, "- name: envoy.filters.http.router") {
			skipping = false
		}
		if !skipping {
			kept = append(kept, line)
		}
	}
	if err := os.WriteFile(path, []byte(strings.Join(kept, "")), 0o600); err != nil {
		t.Fatal(err)
	}
}

// quantile returns the q-quantile of x.
func quantile(x []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(x))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
