package actors

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/scheduler"
)

// Waiting gives the reason for each waiting sample, in order; Stats lists the open requests per
// tenant.
func TestWaitingAndTenants(t *testing.T) {
	inBubble(t, 10*time.Second, scheduler.Config{MaxRunning: 2, Tenant: scheduler.TenantConfig{MaxRunning: 1}}, func(t *testing.T, s *System) {
		if waits, err := s.waiting(patience(t)); err != nil || len(waits) != 0 {
			t.Errorf("want no waiting sample, got %v, %v", waits, err)
		}
		streams := []*Stream{open(t, s, Request{Tokens: light, Tenant: "a", MaxTokens: 5})}
		synctest.Wait() // the pool has granted pages, and a step runs with request 1 alone
		streams = append(streams,
			open(t, s, Request{Tokens: light[1:], Tenant: "a", MaxTokens: 5}),
			open(t, s, Request{Tokens: light[2:], Tenant: "b", MaxTokens: 5}),
			open(t, s, Request{Tokens: light[3:], Tenant: "c", MaxTokens: 5, Samples: 2}),
		)
		waits, err := s.waiting(patience(t))
		if err != nil || len(waits) != 4 {
			t.Fatalf("%v, %v", waits, err)
		}
		for i, want := range []struct {
			id     scheduler.RequestID
			sample int
			cause  scheduler.Cause
		}{{2, 0, scheduler.AwaitsTenant}, {3, 0, scheduler.AwaitsTurn}, {4, 0, scheduler.AwaitsTurn}, {4, 1, scheduler.AwaitsTurn}} {
			if w := waits[i]; w.Request != want.id || w.Sample != want.sample || w.Cause != want.cause {
				t.Errorf("%v, want %+v", w, want)
			}
		}
		st, err := s.Stats(patience(t))
		if err != nil || len(st.Tenants) != 3 {
			t.Fatalf("%+v, %v", st.Tenants, err)
		}
		for i, want := range []scheduler.TenantUsage{
			{Tenant: "a", Waiting: 1, Running: 1, ServedTokens: 5}, {Tenant: "b", Waiting: 1}, {Tenant: "c", Waiting: 2},
		} {
			if got := st.Tenants[i]; got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		}
		for _, stream := range streams {
			stream.Abort(nil)
			drainAll(t, stream, len(stream.samples))
		}
	})
}

// After the end no request waits, and Waiting returns the cause.
func TestWaitingAfterClose(t *testing.T) {
	s := start(t, Config{}, cpu.Config{})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if waits, err := s.waiting(patience(t)); !errors.Is(err, ErrClosed) || waits != nil {
		t.Errorf("%v, %v", waits, err)
	}
}

// Priority and Timeline reach the scheduler: an urgent request goes first, and its timeline
// lists its events.
func TestPriorityAndTimeline(t *testing.T) {
	inBubble(t, time.Second, scheduler.Config{MaxRunning: 1, Policy: scheduler.Priority}, func(t *testing.T, s *System) {
		running := open(t, s, Request{Tokens: light, MaxTokens: 3, IgnoreEOS: true, Priority: 9})
		idle := open(t, s, Request{Tokens: light[1:], MaxTokens: 2, IgnoreEOS: true, Priority: -1, Class: "idle"})
		urgent := open(t, s, Request{Tokens: light[2:], MaxTokens: 2, IgnoreEOS: true, Priority: 5, Timeline: true})
		_, _, first := drain(t, running)
		_, _, second := drain(t, urgent)
		_, _, third := drain(t, idle)
		if first.Queued != 0 || second.Queued != 3*time.Second || third.Queued != 5*time.Second {
			t.Errorf("waited %v, %v and %v, want none, 3 s and 5 s", first.Queued, second.Queued, third.Queued)
		}
		var marks []string
		for _, m := range second.Timeline {
			marks = append(marks, m.String())
		}
		const want = "0s queued (3); 3s matched (0); 3s first chunk (3); 4s first token (1); 5s ended (2)"
		if got := strings.Join(marks, "; "); got != want || first.Timeline != nil {
			t.Errorf("timeline %s, want %s; of the first %v", got, want, first.Timeline)
		}
	})
}
