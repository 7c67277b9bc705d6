package e2e

import (
	"context"
	"errors"
	"testing"

	"github.com/openai/openai-go/v3"
)

// TestCancel cancels requests while they run, in each way that a client can. Nothing may keep running
// without a client.
func TestCancel(t *testing.T) {
	p := serve(t, slow...)
	for name, leave := range map[string]func(ctx context.Context, cancel func()){
		"context of a stream": func(ctx context.Context, cancel func()) {
			s := p.long(ctx, 10_000)
			for range 3 {
				if !s.Next() {
					t.Fatalf("the stream ends: %v", s.Err())
				}
			}
			if f := p.stats(p.client); f.Running != 1 {
				t.Errorf("while it streams %d run", f.Running)
			}
			cancel()
			for s.Next() {
			}
			if !errors.Is(s.Err(), context.Canceled) {
				t.Errorf("the stream ended with %v", s.Err())
			}
		},
		"closing a stream": func(ctx context.Context, cancel func()) { p.long(ctx, 10_000).Close() },
		"a stream of a chat, of several choices": func(ctx context.Context, cancel func()) {
			req := talk(10_000, openai.UserMessage("light?"))
			req.N = openai.Int(3)
			s := p.client.Chat.Completions.NewStreaming(ctx, req, endless)
			if !s.Next() {
				t.Fatal(s.Err())
			}
			s.Close()
		},
		"a whole answer": func(ctx context.Context, cancel func()) {
			done := make(chan error)
			go func() {
				_, err := p.client.Completions.New(ctx, text("light", 10_000), endless)
				done <- err
			}()
			p.until("it runs", func() bool { return p.stats(p.client).Running == 1 })
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("it ended with %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			gone, aborted := p.metric("coppice_client_disconnects_total"), p.metric("coppice_request_success_total", "finished_reason=abort")
			ctx, cancel := context.WithCancel(within(t))
			defer cancel()
			leave(ctx, cancel)
			p.quiet(p.client)
			p.until("the client is seen to have left", func() bool { return p.metric("coppice_client_disconnects_total") == gone+1 })
			if n := p.metric("coppice_request_success_total", "finished_reason=abort") - aborted; n < 1 {
				t.Errorf("%v samples were aborted", n)
			}
		})
	}
	if f := p.stats(p.client); f.ProtectedPages != 0 {
		t.Errorf("pages are still pinned: %+v", f)
	}
}
