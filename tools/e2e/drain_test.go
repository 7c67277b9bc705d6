package e2e

import (
	"errors"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
)

// TestDrain sends SIGTERM while streams run and other requests wait. All of them must end normally;
// later requests are refused with status 503.
func TestDrain(t *testing.T) {
	p := serve(t, append(slow, "--max-running", "3")...)
	ctx := within(t)
	held := p.long(ctx, 10_000) // keeps the server draining until the test closes it
	const tokens = 400          // some seconds
	one, two := p.long(ctx, tokens), p.long(ctx, tokens)
	waited := make(chan error, 1)
	go func() {
		got, err := p.client.Completions.New(ctx, text("later", 4), endless)
		if err == nil && got.Usage.CompletionTokens != 4 {
			err = errors.New("the one that waited got " + got.RawJSON())
		}
		waited <- err
	}()
	p.until("one waits, or has had its turn", func() bool { return p.stats(p.client).Waiting == 1 || len(waited) == 1 })
	p.signal(syscall.SIGTERM)
	p.until("it drains", func() bool { return strings.Contains(p.log.String(), `"draining"`) })
	p.until("it is not ready", func() bool { return p.status("/ready") == http.StatusServiceUnavailable })
	if status := p.status("/health"); status != http.StatusOK {
		t.Errorf("/health has status %d while it drains", status)
	}
	_, err := p.client.Completions.New(ctx, text("late", 4))
	if e := refused(t, "a late one", err, http.StatusServiceUnavailable, "", "shutting_down"); e != nil && e.Response.Header.Get("Retry-After") == "" {
		t.Error("503 without Retry-After")
	}
	held.Close()
	for name, s := range map[string]*ssestream.Stream[openai.Completion]{"one": one, "two": two} {
		finish := ""
		for s.Next() {
			for _, c := range s.Current().Choices {
				finish += string(c.FinishReason)
			}
		}
		if s.Err() != nil || finish != "length" {
			t.Errorf("%s ended with %q, %v", name, finish, s.Err())
		}
	}
	if err := <-waited; err != nil {
		t.Errorf("the one that waited: %v", detail(err))
	}
	p.wait()
}

// TestDrainLimit checks that requests which exceed the time limit of draining end with an error that
// names the reason.
func TestDrainLimit(t *testing.T) {
	p := serve(t, append(slow, "--drain", "100ms")...)
	ctx := within(t)
	s := p.long(ctx, 10_000)
	whole := make(chan error, 1)
	go func() {
		_, err := p.client.Completions.New(ctx, text("light", 10_000), endless, option.WithMaxRetries(0))
		whole <- err
	}()
	p.until("both run", func() bool { return p.stats(p.client).Running == 2 })
	p.signal(syscall.SIGTERM)
	for s.Next() {
	}
	p.endedBy(s.Err())
	refused(t, "a whole answer", <-whole, http.StatusServiceUnavailable, "", "shutting_down")
	p.wait()
}

// TestSecondSignal checks that a second signal ends the server at once, with a log line.
func TestSecondSignal(t *testing.T) {
	p := serve(t, append(slow, "--drain", "10m")...)
	s := p.long(within(t), 10_000)
	p.signal(syscall.SIGINT)
	p.until("it drains", func() bool { return strings.Contains(p.log.String(), `"draining"`) })
	p.signal(syscall.SIGTERM)
	for s.Next() {
	}
	p.endedBy(s.Err())
	p.wait()
}

// endedBy checks that a stream's last event is the error of a server that shuts down.
func (p *process) endedBy(err error) {
	p.t.Helper()
	last := (*ssestream.StreamError)(nil)
	if !errors.As(err, &last) {
		p.t.Errorf("the stream ended with %v, want an event with an error", err)
		return
	}
	if e := extra[map[string]any](p.t, string(last.Event.Data), "error"); e["code"] != "shutting_down" {
		p.t.Errorf("the last event is %s", last.Event.Data)
	}
}
