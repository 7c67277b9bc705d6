package server

import (
	"fmt"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/scheduler"
)

// TestDisplaced: in a full queue the request of lowest priority is displaced by one of higher
// priority. Its caller gets the same error as if the queue had been full from the start. A
// request whose priority is not above all queued ones is refused.
func TestDisplaced(t *testing.T) {
	t.Parallel()
	b := start(t, setup{Sim: slow(), Node: coppice.Config{MaxRequests: 8, Scheduler: scheduler.Config{
		Policy: scheduler.Priority, MaxRunning: 1, MaxQueued: 2, Displace: true, PreemptThreshold: 100}}})
	hold := b.hold(1)
	b.until(func(s *coppice.Stats) bool { return s.Scheduler.Running == 1 })
	ask := func(priority int) <-chan received {
		done := make(chan received, 1)
		go func() {
			ctx, cancel := contextOf(b)
			defer cancel()
			a, err := b.try(ctx, "POST", "/v1/completions", fmt.Sprintf(`{"prompt":"x","max_tokens":1,"coppice":{"priority":%d}}`, priority))
			if err != nil {
				b.Error(err)
			}
			done <- a
		}()
		return done
	}
	first := ask(1)
	b.until(func(s *coppice.Stats) bool { return s.Scheduler.Waiting == 1 })
	second := ask(1)
	b.until(func(s *coppice.Stats) bool { return s.Scheduler.Waiting == 2 })
	b.refused("POST", "/v1/completions", `{"prompt":"x","max_tokens":1,"coppice":{"priority":1}}`, 429, "server_busy")
	third := ask(2)
	a := <-second // the younger of two equal priorities
	if e := b.decode(a.body).Error; a.StatusCode != 429 || e == nil || e.Code != "displaced" || a.Header.Get("Retry-After") == "" {
		t.Errorf("%s, Retry-After %q: %s", a.Status, a.Header.Get("Retry-After"), a.body)
	}
	if s := b.stats(); s.Scheduler.Displaced != 1 || s.Scheduler.Waiting != 2 || s.Scheduler.Preemptions != 0 {
		t.Errorf("%d displaced, %d wait, %d preemptions", s.Scheduler.Displaced, s.Scheduler.Waiting, s.Scheduler.Preemptions)
	}
	hold()
	for _, done := range []<-chan received{first, third} {
		if a := <-done; a.StatusCode != 200 {
			t.Errorf("%s: %s", a.Status, a.body)
		}
	}
	b.quiet()
}

// TestPreemptThreshold: a request preempts a running one if its priority is higher by the
// server's threshold, and waits otherwise.
func TestPreemptThreshold(t *testing.T) {
	t.Parallel()
	b := start(t, setup{Sim: slow(), Node: coppice.Config{MaxRequests: 8, Scheduler: scheduler.Config{
		Policy: scheduler.Priority, MaxRunning: 1, PreemptThreshold: 5}}})
	hold := b.hold(1)
	b.until(func(s *coppice.Stats) bool { return s.Scheduler.Running == 1 })
	ctx, cancel := contextOf(b)
	defer cancel()
	waits := make(chan struct{})
	go func() {
		defer close(waits)
		if _, err := b.try(ctx, "POST", "/v1/completions", `{"prompt":"x","max_tokens":1,"coppice":{"priority":4}}`); err == nil {
			b.Error("4 above 0 was served, the threshold is 5")
		}
	}()
	b.until(func(s *coppice.Stats) bool { return s.Scheduler.Waiting == 1 })
	b.ask("/v1/completions", `{"prompt":"y","max_tokens":1,"coppice":{"priority":5}}`)
	if s := b.stats(); s.Scheduler.Preemptions != 1 {
		t.Errorf("%d preemptions, want 1", s.Scheduler.Preemptions)
	}
	cancel()
	<-waits
	hold()
	b.quiet()
}
