package main

import (
	"net/http"
	"strings"
	"testing"
)

// TestRouteMemory checks that the process stays small when 64 long conversations arrive at a router whose memory has
// no room for all, and that each gets an answer.
func TestRouteMemory(t *testing.T) {
	worker := startCoppice(t, "worker", "serve", "--addr", "127.0.0.1:0", "--backend", "sim", "--no-page")
	p := startCoppice(t, "small", "route", "--addr", "127.0.0.1:0", "--no-page", "--worker", worker.url, "--events", "none", "--max-memory", "256MiB")
	untilFleet(t, p, map[string]string{worker.url: "healthy"})
	body := `{"max_tokens":1,"messages":[{"role":"user","content":"` + strings.Repeat("light ", 8<<20/6-100) + `"}]}`
	statuses := postAtOnce(t, p.url+"/v1/chat/completions", []byte(body), 64)
	if statuses["503"] == 0 || statuses["400"]+statuses["503"] != 64 {
		t.Errorf("answers: %v", statuses)
	}
	if status, text := p.completes(`{"max_tokens":1,"prompt":"` + strings.Repeat("light ", 8<<20/6-100) + `"}`); status != http.StatusBadRequest {
		t.Errorf("a long text afterwards: %d %s", status, text)
	}
	if status, text := p.completes(`{"prompt":"x","max_tokens":1}`); status != http.StatusOK {
		t.Errorf("afterwards: %d %s", status, text)
	}
	if most, ok := peakBytes(t, p.cmd.Process.Pid); ok && most > 320<<20 {
		t.Errorf("the process took %d bytes", most)
	}
}
