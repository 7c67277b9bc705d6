package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/gateway/fleetview"
)

// get calls the gateway's handler directly.
func (s *stand) get(method, path string) reply {
	s.t.Helper()
	r, err := http.NewRequest(method, s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return reply{res, string(text), err}
}

// TestView: the page shows each request's worker, the reason, and the cached tokens by its
// usage.
func TestView(t *testing.T) {
	a, b := newWorker(t, "a", true, nil), newWorker(t, "b", true, nil)
	s := newStand(t, Config{Version: "1.2"}, a, b)
	s.ready(2)
	a.holds(run(0, 400))
	s.until("the events", func() bool { return s.worker("a").Ranks[0].HeldBlocks == 100 })
	a.does(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(rw, "data: {\"token\":0}\n\ndata: {\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":396}}}\n\ndata: [DONE]\n\n")
	})
	s.ask(t.Context(), run(0, 400), `,"max_tokens":1,"stream":true`)
	a.does(func(rw http.ResponseWriter, r *http.Request) { rw.WriteHeader(400) })
	s.ask(t.Context(), run(0, 400), `,"max_tokens":1`)
	s.ask(t.Context(), run(0, 400), `,"model":"nothing"`)
	s.idle()

	var v fleetview.State
	s.until("three requests", func() bool {
		r := s.get("GET", "/v1/fleet/view")
		if err := json.Unmarshal([]byte(r.text), &v); err != nil || r.StatusCode != 200 {
			t.Fatal(r.Status, r.text, err)
		}
		return v.Fleet.Requests == 3
	})
	if v.Schema != fleetview.Schema || v.Version != "1.2" || v.Policy != "latency" || v.Prompts != "bytes" && v.Prompts != "tokens" || v.Troubles == nil || v.Open != 0 {
		t.Errorf("%+v", v)
	}
	r := v.Recent
	if len(r) != 3 || r[0].Worker != "" || r[0].Status != 404 || !strings.Contains(r[0].Error, "nothing") || r[1].Worker != "a" || r[1].Status != 400 || r[1].CachedTokens != nil || r[1].TTFTMillis != nil {
		t.Fatalf("%+v", r)
	}
	if r := r[2]; r.Worker != "a" || r.Status != 200 || r.Attempts != 1 || r.Reason != "cost" || r.PromptTokens != 400 || r.PredictedTokens < 396 || r.CachedTokens == nil || *r.CachedTokens != 396 || r.TTFTMillis == nil || *r.TTFTMillis > r.TotalMillis {
		t.Errorf("%+v", r)
	}
	i := slices.IndexFunc(v.Workers, func(w fleetview.Worker) bool { return w.Name == "a" })
	if w := v.Workers[i]; w.HeldTokens != 400 || w.State != "healthy" || w.Sums.Requests != 2 || w.Sums.Refused != 1 || w.Sums.CachedTokens != 396 {
		t.Errorf("%+v", w)
	}
}

// TestEmptyView: empty lists are lists, not null.
func TestEmptyView(t *testing.T) {
	s := newStand(t, Config{})
	for _, path := range []string{"/v1/fleet", "/v1/fleet/view"} {
		if r := s.get("GET", path); r.StatusCode != 200 || strings.Contains(r.text, "null") || !strings.Contains(r.text, `"workers": []`) {
			t.Errorf("%s: %s %s", path, r.Status, r.text)
		}
	}
}

// TestFleetPage: the page and its files need no key, its figures need an admin's; with NoPage
// there is no page.
func TestFleetPage(t *testing.T) {
	s := newStand(t, Config{Tenant: func(r *http.Request) (string, bool, error) {
		if r.Header.Get("Authorization") == "" {
			return "", false, conversation.ErrAdminOnly
		}
		return "t", true, nil
	}})
	for path, want := range map[string]string{"/": "text/html", "/page/base.css": "text/css", "/page/page.css": "text/css", "/page/page.js": "text/javascript", "/page/icon.svg": "image/svg+xml", "/page/format.js": "text/javascript", "/page/theme.js": "text/javascript"} {
		r := s.get("GET", path)
		if r.StatusCode != 200 || !strings.HasPrefix(r.Header.Get("Content-Type"), want) || !strings.Contains(r.Header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: %s %v", path, r.Status, r.Header)
		}
	}
	if r := s.get("GET", "/v1/fleet/view"); r.StatusCode != conversation.ErrAdminOnly.Status {
		t.Errorf("without a key: %s", r.Status)
	}
	bare := newStand(t, Config{NoPage: true})
	if r := bare.get("GET", "/"); r.StatusCode != 404 {
		t.Errorf("with NoPage: %s", r.Status)
	}
}

// TestOpenAPI: each path and method in the document is routed, and all its references resolve.
func TestOpenAPI(t *testing.T) {
	a := newWorker(t, "a", false, nil)
	s := newStand(t, Config{}, a)
	s.ready(1)
	text := s.get("GET", "/openapi.json").text
	var doc struct {
		Paths      map[string]map[string]json.RawMessage
		Components struct{ Schemas map[string]json.RawMessage }
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	for path, methods := range doc.Paths {
		if len(methods) == 0 {
			t.Errorf("%s has no methods", path)
		}
		for method := range methods {
			r := s.get(strings.ToUpper(method), strings.ReplaceAll(path, "{id}", "m"))
			if r.StatusCode == 405 || r.StatusCode == 404 && strings.Contains(r.text, "unknown_url") {
				t.Errorf("%s %s: %s %s", method, path, r.Status, r.text)
			}
		}
	}
	for _, part := range strings.Split(text, `"$ref": "#/components/schemas/`)[1:] {
		name, _, _ := strings.Cut(part, `"`)
		if doc.Components.Schemas[name] == nil {
			t.Errorf("there is no schema %s", name)
		}
	}
	if r := s.get("DELETE", "/v1/fleet/view"); r.StatusCode != 405 || r.Header.Get("Allow") != "GET" {
		t.Errorf("DELETE: %s, Allow %q", r.Status, r.Header.Get("Allow"))
	}
}

// TestLeftAfterDone: a client that closes the connection at [DONE] has its whole answer, and the request
// counts as status 200.
func TestLeftAfterDone(t *testing.T) {
	a := newWorker(t, "a", false, nil)
	s := newStand(t, Config{}, a)
	s.ready(1)
	a.does(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(rw, "data: {}\n\ndata: [DONE]\n\n")
		rw.(http.Flusher).Flush()
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	res, err := http.Post(s.url+"/v1/completions", "application/json", strings.NewReader(body(8, `,"stream":true`)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(res.Body, make([]byte, len("data: {}\n\ndata: [DONE]\n\n"))); err != nil {
		t.Error(err)
	}
	s.idle() // released by [DONE], not by the end of the connection
	res.Body.Close()
	var v fleetview.State
	s.until("a request", func() bool {
		if err := json.Unmarshal([]byte(s.get("GET", "/v1/fleet/view").text), &v); err != nil {
			t.Fatal(err)
		}
		return len(v.Recent) == 1
	})
	if v.Recent[0].Status != 200 {
		t.Errorf("status %d, want 200", v.Recent[0].Status)
	}
}
