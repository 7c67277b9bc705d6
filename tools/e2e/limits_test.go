package e2e

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
)

// slow selects a simulated device whose steps take milliseconds, so that long requests run until the
// test ends them.
var slow = []string{"--backend", "sim", "--profile", "h200"}

// long starts a stream of many tokens and reads the first one. The caller ends it with Close.
func (p *process) long(ctx context.Context, tokens int64, opts ...option.RequestOption) *ssestream.Stream[openai.Completion] {
	p.t.Helper()
	s := p.client.Completions.NewStreaming(ctx, text("light", tokens), append(opts, endless)...)
	p.t.Cleanup(func() { s.Close() })
	if !s.Next() {
		p.t.Fatalf("a long stream does not begin: %v", detail(s.Err()))
	}
	return s
}

// TestFull checks that a full queue gives status 429 with Retry-After, and that the client retries by
// itself.
func TestFull(t *testing.T) {
	p := serve(t, append(slow, "--max-requests", "2")...)
	ctx := within(t)
	one, two := p.long(ctx, 10_000), p.long(ctx, 10_000)
	_, err := p.client.Completions.New(ctx, text("light", 2))
	e := refused(t, "at the door", err, http.StatusTooManyRequests, "", "server_busy")
	if e == nil {
		t.FailNow()
	}
	if n, err := strconv.Atoi(e.Response.Header.Get("Retry-After")); err != nil || n < 1 || n > 60 {
		t.Errorf("Retry-After is %q", e.Response.Header.Get("Retry-After"))
	}
	if e.Type != "rate_limit_error" {
		t.Errorf("type %q", e.Type)
	}
	stream := p.client.Completions.NewStreaming(ctx, text("light", 2))
	defer stream.Close()
	if stream.Next() {
		t.Error("a refused stream has something in it")
	}
	refused(t, "a stream at the door", stream.Err(), http.StatusTooManyRequests, "", "server_busy")

	tries := 0
	got, err := p.client.Completions.New(ctx, text("light", 2), endless, option.WithMaxRetries(5), option.WithMiddleware(func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		if tries++; tries == 2 {
			one.Close() // makes room, possibly with a delay
			p.until("one has left", func() bool { f := p.stats(p.client); return f.Running+f.Waiting == 1 })
		}
		resp, err := next(r)
		if tries == 1 && (err != nil || resp.StatusCode != http.StatusTooManyRequests) {
			t.Errorf("the first try got %v, %v", resp, err)
		}
		return resp, err
	}))
	if err != nil || got.Usage.CompletionTokens != 2 || tries < 2 { // there may be more tries than two
		t.Errorf("after %d tries %v, %v", tries, got, detail(err))
	}
	two.Close()
	p.quiet(p.client)
	if n := p.metric("coppice_request_errors_total", "code=server_busy"); n != float64(tries+1) {
		t.Errorf("metrics count %v refusals, want %d", n, tries+1)
	}
}

// TestTenantFull checks that a tenant's limit does not affect other tenants.
func TestTenantFull(t *testing.T) {
	dir := t.TempDir()
	keys, config := filepath.Join(dir, "keys"), filepath.Join(dir, "config.json")
	for file, body := range map[string]string{
		keys:   "acme: acme-secret admin\nzoo: zoo-secret\n",
		config: `{"api-key-file": ` + strconv.Quote(keys) + `, "tenants": {"zoo": {"max-queued": 1, "max-running": 1}}}`,
	} {
		if err := os.WriteFile(file, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := serve(t, append(slow, "--config", config)...)
	ctx := within(t)
	acme, _ := p.as("acme-secret")
	p.client, _ = p.as("zoo-secret")
	running := p.long(ctx, 10_000)
	waits, cancel := context.WithCancel(ctx)
	var waited atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := p.client.Completions.New(waits, text("light", 2))
		waited.Store(errors.Is(err, context.Canceled))
	}()
	p.until("one waits", func() bool { return p.stats(acme).Waiting == 1 })
	_, err := p.client.Completions.New(ctx, text("light", 2))
	e := refused(t, "a third of zoo", err, http.StatusTooManyRequests, "", "rate_limit_exceeded")
	if e != nil && e.Response.Header.Get("Retry-After") == "" {
		t.Error("429 without Retry-After")
	}
	if _, err := acme.Completions.New(ctx, text("light", 2)); err != nil {
		t.Errorf("acme is not full: %v", detail(err))
	}
	cancel()
	<-done
	if !waited.Load() {
		t.Error("the one that waited did not wait until it was cancelled")
	}
	running.Close()
	p.quiet(acme)
}

// TestTimeouts tests the timeout of a request, the timeout in the queue and the client's.
func TestTimeouts(t *testing.T) {
	p := serve(t, append(slow, "--max-running", "1")...)
	ctx := within(t)
	_, err := p.client.Completions.New(ctx, text("light", 10_000), endless, option.WithJSONSet("coppice", map[string]any{"timeout": 0.05}))
	refused(t, "a deadline", err, http.StatusRequestTimeout, "", "deadline_exceeded")

	var s *ssestream.Stream[openai.Completion]
	for limit := 1; ; limit *= 2 { // until it begins in time
		s = p.client.Completions.NewStreaming(ctx, text("light", 10_000), endless, option.WithJSONSet("coppice", map[string]any{"timeout": limit}))
		defer s.Close()
		if s.Next() {
			break
		}
		refused(t, "a deadline", s.Err(), http.StatusRequestTimeout, "", "deadline_exceeded")
	}
	for s.Next() {
	}
	late := (*ssestream.StreamError)(nil)
	if !errors.As(s.Err(), &late) {
		t.Fatalf("a stream past its deadline ends with %v", s.Err())
	}
	if code := extra[map[string]any](t, string(late.Event.Data), "error")["code"]; code != "deadline_exceeded" {
		t.Errorf("the last event is %s", late.Event.Data)
	}

	running := p.long(ctx, 10_000)
	_, err = p.client.Completions.New(ctx, text("light", 2), option.WithJSONSet("coppice", map[string]any{"queue_timeout": 0.05}))
	refused(t, "a queue", err, http.StatusRequestTimeout, "", "queue_timeout")
	running.Close()
	p.quiet(p.client)

	gone := p.metric("coppice_client_disconnects_total")
	var sent atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(i httptrace.WroteRequestInfo) { sent.Store(i.Err == nil) }})
	for limit := 50 * time.Millisecond; !sent.Load(); limit *= 2 { // until it is sent in time
		if _, err := p.client.Completions.New(traced, text("light", 10_000), endless, option.WithRequestTimeout(limit)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("the client's own timeout: %v", err)
		}
	}
	p.quiet(p.client)
	// More than one if a request was sent just when its time was over.
	p.until("the client is seen to have left", func() bool { return p.metric("coppice_client_disconnects_total") > gone })
}

// TestMaxTimeout tests the server's own limit, which a request can't raise.
func TestMaxTimeout(t *testing.T) {
	p := serve(t, append(slow, "--max-timeout", "100ms")...)
	for _, opts := range [][]option.RequestOption{{endless}, {endless, option.WithJSONSet("coppice", map[string]any{"timeout": 3600})}} {
		_, err := p.client.Completions.New(within(t), text("light", 10_000), opts...)
		refused(t, "beyond the server's limit", err, http.StatusRequestTimeout, "", "deadline_exceeded")
	}
	p.quiet(p.client)
}

// TestPriority checks that the waiting request with the higher priority runs first. A request runs alone and
// ends only after its name is in order.
func TestPriority(t *testing.T) {
	p := serve(t, append(slow, "--max-running", "1", "--policy", "priority", "--preempt-threshold", "100")...) // none preempts another
	ctx := within(t)
	running := p.long(ctx, 10_000)
	order := make(chan string, 2)
	ask := func(name string, priority, waiting int) {
		go func() {
			s := p.client.Completions.NewStreaming(ctx, text(name, 10_000), endless, option.WithJSONSet("priority", priority))
			defer s.Close()
			if !s.Next() {
				t.Errorf("%s: %v", name, detail(s.Err()))
			}
			order <- name
		}()
		p.until(name+" waits", func() bool { return p.stats(p.client).Waiting == waiting })
	}
	ask("low", 1, 1)
	ask("high", 9, 2)
	running.Close()
	if first, second := <-order, <-order; first != "high" || second != "low" {
		t.Errorf("%s was before %s", first, second)
	}
	p.quiet(p.client)
}
