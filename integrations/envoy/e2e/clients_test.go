package e2e

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestClients has OpenAI's client for Python chat, stream and call tools through both listeners. The cases are those of tools/e2e.
func TestClients(t *testing.T) {
	if *clients == "" {
		t.Skip("needs OpenAI's client: python3 tools/e2e/clients/install.py DIR, then -clients DIR")
	}
	s := newStand(t, nil, []string{"--default-max-tokens", "600"}, nil)
	for name, at := range map[string]string{"exact": s.exact, "open": s.open} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(filepath.Join(*clients, "py/bin/python"), "../../../tools/e2e/clients/clients.py",
				"--url", withoutCase(t, at), "--model", "demo", "--retry", "openai")
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			cases := 0
			for line := range strings.Lines(string(out)) {
				var r struct {
					Case, Cell, Got, Version string
					Valid                    bool
				}
				if err := json.Unmarshal([]byte(line), &r); err != nil || !r.Valid || r.Cell != "yes" {
					t.Errorf("%v: %s", err, line)
				}
				cases++
				t.Logf("openai %s: %s: %.80q", r.Version, r.Case, r.Got)
			}
			if cases != 7 {
				t.Errorf("%d cases, want 7", cases)
			}
		})
	}
	s.idle()
}

// withoutCase starts a server that passes requests for http://HOST/CLIENT/CASE/PATH on as those for PATH, and returns its URL.
func withoutCase(t *testing.T, to string) string {
	t.Helper()
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		if parts := strings.SplitN(r.In.URL.Path, "/", 4); len(parts) == 4 {
			r.Out.URL.Path = "/" + parts[3]
		}
	}, ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
		http.Error(w, err.Error(), http.StatusBadGateway)
	}})
	t.Cleanup(s.Close)
	return s.URL
}
