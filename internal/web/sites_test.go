package web

import (
	"bufio"
	"net/http"
	"strings"
	"testing"
)

func policy(t *testing.T, cfg SitesConfig) *Sites {
	t.Helper()
	p, err := NewSites(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// read parses a request as a server does.
func read(t *testing.T, text string) *http.Request {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(strings.ReplaceAll(text, "\n", "\r\n") + "\r\n\r\n")))
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return r
}

// TestHosts checks that a server without keys answers to addresses, localhost and the allowed names,
// in any spelling, and to no others.
func TestHosts(t *testing.T) {
	p := policy(t, SitesConfig{AllowHosts: []string{"LLM.example.com.", "*.lab.example"}})
	for text, want := range map[string]bool{
		"GET / HTTP/1.1\nHost: 127.0.0.1":                                        true,
		"GET / HTTP/1.1\nHost: 127.0.0.1:8080":                                   true,
		"GET / HTTP/1.1\nHost: 10.1.2.3:80":                                      true,
		"GET / HTTP/1.1\nHost: [::1]":                                            true,
		"GET / HTTP/1.1\nHost: [::1]:8080":                                       true,
		"GET / HTTP/1.1\nHost: [fe80::1%25eth0]:8080":                            true,
		"GET / HTTP/1.1\nHost: localhost":                                        true,
		"GET / HTTP/1.1\nHost: localhost:8080":                                   true,
		"GET / HTTP/1.1\nHost: LocalHost.:8080":                                  true,
		"GET / HTTP/1.1\nHost: llm.example.com":                                  true,
		"GET / HTTP/1.1\nHost: llm.EXAMPLE.com.:443":                             true,
		"GET / HTTP/1.1\nHost: a.lab.example":                                    true,
		"GET / HTTP/1.1\nHost: a.b.lab.example:1":                                true,
		"GET / HTTP/1.0":                                                         true,
		"GET / HTTP/1.0\nX-Forwarded-Host: evil.example":                         true,
		"GET http://127.0.0.1/ HTTP/1.1\nHost: evil.example":                     true, // the target's counts, RFC 9112 section 3.2.2; no page can send this
		"GET http://evil.example/ HTTP/1.1\nHost: 127.0.0.1":                     false,
		"GET / HTTP/1.1\nHost: evil.example":                                     false,
		"GET / HTTP/1.1\nHost: evil.example:8080":                                false,
		"GET / HTTP/1.1\nHost: evil.example\nX-Forwarded-Host: 127.0.0.1":        false,
		"GET / HTTP/1.1\nHost: evil.example\nForwarded: host=localhost":          false,
		"GET / HTTP/1.1\nHost: localhost.evil.example":                           false,
		"GET / HTTP/1.1\nHost: evil.localhost":                                   false,
		"GET / HTTP/1.1\nHost: 127.0.0.1.evil.example":                           false,
		"GET / HTTP/1.1\nHost: 2130706433":                                       false, // browsers write it 127.0.0.1
		"GET / HTTP/1.1\nHost: 0x7f.1":                                           false,
		"GET / HTTP/1.1\nHost: localhost@evil.example":                           false,
		"GET / HTTP/1.1\nHost: localhost..":                                      false,
		"GET / HTTP/1.1\nHost: localhost:80:80":                                  false,
		"GET / HTTP/1.1\nHost: localhost:x":                                      false,
		"GET / HTTP/1.1\nHost: lab.example":                                      false,
		"GET / HTTP/1.1\nHost: .lab.example":                                     false,
		"GET / HTTP/1.1\nHost: evillab.example":                                  false,
		"GET / HTTP/1.1\nHost: llm.example.com.evil.example":                     false,
		"GET / HTTP/1.1\nHost: [::1":                                             false,
		"GET / HTTP/1.1\nHost: localhost\nOrigin: http://localhost":              true,
		"POST / HTTP/1.1\nHost: evil.example:80\nOrigin: http://evil.example:80": false, // DNS rebinding
	} {
		r := read(t, text)
		_, refusal := p.Check(http.Header{}, r)
		if (refusal == nil) != want {
			t.Errorf("%q: %v, want it let in: %v", text, refusal, want)
		}
		if refusal != nil && (refusal.Code != "unknown_host" || !strings.Contains(refusal.Message, "--allow-host")) {
			t.Errorf("%q: %v", text, refusal)
		}
	}
	if _, refusal := policy(t, SitesConfig{AnyHost: true}).Check(http.Header{}, read(t, "GET / HTTP/1.1\nHost: evil.example")); refusal != nil {
		t.Errorf("a server with keys answers to any name, and %v", refusal)
	}
}

// TestOrigins checks which pages may send requests and which may read responses.
func TestOrigins(t *testing.T) {
	const off, app, all = 0, 1, 2
	policies := []*Sites{policy(t, SitesConfig{}), policy(t, SitesConfig{Origins: []string{"https://APP.example:443", "http://localhost:3000"}}), policy(t, SitesConfig{Origins: []string{"*"}})}
	ask := "OPTIONS / HTTP/1.1\nHost: localhost\nAccess-Control-Request-Method: POST\nAccess-Control-Request-Headers: authorization, x-stainless-os, b@d\nOrigin: "
	for _, tc := range []struct {
		name      string
		policy    int
		send      string
		sent      bool
		preflight bool
		reads     string // Access-Control-Allow-Origin
	}{
		{"a program", off, "POST / HTTP/1.1\nHost: localhost", true, false, ""},
		{"the server's own page", off, "POST / HTTP/1.1\nHost: localhost\nOrigin: http://localhost\nSec-Fetch-Site: same-origin", true, false, ""},
		{"another page", off, "POST / HTTP/1.1\nHost: localhost\nOrigin: https://app.example\nSec-Fetch-Site: cross-site", false, false, ""},
		{"another port", off, "POST / HTTP/1.1\nHost: localhost\nOrigin: http://localhost:3000\nSec-Fetch-Site: same-site", false, false, ""},
		{"an old browser", off, "POST / HTTP/1.1\nHost: localhost\nOrigin: https://app.example", false, false, ""},
		{"no origin that can be told", off, "POST / HTTP/1.1\nHost: localhost\nOrigin: null", false, false, ""},
		{"a page that looks", off, "GET / HTTP/1.1\nHost: localhost\nOrigin: https://app.example\nSec-Fetch-Site: cross-site", true, false, ""},
		{"a preflight while it is off", off, ask + "https://app.example", true, false, ""},
		{"the allowed page", app, "POST / HTTP/1.1\nHost: localhost\nOrigin: https://app.example\nSec-Fetch-Site: cross-site", true, false, "https://app.example"},
		{"the other allowed one", app, "GET / HTTP/1.1\nHost: localhost\nOrigin: http://localhost:3000", true, false, "http://localhost:3000"},
		{"its preflight", app, ask + "https://app.example", true, true, "https://app.example"},
		{"a page with the allowed one's beginning", app, "POST / HTTP/1.1\nHost: localhost\nOrigin: https://app.example.evil", false, false, ""},
		{"another scheme", app, "POST / HTTP/1.1\nHost: localhost\nOrigin: http://app.example", false, false, ""},
		{"a preflight of another", app, ask + "https://evil.example", false, false, ""},
		{"OPTIONS that is no preflight", app, "OPTIONS / HTTP/1.1\nHost: localhost\nOrigin: https://app.example", true, false, "https://app.example"},
		{"any page", all, "POST / HTTP/1.1\nHost: localhost\nOrigin: https://evil.example\nSec-Fetch-Site: cross-site", true, false, "*"},
		{"any preflight", all, ask + "https://evil.example", true, true, "*"},
		{"any page, by a name that was rebound", all, "POST / HTTP/1.1\nHost: evil.example\nOrigin: https://evil.example", false, false, ""},
	} {
		h := http.Header{}
		preflight, refusal := policies[tc.policy].Check(h, read(t, tc.send))
		if (refusal == nil) != tc.sent || preflight != tc.preflight || h.Get("Access-Control-Allow-Origin") != tc.reads {
			t.Errorf("%s: preflight %v, %v, %v", tc.name, preflight, refusal, h)
		}
		if tc.preflight && (h.Get("Access-Control-Allow-Methods") != "POST" || h.Get("Access-Control-Allow-Headers") != "authorization, x-stainless-os") {
			t.Errorf("%s: %v", tc.name, h)
		}
		if tc.policy != off && !strings.Contains(strings.Join(h.Values("Vary"), ", "), "Origin") && h.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: a cache may give the answer to others: %v", tc.name, h)
		}
	}
}

// TestFaults checks that New reports every invalid host and origin.
func TestFaults(t *testing.T) {
	_, err := NewSites(SitesConfig{
		AllowHosts: []string{"", "http://x", "a b", "*", "*.", "x/y", "*.*.x"},
		Origins:    []string{"", "app.example", "https://", "https://x/", "https://x?y", "ftp://x", "null", "https://u@x"},
	})
	if err == nil || len(strings.Split(err.Error(), "\n")) != 15 {
		t.Errorf("%v", err)
	}
	policy(t, SitesConfig{AllowHosts: []string{"x:80", "[::1]:80", "a_b"}, Origins: []string{"https://x:8443"}})
}
