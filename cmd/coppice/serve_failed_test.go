package main

import (
	"errors"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// poisoned starts a server whose simulated device fails on a prompt with token 7.
func poisoned(t *testing.T, grace string) *process {
	return startCoppice(t, "poisoned", "serve", "--addr", "127.0.0.1:0", "--backend", "sim", "--no-page", "--sim-poison", "7", "--failed-grace", grace)
}

// completes posts a completion and returns status and body.
func (p *process) completes(body string) (int, string) {
	p.Helper()
	res, err := asker.Post(p.url+"/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		p.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		p.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// failed checks that the process exits with the status of a failed node and logs the cause.
func (p *process) failed() {
	p.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.Fatal("the process keeps running")
	}
	var exit *exec.ExitError
	if !errors.As(p.err, &exit) || exit.ExitCode() != 3 {
		p.Errorf("it ended with %v, want exit status 3", p.err)
	}
	for _, want := range []string{`"msg":"the node has failed"`, "a prompt has the token of --sim-poison"} {
		if !strings.Contains(p.said.String(), want) {
			p.Errorf("the log lacks %s:\n%s", want, p.said)
		}
	}
}

// TestServeFailedGrace checks that a process whose node has failed logs the cause, answers 503
// with the code of the error for the grace period, which a signal ends, and exits with
// status 3.
func TestServeFailedGrace(t *testing.T) {
	t.Parallel()
	p := poisoned(t, "1h")
	if status, body := p.completes(`{"prompt":[5,6],"max_tokens":1}`); status != 200 {
		t.Fatalf("a sound request: %d %s", status, body)
	}
	for _, body := range []string{`{"prompt":[5,7],"max_tokens":1}`, `{"prompt":[5,6],"max_tokens":1}`, `{"prompt":[5,6],"max_tokens":1,"stream":true}`} {
		if status, text := p.completes(body); status != http.StatusServiceUnavailable || !strings.Contains(text, `"code":"device_failed"`) {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
	for _, path := range []string{"/health", "/ready"} {
		res, err := asker.Get(p.url + path)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("%s: %s", path, res.Status)
		}
	}
	p.signal(syscall.SIGTERM)
	p.failed()
}

// TestServeFailedExits checks that without a signal the process exits after the grace period,
// and that the request on which the node failed is answered even if that period is 0.
func TestServeFailedExits(t *testing.T) {
	t.Parallel()
	p := poisoned(t, "0s")
	if status, body := p.completes(`{"prompt":[7],"max_tokens":1}`); status != http.StatusServiceUnavailable || !strings.Contains(body, `"code":"device_failed"`) {
		t.Errorf("the request that it died of: %d %s", status, body)
	}
	p.failed()
}
