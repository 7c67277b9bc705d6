package actors

import (
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// paced is a device whose every step takes a fixed time on the clock of the synctest
// bubble.
type paced struct {
	engine.Backend
	step time.Duration
}

func (p paced) Submit(b *engine.Batch) (engine.Ticket, error) {
	ticket, err := p.Backend.Submit(b)
	return pacedTicket{ticket, p.step}, err
}

type pacedTicket struct {
	engine.Ticket
	step time.Duration
}

func (p pacedTicket) Result() (*engine.Result, error) {
	time.Sleep(p.step)
	return p.Ticket.Result()
}

// inBubble runs f with a system in a synctest bubble: its clock advances only while the device
// runs a step.
func inBubble(t *testing.T, step time.Duration, cfg scheduler.Config, f func(t *testing.T, s *System)) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{Backend: paced{backend(t, cpu.Config{KVTokens: 4096}), step}, Scheduler: cfg}, cpu.Config{})
		f(t, s)
		conserve(t, s)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

var light = []kv.Token{76, 105, 103, 104, 116}

// A running request ends with the step that is running at its deadline.
func TestTimeout(t *testing.T) {
	const step, timeout = 100 * time.Millisecond, 2*time.Second + 50*time.Millisecond
	for inflight := 1; inflight <= 2; inflight++ {
		inBubble(t, step, scheduler.Config{MaxInflight: inflight}, func(t *testing.T, s *System) {
			_, _, e := drain(t, open(t, s, Request{Tokens: light, MaxTokens: 3000, IgnoreEOS: true, Timeout: timeout}))
			last := time.Duration(20+inflight) * step // the steps in flight at the deadline
			if e.Reason != scheduler.Abort || !errors.Is(e.Err, scheduler.ErrDeadline) || e.OutputTokens != 20 || e.Total != last {
				t.Errorf("%d in flight: ending %+v, want 20 tokens and %v", inflight, e, last)
			}
		})
	}
}

// A waiting request ends at its limit even if no message arrives, whether later requests have
// earlier or later limits. QueueTimeout no longer applies to an admitted request.
func TestLimitsOfWaitingRequests(t *testing.T) {
	inBubble(t, 10*time.Second, scheduler.Config{MaxRunning: 1}, func(t *testing.T, s *System) {
		began := time.Now()
		first := open(t, s, Request{Tokens: light, MaxTokens: 2, IgnoreEOS: true, QueueTimeout: time.Second})
		late := open(t, s, Request{Tokens: light, QueueTimeout: 3 * time.Second, Timeout: time.Minute})
		soon := open(t, s, Request{Tokens: light, Timeout: time.Second})
		both := open(t, s, Request{Tokens: light, Samples: 2, Timeout: 2 * time.Second, QueueTimeout: time.Minute})
		for _, tc := range []struct {
			stream *Stream
			n      int
			err    error
			after  time.Duration
		}{
			{soon, 1, scheduler.ErrDeadline, time.Second},
			{both, 2, scheduler.ErrDeadline, 2 * time.Second},
			{late, 1, scheduler.ErrQueueTimeout, 3 * time.Second},
			{first, 1, nil, 20 * time.Second},
		} {
			for _, o := range drainAll(t, tc.stream, tc.n) {
				if e := o.ending; !errors.Is(e.Err, tc.err) || (e.Err == nil) != (tc.err == nil) || e.Total != tc.after || time.Since(began) != tc.after {
					t.Errorf("after %v: ending %+v, want %v after %v", time.Since(began), e, tc.err, tc.after)
				}
			}
		}
		st, err := s.Stats(t.Context())
		if err != nil || st.Scheduler.Expired != 4 {
			t.Errorf("%d samples expired, %v", st.Scheduler.Expired, err)
		}
	})
}

// An alarm set to a time in the past may ring before wakeAt returns.
func TestAlarmRingsAtOnce(t *testing.T) {
	rings := make(chan struct{}, 1)
	a := alarm{ring: func() { rings <- struct{}{} }}
	for range 20_000 {
		a.wakeAt(time.Second, 0)
		<-rings
		a.rang()
	}
	a.stop()
}

// However the scheduler actor ends, its alarm ends with it.
func TestAlarmEndsWithItsActor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, rang := newSchedulerActor(&System{}, nil), false
		a.alarm.ring = func() { rang = true }
		a.alarm.wakeAt(0, time.Hour)
		releaser.release(a)
		if time.Sleep(2 * time.Hour); rang {
			t.Error("the alarm rings after its actor has ended")
		}
	})
}

// A request with time left ends with the system, not at its deadline.
func TestCloseWithTheAlarmSet(t *testing.T) {
	h := hold(t, cpu.Config{})
	s := start(t, Config{Backend: h}, cpu.Config{})
	h.let(short(1000))
	stream := open(t, s, Request{Tokens: light, MaxTokens: 3000, IgnoreEOS: true, Timeout: time.Hour})
	if _, err := stream.Next(patience(t)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, _, e := drain(t, stream); !errors.Is(e.Err, ErrClosed) {
		t.Errorf("ending %+v", e)
	}
}

// One timer serves all limits and rings once for each time that it is set to.
func TestAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, rings := time.Now(), make(chan time.Duration, 9)
		a := alarm{}
		a.ring = func() { rings <- time.Since(began) }
		now := func() time.Duration { return time.Since(began) }
		a.wakeAt(now(), 5*time.Second)
		a.wakeAt(now(), 9*time.Second) // later than the one set: ignored
		a.wakeAt(now(), 2*time.Second) // earlier: replaces it
		if at := <-rings; at != 2*time.Second {
			t.Errorf("rang after %v", at)
		}
		a.rang()
		a.wakeAt(now(), time.Second) // in the past
		if at := <-rings; at != 2*time.Second {
			t.Errorf("rang after %v", at)
		}
		a.rang()
		a.wakeAt(now(), 9*time.Second)
		time.Sleep(time.Second)
		a.stop()
		time.Sleep(time.Hour)
		if n := len(rings); n != 0 {
			t.Errorf("rang %d times after its end", n)
		}
	})
}

// Negative limits are refused, and the largest possible one never passes.
func TestLimitsOutOfRange(t *testing.T) {
	s := start(t, Config{}, cpu.Config{})
	for _, req := range []Request{{Timeout: -1}, {QueueTimeout: -1}} {
		req.Prompt = prompt
		if _, err := s.Open(req); !errors.Is(err, scheduler.ErrInvalid) {
			t.Errorf("Timeout %v, QueueTimeout %v: %v", req.Timeout, req.QueueTimeout, err)
		}
	}
	_, _, e := drain(t, open(t, s, Request{Prompt: prompt, MaxTokens: 3, IgnoreEOS: true, Timeout: math.MaxInt64, QueueTimeout: math.MaxInt64}))
	if e.Reason != scheduler.Length {
		t.Errorf("a limit at the end of time: %+v", e)
	}
}
