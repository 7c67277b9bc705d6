package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
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

// wire starts one in front of p. With seeded, requests without a seed get one: a run on a real model
// can be repeated, and samples as the server does by default.
func (p *process) wire(seeded bool) *wire {
	to, err := url.Parse(p.url)
	if err != nil {
		p.t.Fatal(err)
	}
	w := &wire{failed: map[string][]string{}}
	quiet := log.New(io.Discard, "", 0) // about clients that close a stream
	proxy := &httputil.ReverseProxy{
		ErrorLog: quiet,
		Rewrite: func(r *httputil.ProxyRequest) {
			_, _, rest := caseOf(r.In.URL.Path)
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.URL.Path = to.Scheme, to.Host, rest
			if seeded && r.In.Method == http.MethodPost {
				seed(r.Out)
			}
		},
		ModifyResponse: func(r *http.Response) error {
			if r.StatusCode < 400 {
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
	p.t.Cleanup(s.Close)
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

// seed adds a seed to a request for tokens that has none.
func seed(r *http.Request) {
	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	var fields map[string]json.RawMessage
	if err != nil || !strings.HasSuffix(r.URL.Path, "/completions") || json.Unmarshal(body, &fields) != nil {
		return
	}
	if was, ok := fields["seed"]; ok && string(was) != "null" {
		return
	}
	fields["seed"] = json.RawMessage("1")
	if body, err = json.Marshal(fields); err == nil {
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		r.Header.Set("Content-Length", strconv.Itoa(len(body)))
	}
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
