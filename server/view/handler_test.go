package view

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"
	"time"
)

// byKey gives full access to "Bearer all" and redacted access to "Bearer some".
func byKey(r *http.Request) (Access, string) {
	switch r.Header.Get("Authorization") {
	case "Bearer all":
		return Full, "all"
	case "Bearer some":
		return Redacted, "some"
	}
	return Denied, ""
}

func serve(t *testing.T, cfg Config) (*Feed, func(path, key string) *http.Response) {
	t.Helper()
	cfg.Period = 10 * time.Millisecond
	f := NewFeed(cfg)
	s := httptest.NewServer(Handler(f))
	t.Cleanup(func() {
		f.Close()
		s.Close()
	})
	return f, func(path, key string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if key != "" {
			req.Header.Set("Authorization", "Bearer "+key)
		}
		answer, err := s.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { answer.Body.Close() })
		return answer
	}
}

func TestAccess(t *testing.T) {
	_, get := serve(t, Config{Source: &fake{}, Access: byKey})
	for _, path := range []string{"/v1/view", "/v1/view/stream"} {
		answer := get(path, "wrong")
		var body struct {
			Error struct{ Message, Type, Code string }
		}
		if err := json.NewDecoder(answer.Body).Decode(&body); err != nil || answer.StatusCode != 401 || answer.Header.Get("WWW-Authenticate") == "" ||
			body.Error.Code != "invalid_api_key" || !strings.Contains(body.Error.Message, "Authorization") {
			t.Errorf("%s: %d, %v, %+v", path, answer.StatusCode, err, body)
		}
	}
	for key, redacted := range map[string]bool{"all": false, "some": true} {
		answer := get("/v1/view", key)
		text, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != 200 || answer.Header.Get("Content-Type") != "application/json" {
			t.Fatalf("%s: %d, %v", key, answer.StatusCode, err)
		}
		if s := decode(t, text); s.Server.Redacted != redacted || s.Schema != Schema || (len(s.Running) == 0) != redacted {
			t.Errorf("%s: %+v", key, s)
		}
	}
	if answer := get("/", ""); answer.StatusCode != 200 {
		t.Errorf("the page itself: %d", answer.StatusCode)
	}
}

func TestStreamIsEventsOfStates(t *testing.T) {
	f, get := serve(t, Config{Source: &fake{tree: grown(50, 2)}})
	answer := get("/v1/view/stream", "")
	if answer.StatusCode != 200 || answer.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d, %v", answer.StatusCode, answer.Header)
	}
	in := bufio.NewReader(answer.Body)
	last := int64(0)
	for range 3 {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if empty, err := in.ReadString('\n'); !ok || err != nil || empty != "\n" {
			t.Fatalf("%.60q, then %q, %v", line, empty, err)
		}
		s := decode(t, []byte(data))
		if s.AtMillis <= last || len(s.Tree.Shown) != 50 {
			t.Errorf("at %d after %d, %d nodes", s.AtMillis, last, len(s.Tree.Shown))
		}
		last = s.AtMillis
	}
	f.Close()
	if _, err := io.ReadAll(in); err != nil {
		t.Errorf("at the end: %v", err)
	}
	if answer := get("/v1/view", ""); answer.StatusCode != 503 || answer.Header.Get("Retry-After") == "" {
		t.Errorf("after Close: %d", answer.StatusCode)
	}
}

func TestTooManyWatchersAreRefused(t *testing.T) {
	f, get := serve(t, Config{Source: &fake{}, MaxWatchers: 1})
	w, err := f.Watch(Full, "")
	if err != nil {
		t.Fatal(err)
	}
	if answer := get("/v1/view", ""); answer.StatusCode != 503 {
		t.Errorf("%d", answer.StatusCode)
	}
	w.Close()
	if answer := get("/v1/view", ""); answer.StatusCode != 200 {
		t.Errorf("when there is room: %d", answer.StatusCode)
	}
}

// TestStreamsEndWithTheirRequests: a stream whose reader has disconnected is no longer a
// watcher.
func TestStreamsEndWithTheirRequests(t *testing.T) {
	f := NewFeed(Config{Source: &fake{}})
	defer f.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	Handler(f).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/v1/view/stream", nil))
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.watchers) != 0 {
		t.Errorf("%d watch", len(f.watchers))
	}
}

func TestHeadOfAStreamEnds(t *testing.T) {
	f := NewFeed(Config{Source: &fake{}})
	defer f.Close()
	answer := httptest.NewRecorder()
	Handler(f).ServeHTTP(answer, httptest.NewRequest("HEAD", "/v1/view/stream", nil))
	if answer.Code != 200 || answer.Header().Get("Content-Type") != "text/event-stream" || answer.Body.Len() > 0 {
		t.Errorf("%d, %v, %d bytes", answer.Code, answer.Header(), answer.Body.Len())
	}
}

// TestPageIsWhole: the page loads nothing from elsewhere and runs no inline code, as its policy
// demands, and all files that it names exist.
func TestPageIsWhole(t *testing.T) {
	_, get := serve(t, Config{Source: &fake{}})
	answer := get("/", "")
	html, _ := io.ReadAll(answer.Body)
	if p := answer.Header.Get("Content-Security-Policy"); !strings.Contains(p, "default-src 'none'") || strings.Contains(p, "unsafe") {
		t.Errorf("policy %q", p)
	}
	if bad := regexp.MustCompile(`<script>|<style| style=| onclick=| onload=`).FindString(string(html)); bad != "" {
		t.Errorf("the page has %s", bad)
	}
	ids := map[string]bool{}
	for _, m := range regexp.MustCompile(` id="([^"]+)"`).FindAllStringSubmatch(string(html), -1) {
		if ids[m[1]] {
			t.Errorf("id %s occurs twice", m[1])
		}
		ids[m[1]] = true
	}
	named := map[string]bool{"page.html": true}
	for _, m := range regexp.MustCompile(`(?:src|href)="([^"]+)"`).FindAllStringSubmatch(string(html), -1) {
		named[path.Base(m[1])] = true
	}
	types := map[string]string{".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": "text/html"}
	files, err := fs.ReadDir(page, "page")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		answer := get("/page/"+file.Name(), "")
		text, _ := io.ReadAll(answer.Body)
		if want := types[path.Ext(file.Name())]; answer.StatusCode != 200 && answer.StatusCode != 301 || file.Name() != "page.html" && !strings.HasPrefix(answer.Header.Get("Content-Type"), want) {
			t.Errorf("%s: %d, %s", file.Name(), answer.StatusCode, answer.Header.Get("Content-Type"))
		}
		for _, m := range regexp.MustCompile(`https?://[^"' )]+`).FindAllString(string(text), -1) {
			if m != "http://www.w3.org/2000/svg" { // an XML namespace, never loaded
				t.Errorf("%s names %s", file.Name(), m)
			}
		}
		if path.Ext(file.Name()) != ".js" {
			continue
		}
		for _, m := range regexp.MustCompile(`from "\./([^"]+)"`).FindAllStringSubmatch(string(text), -1) {
			named[m[1]] = true
		}
		for _, m := range regexp.MustCompile(`\$\("([^"]+)"\)`).FindAllStringSubmatch(string(text), -1) {
			if !ids[m[1]] {
				t.Errorf("%s asks for #%s, which the page lacks", file.Name(), m[1])
			}
		}
		if strings.Contains(string(text), "innerHTML") || strings.Contains(string(text), "eval(") {
			t.Errorf("%s makes markup or code of text", file.Name())
		}
	}
	all := []string{"base.css", "format.js", "theme.js", "icon.svg"} // shared by all pages
	for _, file := range files {
		all = append(all, file.Name())
	}
	for _, name := range all {
		if status := get("/page/"+name, "").StatusCode; !named[name] || status >= 400 {
			t.Errorf("%s: %d, loaded %v", name, status, named[name])
		}
		delete(named, name)
	}
	if len(named) > 0 {
		t.Errorf("these are not there: %v", named)
	}
	if get("/page/../feed.go", "").StatusCode == 200 {
		t.Error("a source file is served")
	}
}
