package server

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/scheduler"
)

// TestStatsOfATenant: a key without admin rights sees its own tenant's totals, and nothing of other
// tenants or of the node.
func TestStatsOfATenant(t *testing.T) {
	b := start(t, setup{Server: Config{Keys: twoTenants, TenantLabels: 1}})
	ask := `{"prompt":"` + strings.Repeat("light ", 40) + `","max_tokens":2,"ignore_eos":true}`
	for key, n := range map[string]int{"secret-of-a": 2, "secret-of-b": 1} {
		b.key = key
		for range n {
			b.ask("/v1/completions", ask)
		}
	}
	stats := func(key string) (all map[string]any) {
		b.key = key
		b.ok(json.Unmarshal(b.do("GET", "/v1/cache/stats", "").body, &all))
		return all
	}
	a, other, all := stats("secret-of-a"), stats("secret-of-b"), stats("secret-of-root")
	if a["requests"] != 2.0 || a["output_tokens"] != 4.0 || a["cached_tokens"].(float64) == 0 ||
		a["prompt_tokens"] != 2*other["prompt_tokens"].(float64) || a["hit_rate"].(float64) < 0.4 {
		t.Errorf("a sees %v", a)
	}
	if other["requests"] != 1.0 || other["cached_tokens"] != 0.0 || other["output_tokens"] != 2.0 {
		t.Errorf("b sees %v", other)
	}
	if all["requests"] != 3.0 || all["pool_pages"] == nil {
		t.Errorf("an admin sees %v", all)
	}
	for name := range a {
		switch name {
		case "running", "waiting", "requests", "prompt_tokens", "cached_tokens", "hit_rate", "output_tokens", "served_tokens", "share_left":
		default:
			t.Errorf("a tenant sees %s", name)
		}
	}
}

// TestStreamsOfOtherSites: a page of another site can't fill a keyless server's places for watchers, by
// <img> or frames; the server's own page, programs and allowed pages can watch.
func TestStreamsOfOtherSites(t *testing.T) {
	b := start(t, setup{Server: Config{Page: true, CORS: []string{"https://app.example"}}})
	open := func(path string, header ...string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), "GET", b.url+path, nil)
		b.ok(err)
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		res, err := b.client.Do(req)
		b.ok(err)
		t.Cleanup(func() { res.Body.Close() })
		return res
	}
	for range 64 {
		for _, site := range []string{"cross-site", "same-site"} {
			res := open("/v1/view/stream", "Sec-Fetch-Site", site, "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image")
			if res.StatusCode != 403 {
				t.Fatalf("an image of a page, %s: %s", site, res.Status)
			}
		}
	}
	for name, header := range map[string][]string{
		"a program": nil, "its page": {"Sec-Fetch-Site", "same-origin"}, "an address that was typed": {"Sec-Fetch-Site", "none"},
		"an allowed page": {"Sec-Fetch-Site", "cross-site", "Origin", "https://app.example"},
	} {
		for _, path := range []string{"/v1/view/stream", "/v1/view"} {
			if res := open(path, header...); res.StatusCode != 200 {
				t.Errorf("%s, %s: %s", name, path, res.Status)
			}
		}
	}
	if res := open("/v1/view/stream", "Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example"); res.StatusCode != 403 {
		t.Errorf("another page: %s", res.Status)
	}
	if res := open("/", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"); res.StatusCode != 200 {
		t.Errorf("a link to the page: %s", res.Status)
	}
}

// TestChoicesOfTheNode: the document and the refusal name the limit of the node where it is the lower
// one.
func TestChoicesOfTheNode(t *testing.T) {
	b := start(t, setup{Node: coppice.Config{Scheduler: scheduler.Config{MaxSamples: 3}}})
	if text := string(b.do("GET", "/openapi.json", "").body); !strings.Contains(text, `"maximum": 3`) {
		t.Error("the document lacks the limit")
	}
	b.ask("/v1/completions", `{"prompt":"x","n":3,"max_tokens":1}`)
	b.ask("/v1/completions", `{"prompt":["x","y"],"n":3,"max_tokens":1}`)
	a := b.refused("POST", "/v1/completions", `{"prompt":"x","n":4,"max_tokens":1}`, 400, "too_many_choices")
	if !strings.Contains(string(a.body), "n is 4, want at most 3") {
		t.Errorf("%s", a.body)
	}
}
