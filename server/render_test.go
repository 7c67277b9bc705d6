package server

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// template parses a template with limits of its own.
func (b *bed) template(text string, limits chat.Limits) *chat.Template {
	b.Helper()
	tmpl, err := chat.NewNamed(map[string]string{"default": text}, nil, limits)
	b.ok(err)
	return tmpl
}

const askChat = `{"messages":[{"role":"user","content":"\"\\ x"}],"max_tokens":1}`

// TestRendersTakeTurns: as many conversations are rendered at a time as there are processors. Further ones
// wait for a bounded time, other requests don't. A rendering ends when its client has gone.
func TestRendersTakeTurns(t *testing.T) {
	endless := (&bed{TB: t}).template(`{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}`, chat.Limits{Steps: 2_000_000_000})
	b := start(t, setup{Node: coppice.Config{Memory: coppice.NewMemory(1 << 50)}, Server: Config{Template: endless, BusyWait: time.Millisecond}})
	ctx, leave := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		clients.Go(func() {
			if a, err := b.try(ctx, "POST", "/v1/chat/completions", askChat); err == nil {
				t.Errorf("an endless template was rendered: %s", a.Status)
			}
		})
	}
	b.until(func(*coppice.Stats) bool { return len(b.srv.renders) == runtime.GOMAXPROCS(0) })
	if a := b.refused("POST", "/v1/chat/completions", askChat, 503, "server_busy"); a.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	b.ask("/v1/completions", `{"prompt":"x","max_tokens":1}`)
	leave()
	clients.Wait()
	b.until(func(*coppice.Stats) bool { return len(b.srv.renders) == 0 && b.unused() == 0 })
}

// TestHostileTemplate: a template that makes its text longer and longer ends with an error of its own limit,
// or earlier, when the memory for open requests is in use.
func TestHostileTemplate(t *testing.T) {
	grows := (&bed{TB: t}).template(`{% for m in messages %}{{ m.content`+strings.Repeat(" | tojson", 32)+` }}{% endfor %}`, chat.Limits{OutputBytes: 2 << 20})
	b := start(t, setup{Server: Config{Template: grows}})
	b.refused("POST", "/v1/chat/completions", askChat, 400, "template_limit")
	small := start(t, setup{Node: coppice.Config{Memory: coppice.NewMemory(1 << 20)}, Server: Config{Template: grows}})
	small.refused("POST", "/v1/chat/completions", askChat, 413, "request_too_large")
	small.until(func(*coppice.Stats) bool { return small.unused() == 0 })
}

// TestLongConversation: a conversation whose prompt is too long is refused while it is rendered.
func TestLongConversation(t *testing.T) {
	b := start(t, setup{})
	long := strings.Repeat("a", b.srv.policies.longest+1)
	b.refused("POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"`+long+`"}]}`, 400, "context_length_exceeded")
}
