package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestServeTenants checks that tenants named by keys get fair shares (DLPM) unless another
// policy is given. A tenant without open requests is listed under DLPM only, with its debt.
func TestServeTenants(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte("acme: the-key-of-acme\nroot: the-key-of-root admin\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		flags []string
		fair  bool
	}{{nil, true}, {[]string{"--policy", "fcfs"}, false}} {
		w := startCoppice(t, "worker", append([]string{"serve", "--addr", "127.0.0.1:0", "--backend", "sim", "--profile", "h200", "--no-page", "--api-key-file", keys}, tc.flags...)...)
		ask := func(method, path, key, body string) *http.Response {
			t.Helper()
			req, err := http.NewRequest(method, w.url+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+key)
			req.Header.Set("Content-Type", "application/json")
			res, err := asker.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { res.Body.Close() })
			if res.StatusCode != http.StatusOK {
				t.Fatalf("%s: status %d", path, res.StatusCode)
			}
			return res
		}
		ask("POST", "/v1/completions", "the-key-of-acme", `{"prompt":"What is light?","max_tokens":4}`)
		var stats struct {
			Tenants []struct {
				Tenant    string
				ShareLeft int `json:"share_left"`
			}
		}
		if err := json.NewDecoder(ask("GET", "/v1/cache/stats", "the-key-of-root", "").Body).Decode(&stats); err != nil {
			t.Fatal(err)
		}
		if fair := len(stats.Tenants) == 1 && stats.Tenants[0].Tenant == "acme" && stats.Tenants[0].ShareLeft != 0; fair != tc.fair {
			t.Errorf("with flags %q: %+v, fair shares should be %t", tc.flags, stats.Tenants, tc.fair)
		}
		w.kill()
	}
}
