package scheduler

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestTenantLimits(t *testing.T) {
	b := newBed(t, Config{Tenant: TenantConfig{MaxQueued: 2, MaxRunning: 1}, Tenants: map[string]TenantConfig{"d": {}}}, 4, 60)
	for id := RequestID(1); id <= 2; id++ {
		b.request(Request{ID: id, Tenant: "a", Prompt: seq(int(id)*20, 5), MaxTokens: 3})
	}
	err := b.s.Add(b.now, Request{ID: 3, Tenant: "a", Prompt: seq(0, 5)})
	if !errors.Is(err, ErrTenantFull) {
		t.Errorf("a third one: %v", err)
	}
	if err := b.s.Add(b.now, Request{ID: 3, Tenant: "c", Samples: 3, Prompt: seq(0, 5)}); !errors.Is(err, ErrTenantFull) {
		t.Errorf("three samples: %v", err)
	}
	if err := b.s.Add(b.now, Request{ID: 3, Tenant: "d", Samples: 3, Prompt: seq(0, 5)}); err != nil {
		t.Errorf("an exception: %v", err)
	}
	b.s.Abort(b.now, 3, nil, nil)
	b.request(Request{ID: 4, Tenant: "b", Prompt: seq(80, 5), MaxTokens: 3})
	b.wantRows("1[0,5) 4[0,5)") // 2 waits for 1, not 4 for 2
	if w := b.s.Why(2); w[0].Cause != AwaitsTenant {
		t.Errorf("why: %v", w)
	}
	if u := b.s.Tenants(); len(u) != 2 || u[0] != (TenantUsage{"a", 1, 1, 6, 0}) || u[1].Tenant != "b" {
		t.Errorf("tenants %+v", u)
	}
	b.run()
	if u := b.s.Tenants(); len(u) != 0 {
		t.Errorf("tenants %+v", u)
	}
}

func TestTimeLimits(t *testing.T) {
	const ms = time.Millisecond
	b := newBed(t, Config{MaxRunning: 1}, 4, 60)
	b.add(1, seq(0, 5), 50)
	b.step()
	now := b.now
	b.request(Request{ID: 2, Prompt: seq(10, 5), QueueTimeout: 10 * ms})
	b.request(Request{ID: 3, Prompt: seq(20, 5), QueueTimeout: 100 * ms, Deadline: now + 5*ms})
	b.request(Request{ID: 4, Prompt: seq(30, 5), Samples: 2, QueueTimeout: 1000 * ms})
	if at, ok := b.s.NextExpiry(); !ok || at != now+5*ms {
		t.Errorf("next expiry %v, %v", at, ok)
	}
	if out := b.s.Expire(now+5*ms-1, nil); len(out) != 0 {
		t.Errorf("too early: %+v", out)
	}
	out := b.s.Expire(now+11*ms, nil)
	if len(out) != 2 || out[0].Request != 3 || !errors.Is(out[0].Ending.Err, ErrDeadline) ||
		out[1].Request != 2 || !errors.Is(out[1].Ending.Err, ErrQueueTimeout) || out[1].Ending.Reason != Abort || !out[1].Final {
		t.Errorf("endings %+v", out)
	}
	b.s.Abort(b.now, 1, nil, nil)
	b.step() // the first sample of 4 has been admitted: its timeout is over
	if out := b.s.Expire(now+2000*ms, nil); len(out) != 1 || out[0].Sample != 1 {
		t.Errorf("endings %+v", out)
	}
	if _, ok := b.s.NextExpiry(); ok {
		t.Error("an expiry is left")
	}
	b.request(Request{ID: 5, Prompt: seq(40, 5), MaxTokens: 50, Deadline: b.now + 20*ms})
	p := b.s.Next(b.now) // it runs when it expires
	if out := b.s.Expire(b.now+time.Second, nil); len(out) != 0 {
		t.Errorf("endings %+v", out)
	}
	res, err := b.sim.run(&p.Batch)
	if err != nil {
		t.Fatal(err)
	}
	out = b.s.Complete(b.now, p, res, nil)
	if len(out) != 1 || !errors.Is(out[0].Ending.Err, ErrDeadline) || b.s.metrics.Expired != 4 {
		t.Errorf("endings %+v, %d expired", out, b.s.metrics.Expired)
	}
}

func TestTimeline(t *testing.T) {
	b := newBed(t, Config{StepTokens: 8}, 4, 60)
	b.request(Request{ID: 1, Prompt: seq(0, 12), MaxTokens: 3, Timeline: true}) // at 1 ms
	b.step()
	if l := b.s.Timeline(1); len(l) != 1 || len(l[0]) != 3 {
		t.Errorf("timeline %v", l)
	}
	b.s.preempt(b.now, b.s.running.all[0])
	e := b.run()[1]
	want := "[0s queued (12) 1ms matched (0) 1ms first chunk (8) 1ms preempted (8) 2ms matched (8) 2ms first chunk (4) 2ms first token (1) 4ms ended (3)]"
	if got := fmt.Sprint(e.Timeline); got != want {
		t.Errorf("timeline\n%s, want\n%s", got, want)
	}
	if b.s.Timeline(1) != nil {
		t.Error("a timeline of one that has ended")
	}
}

// TestPriorityPreempts checks that a waiting request of higher priority preempts a
// running one if that helps, and one of equal priority does not.
func TestPriorityPreempts(t *testing.T) {
	b := newBed(t, Config{Policy: Priority, MaxRunning: 2}, 4, 20)
	b.request(Request{ID: 1, Prompt: seq(0, 20), MaxTokens: 20, Priority: 1})
	b.request(Request{ID: 2, Prompt: seq(40, 8), MaxTokens: 20})
	b.wantRows("1[0,20) 2[0,8)")
	b.request(Request{ID: 3, Prompt: seq(60, 8), MaxTokens: 2}) // no slot, no higher priority
	b.wantRows("1[20,21) 2[8,9)")
	b.request(Request{ID: 4, Prompt: seq(70, 8), MaxTokens: 2, Priority: 1})
	b.wantRows("1[21,22) 4[0,8)") // 2 is preempted
	if w := b.s.Why(2); w[0].Cause != AwaitsSlot {
		t.Errorf("why: %v", w)
	}
	endings := b.run()
	if e := endings[2]; e.Preemptions != 1 || e.OutputTokens != 20 {
		t.Errorf("ending %+v", e)
	}
	if e := endings[1]; e.Preemptions != 0 {
		t.Errorf("ending %+v", e)
	}
}

// TestVictimLosesLeast checks that the victim is the sequence that loses least of its own
// work; pages that it shares do not count.
func TestVictimLosesLeast(t *testing.T) {
	b := newBed(t, Config{ShareTokens: 1000}, 1, 53)
	b.add(1, seq(0, 20), 9)
	b.add(9, seq(60, 10), 15) // the oldest after 1
	b.step()
	b.add(2, seq(0, 26), 20) // 20 tokens are 1's
	b.step()
	b.add(3, seq(40, 8), 20)
	first := RequestID(0)
	for i := 0; b.s.Open() > 0 && i < 1000; i++ {
		b.step()
		for _, q := range []RequestID{1, 2, 3, 9} {
			if g := b.s.open[q]; g != nil && g.samples[0].bill.preemptions > 0 && first == 0 {
				first = q
			}
		}
	}
	if first != 2 {
		t.Errorf("%d was preempted first", first)
	}
}

func TestBudget(t *testing.T) {
	for _, k := range []int{-1, 1, 7, 100, 21_000} {
		s := &Scheduler{cfg: Config{AttentionTokens: k}}
		for _, c := range []int{0, 1, 50, 4096, 100_000} {
			for _, budget := range []int{0, 1, 2, 10, 100, 2048, 8191} {
				n := s.cfg.tokensFor(budget, c)
				if n > 1 && s.cfg.costOf(n, c) > budget || budget > 0 && s.cfg.costOf(n+1, c) <= budget || (n == 0) != (budget == 0) {
					t.Errorf("k %d: a budget of %d pays for %d tokens after %d, at a cost of %d", k, budget, n, c, s.cfg.costOf(n, c))
				}
			}
		}
	}
	// By hand: 100 tokens after 1,000 where 500 tokens of context cost 1.
	s := &Scheduler{cfg: Config{AttentionTokens: 500}}
	if got := s.cfg.costOf(100, 1000); got != 100+210 {
		t.Errorf("cost %d", got)
	}
}

// TestClassOfRequest checks that the class of a request is the one that it names, or else its
// tenant's.
func TestClassOfRequest(t *testing.T) {
	b := newBed(t, Config{}, 4, 40)
	for id, req := range []Request{{Tenant: "a"}, {Class: "a", Tenant: "b"}, {Tenant: "b"}} {
		req.ID, req.Prompt = RequestID(id), seq(0, 5)
		if err := b.s.Add(b.now, req); err != nil {
			t.Fatal(err)
		}
	}
	if k := b.s.open[0].class; k != b.s.open[1].class || k == b.s.open[2].class {
		t.Error("classes are told apart otherwise than by name")
	}
}

func TestMetricsString(t *testing.T) {
	m := Metrics{Requests: 10, Steps: 5, Rows: 40, PromptTokens: 200, CachedTokens: 50, RecomputedTokens: 7, VoidTokens: 1, OutputTokens: 90,
		Preemptions: 2, Followers: 3, Bypasses: 4, Expired: 1, Endings: [5]uint64{0, 4, 3, 2, 1}, Waiting: 6, Running: 8,
		IdlePages: 11, HeldPages: 12, CachedPages: 13, PoolPages: 36}
	want := `requests: 10 accepted, 6 waiting, 8 running
endings:  4 stop, 3 length, 2 abort (1 out of time), 1 error
steps:    5, 40 rows, 2 preemptions, 7 tokens recomputed, 1 void
queue:    3 waits for a prefix in flight, 4 bypasses of one that did not fit
tokens:   200 prompt, 50 cached (25.0 %), 90 output
pages:    11 idle, 12 held, 13 cached of 36, 0 leaked
`
	if got := m.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
