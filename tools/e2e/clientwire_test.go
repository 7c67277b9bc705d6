package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// wire stands between clients and a server. It passes on /CLIENT/CASE/... without these two, and
// keeps the errors of each case, also those that a client hides by trying again.
type wire struct {
	url    string
	mu     sync.Mutex
	failed map[string][]string // by "CLIENT/CASE"
}

// caseKey is the key of "CLIENT/CASE" in the context of a request.
type caseKey struct{}

// newWire starts one in front of the server at a URL. With seeded, requests without a seed get one: a run on a real model
// can be repeated, and samples as the server does by default.
func newWire(t *testing.T, server string, seeded bool) *wire {
	to, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{failed: map[string][]string{}}
	said := &output{more: make(chan struct{}, 1)}
	quiet := log.New(said, "", log.Ltime) // also about clients that close a stream
	proxy := &httputil.ReverseProxy{
		ErrorLog: quiet,
		Rewrite: func(r *httputil.ProxyRequest) {
			client, name, rest := caseOf(r.In.URL.Path)
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.URL.Path = to.Scheme, to.Host, rest
			if r.In.Method == http.MethodPost {
				take(r.Out, seeded, client+"/"+name)
			}
		},
		ModifyResponse: func(r *http.Response) error {
			// LiteLLM sometimes asks for what it knows of a model at a path that it makes wrongly, and goes on without an answer.
			if r.StatusCode < 400 || r.Request.URL.Path == "/api/chat/api/show" {
				return nil
			}
			body, err := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			w.note(r.Request.Context().Value(caseKey{}).(string), fmt.Sprintf("status %d: %.300s", r.StatusCode, body))
			return err
		},
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		client, name, _ := caseOf(r.URL.Path)
		proxy.ServeHTTP(rw, r.WithContext(context.WithValue(r.Context(), caseKey{}, client+"/"+name)))
	}))
	s.Config.ErrorLog = quiet
	s.Start()
	t.Cleanup(func() {
		s.Close()
		if text := said.String(); t.Failed() && text != "" {
			t.Logf("between the clients and the server:\n%s", text)
		}
	})
	w.url = s.URL
	return w
}

// caseOf splits /CLIENT/CASE/rest.
func caseOf(path string) (client, name, rest string) {
	parts := strings.SplitN(strings.TrimPrefix(path, "/"), "/", 3)
	for len(parts) < 3 {
		parts = append(parts, "")
	}
	return parts[0], parts[1], "/" + parts[2]
}

// take reads the body of a request, and adds a seed if asked to, one for each case. A body that is passed on as it comes
// could be closed by net/http when the answer begins, and the transport would end the answer.
func take(r *http.Request, seeded bool, name string) {
	body, err := io.ReadAll(r.Body)
	var fields map[string]json.RawMessage
	if err == nil && seeded && strings.HasSuffix(r.URL.Path, "/completions") && json.Unmarshal(body, &fields) == nil {
		if was, ok := fields["seed"]; !ok || string(was) == "null" {
			fields["seed"] = json.RawMessage(strconv.Itoa(int(crc32.ChecksumIEEE([]byte(name)) % 10000)))
			body, _ = json.Marshal(fields) // of values that were read from JSON
		}
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Set("Content-Length", strconv.Itoa(len(body)))
}

func (w *wire) note(name, failed string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed[name] = append(w.failed[name], failed)
}

// errors returns what failed in a case, "" if nothing did.
func (w *wire) errors(client, column string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.failed[client+"/"+strings.ReplaceAll(column, " ", "-")], "; ")
}

func TestWire(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, r.URL.Path+" "+string(body))
		if strings.Contains(string(body), "bad") {
			http.Error(rw, "no such model", http.StatusNotFound)
		}
	}))
	defer server.Close()
	w := newWire(t, server.URL, true)
	for _, body := range []string{`{"model":"a"}`, `{"model":"a","seed":7}`, `{"model":"a","seed":null}`, `{"model":"bad","seed":1}`} {
		resp, err := http.Post(w.url+"/llm/second-turn/v1/chat/completions", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	want := []string{`{"model":"a","seed":215}`, `{"model":"a","seed":7}`, `{"model":"a","seed":215}`, `{"model":"bad","seed":1}`}
	for i := range want {
		if want[i] = "/v1/chat/completions " + want[i]; got[i] != want[i] {
			t.Errorf("the server got %q, want %q", got[i], want[i])
		}
	}
	if e := w.errors("llm", "second turn"); e != "status 404: no such model\n" {
		t.Errorf("errors %q", e)
	}
	if e := w.errors("llm", "text"); e != "" {
		t.Errorf("errors of another case: %q", e)
	}
}
