package scheduler

import (
	"errors"
	"testing"
)

// offer adds a request and returns the requests that it displaced.
func (b *bed) offer(req Request) (ended []RequestID, err error) {
	b.t.Helper()
	out, err := b.s.AddOrDisplace(b.now, req, nil)
	for _, o := range out {
		if !errors.Is(o.Ending.Err, ErrDisplaced) || o.Ending.Reason != Failed {
			b.t.Errorf("ending %+v", o)
		}
		ended = append(ended, o.Request)
	}
	if err := b.s.Check(); err != nil {
		b.t.Error(err)
	}
	return ended, err
}

// TestDisplace checks that in a full queue whole requests of lower priority make room if
// they are enough, lowest and youngest first, and that requests that were admitted once
// stay.
func TestDisplace(t *testing.T) {
	b := newBed(t, Config{Displace: true, MaxRunning: 1, MaxQueued: 4, Policy: Priority, PreemptThreshold: 3}, 4, 40)
	b.request(Request{ID: 1, Prompt: seq(0, 4), MaxTokens: 9})
	b.step()
	b.s.preempt(b.now, b.s.running.all[0]) // waits with an output
	b.request(Request{ID: 2, Prompt: seq(10, 4), MaxTokens: 2, Priority: -1})
	b.request(Request{ID: 3, Prompt: seq(20, 4), MaxTokens: 2, Samples: 2, Priority: 1})
	for _, c := range []struct {
		req    Request
		ended  int // endings
		full   bool
		first  RequestID
		queued int
	}{
		{Request{ID: 10, Prompt: seq(30, 4), Priority: -1}, 0, true, 0, 4},            // not above 2
		{Request{ID: 11, Prompt: seq(30, 4), Priority: 5, Samples: 4}, 0, true, 0, 4}, // 2 and 3 are not enough, so none ends
		{Request{ID: 12, Prompt: seq(30, 4), Samples: 5, Priority: 5}, 0, true, 0, 4}, // more than there are
		{Request{ID: 13, Prompt: seq(30, 4), Priority: 0, MaxTokens: 1}, 1, false, 2, 4},
		{Request{ID: 14, Prompt: seq(40, 4), Priority: 1, MaxTokens: 1}, 1, false, 13, 4},
		{Request{ID: 15, Prompt: seq(50, 4), Priority: 2, MaxTokens: 1}, 1, false, 14, 4},
		{Request{ID: 16, Prompt: seq(60, 4), Priority: 2, MaxTokens: 1}, 2, false, 3, 3}, // both samples
	} {
		ended, err := b.offer(c.req)
		if len(ended) != c.ended || errors.Is(err, ErrQueueFull) != c.full || c.ended > 0 && ended[0] != c.first || b.s.queue.size != c.queued {
			t.Errorf("request %d: %v end, error %v, %d wait, want %d of %d and %d", c.req.ID, ended, err, b.s.queue.size, c.ended, c.first, c.queued)
		}
	}
	if b.s.Metrics().Displaced != 4 {
		t.Errorf("%d displaced", b.s.Metrics().Displaced)
	}
	if e := b.run(); len(e) != 3 || e[1].Reason != Length || e[15].Reason != Length || e[16].Reason != Length {
		t.Errorf("endings %+v", e)
	}
}

// TestFullQueueRefuses checks that without Displace, and by Add, a full queue refuses a
// request of any priority.
func TestFullQueueRefuses(t *testing.T) {
	for _, displace := range []bool{false, true} {
		b := newBed(t, Config{Displace: displace, MaxQueued: 1}, 4, 40)
		b.request(Request{ID: 1, Prompt: seq(0, 4), MaxTokens: 1})
		req := Request{ID: 2, Prompt: seq(10, 4), MaxTokens: 1, Priority: 9}
		if err := b.s.Add(b.now, req); !errors.Is(err, ErrQueueFull) {
			t.Errorf("Add: %v", err)
		}
		if ended, err := b.offer(req); displace != (err == nil) || displace != (len(ended) == 1) {
			t.Errorf("displace %v: %v end, %v", displace, ended, err)
		}
		b.run()
	}
}
