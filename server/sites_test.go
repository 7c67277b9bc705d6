package server

import (
	"strings"
	"testing"
)

// TestRebinding: a page under a name that resolves to this server can neither read nor change
// anything, at any path. An allowed name, or keys, admit it.
func TestRebinding(t *testing.T) {
	open := start(t, setup{Server: Config{Page: true, Pprof: true, AllowHosts: []string{"llm.example.com"}}})
	for _, route := range append(open.srv.Routes(), Route{"/", []string{"GET"}}, Route{"/v1/view", []string{"GET"}}, Route{"/nothing", []string{"GET"}}) {
		for _, method := range route.Methods {
			got := open.raw(method + " " + route.Path + " HTTP/1.1\r\nHost: evil.example:8080\r\nOrigin: http://evil.example:8080\r\nSec-Fetch-Site: same-origin\r\nConnection: close\r\n\r\n")
			if !strings.HasPrefix(got, "HTTP/1.1 403") || !strings.Contains(got, "--allow-host evil.example") {
				t.Errorf("%s %s: %.300q", method, route.Path, got)
			}
		}
	}
	keyed := start(t, setup{Server: Config{Keys: twoTenants}})
	for _, b := range []*bed{open, keyed} {
		for _, host := range []string{"localhost", "[::1]:8080", "LLM.example.com."} {
			if got := b.raw("GET /health HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 200") {
				t.Errorf("Host %s: %.300q", host, got)
			}
		}
	}
	if got := keyed.raw("GET /health HTTP/1.1\r\nHost: any.example\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 200") {
		t.Errorf("with keys, any name: %.300q", got)
	}
}

// TestCORS: pages of the configured origins may call and read answers, including errors; others
// may not.
func TestCORS(t *testing.T) {
	b := start(t, setup{Server: Config{CORS: []string{"https://app.example"}, Keys: twoTenants}})
	ask := func(method, origin, more string) string {
		body := `{"prompt":"x","max_tokens":1}`
		if method == "OPTIONS" {
			body = ""
		}
		return b.raw(method + " /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nSec-Fetch-Site: cross-site\r\nOrigin: " + origin + "\r\n" + more +
			post(len(body), body)[strings.Index(post(len(body), body), "Content-Length"):])
	}
	const key, preflight = "Authorization: Bearer secret-of-a\r\n", "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization,content-type\r\n"
	for _, tc := range []struct{ name, got, status, reads string }{
		{"the page", ask("POST", "https://app.example", key), "200", "https://app.example"},
		{"the page without a key", ask("POST", "https://app.example", ""), "401", "https://app.example"},
		{"its preflight, which has no key", ask("OPTIONS", "https://app.example", preflight), "204", "https://app.example"},
		{"another page", ask("POST", "https://evil.example", key), "403", ""},
		{"another's preflight", ask("OPTIONS", "https://evil.example", preflight), "403", ""},
	} {
		reads := strings.Contains(tc.got, "Access-Control-Allow-Origin: "+tc.reads+"\r\n")
		if !strings.HasPrefix(tc.got, "HTTP/1.1 "+tc.status) || tc.reads != "" && !reads || tc.reads == "" && strings.Contains(tc.got, "Access-Control-Allow") {
			t.Errorf("%s: %.500q", tc.name, tc.got)
		}
	}
	off := start(t, setup{})
	if got := off.raw("OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nOrigin: https://app.example\r\n" + preflight + "\r\n"); !strings.HasPrefix(got, "HTTP/1.1 405") || strings.Contains(got, "Access-Control") {
		t.Errorf("a preflight while CORS is off: %.300q", got)
	}
}
