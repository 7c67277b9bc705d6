package router

import (
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

const stall = 2 * second

// slow is a profile with a millisecond per prompt token and ten per step.
var slow = Profile{Step: 0.01, Token: 0.001}

func stallRouter(t *testing.T, workers int) *Router {
	specs := make([]WorkerSpec, workers)
	for i := range specs {
		specs[i].Profile = slow
	}
	return newRouter(t, Config{Stall: stall, Policy: CostRoundRobin}, specs...)
}

// chosen returns the workers that get a request at now, of twice as many requests as workers.
func chosen(t *testing.T, r *Router, now time.Duration) map[kv.Rank]bool {
	t.Helper()
	all := map[kv.Rank]bool{}
	for range 2 * len(r.workers) {
		d := selected(t, r, now, Request{PromptTokens: 1, Reply: Unknown})
		all[d.Worker] = true
		r.Rollback(now, d.Reservation)
	}
	return all
}

// TestStall: a worker that is late with a token is not chosen until it makes progress.
func TestStall(t *testing.T) {
	a := worker1(0)
	one := func(tokens int, reply Reply, output int) Request {
		return Request{PromptTokens: tokens, Reply: reply, ExpectedOutput: output, Pinned: &a}
	}
	for _, c := range []struct {
		name  string
		req   Request
		after func(r *Router, d Decision) // what happens in the first second, at most
		last  time.Duration               // a is chosen then
		late  time.Duration               // and not then; 0: it is never late
	}{
		{"first token", one(100, Streamed, 9), nil, 2100 * time.Millisecond, 2200 * time.Millisecond},
		{"first token of a long prompt", one(10_000, Streamed, 9), nil, 30 * second, 31 * second},
		{"next token", one(100, Streamed, 9), func(r *Router, d Decision) { r.Progress(second, d.Reservation, 0, 1) }, 3 * second, 3100 * time.Millisecond},
		{"all at once", one(100, AtOnce, 200), nil, 6 * second, 7 * second}, // 200 steps take 2 s
		{"unknown reply", one(100, Unknown, 9), nil, 100 * second, 0},
		{"it has begun, to be told all at once", one(100, AtOnce, 0), func(r *Router, d Decision) { r.Begun(second, d.Reservation) }, 100 * second, 0},
		{"it has ended", one(100, Streamed, 9), func(r *Router, d Decision) { r.Release(second, d.Reservation) }, 100 * second, 0},
		{"it was taken back", one(100, Streamed, 9), func(r *Router, d Decision) { r.Rollback(second, d.Reservation) }, 100 * second, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := stallRouter(t, 3)
			d := selected(t, r, 0, c.req)
			if c.after != nil {
				c.after(r, d)
			}
			if !chosen(t, r, c.last)[a] {
				t.Fatalf("at %v it is not chosen", c.last)
			}
			if c.late == 0 {
				return
			}
			if chosen(t, r, c.late)[a] || !loadOf(t, r, a).Stalled || r.fleet.stalled != 1 {
				t.Fatalf("at %v it is chosen; %+v", c.late, loadOf(t, r, a))
			}
			if chosen(t, r, 2*c.late)[a] {
				t.Error("it is chosen again, and has done nothing")
			}
			r.Progress(2*c.late, d.Reservation, 0, 2)
			if !chosen(t, r, 2*c.late)[a] {
				t.Error("it is not chosen after progress")
			}
		})
	}
}

// TestStallOfAll: late workers are chosen if all are late, but not before others.
func TestStallOfAll(t *testing.T) {
	r := stallRouter(t, 2)
	selected(t, r, 0, Request{PromptTokens: 100})
	selected(t, r, 0, Request{PromptTokens: 100})
	if got := chosen(t, r, 9*second); len(got) != 2 {
		t.Errorf("chosen are %v of two that are late", got)
	}
	if err := r.Join(9*second, worker1(2), WorkerSpec{BlockTokens: 16}); err != nil {
		t.Fatal(err)
	}
	if got := chosen(t, r, 9*second); len(got) != 1 || !got[worker1(2)] {
		t.Errorf("chosen are %v beside one that is not late", got)
	}
	if _, err := r.Select(9*second, &Request{PromptTokens: 1, Avoid: []kv.Rank{worker1(2)}}); err != nil {
		t.Errorf("the others: %v", err)
	}
	pin := worker1(0)
	if d := selected(t, r, 9*second, Request{PromptTokens: 1, Pinned: &pin}); d.Worker != pin {
		t.Errorf("a pinned request goes to %v", d.Worker)
	}
}

// TestStallIsNotEndedByClients: clients that abandon their requests are no progress of the
// worker. An answer to a probe is, if the worker owes nothing more.
func TestStallIsNotEndedByClients(t *testing.T) {
	r := stallRouter(t, 2)
	a := worker1(0)
	one := selected(t, r, 0, Request{PromptTokens: 100, Pinned: &a})
	two := selected(t, r, 0, Request{PromptTokens: 100, Pinned: &a})
	chosen(t, r, 5*second)
	r.Abandon(5*second, one.Reservation)
	if err := r.SetHealth(5*second, a, Healthy); err != nil {
		t.Fatal(err)
	}
	if chosen(t, r, 5*second)[a] {
		t.Error("it is chosen after one client of two gave up")
	}
	r.Abandon(5*second, two.Reservation)
	if chosen(t, r, 5*second)[a] {
		t.Error("it is chosen after all clients gave up")
	}
	if err := r.SetHealth(6*second, a, Healthy); err != nil {
		t.Fatal(err)
	}
	if !chosen(t, r, 6*second)[a] {
		t.Error("it is not chosen after it answered a probe")
	}
}

// TestStoppedWorkerAndClosedLoop: of three workers one stops, and continues 20 s later.
// Clients that wait for their answers must not all end up there. Those that do are sent
// elsewhere once the worker is stalled, because it has begun none of their requests.
func TestStoppedWorkerAndClosedLoop(t *testing.T) {
	const clients, prompt, tick, stops, resumes = 12, 64, 5 * time.Millisecond, second, 20 * second
	type request struct {
		Decision
		ends time.Duration
	}
	for _, watch := range []time.Duration{0, stall} {
		r := newRouter(t, Config{Stall: watch}, WorkerSpec{Profile: slow}, WorkerSpec{Profile: slow}, WorkerSpec{Profile: slow})
		var open [clients]request
		var held, answers [30]int // by second: clients at the stopped worker in its midst, and answers
		send := func(now time.Duration, c int) {
			d := selected(t, r, now, Request{PromptTokens: prompt})
			open[c] = request{d, now + 250*time.Millisecond}
		}
		for c := range clients {
			send(0, c)
		}
		for now := time.Duration(0); now < 30*second; now += tick {
			down := now >= stops && now < resumes
			for c := range clients {
				switch q := &open[c]; {
				case down && q.Worker == worker1(0):
					if (now-stops)%second == second/2 {
						held[now/second]++
					}
					if loadOf(t, r, q.Worker).Stalled {
						r.Abandon(now, q.Reservation)
						send(now, c)
					}
				case now >= q.ends:
					r.Progress(now, q.Reservation, prompt, 1)
					r.Release(now, q.Reservation)
					answers[now/second]++
					send(now, c)
				}
			}
			if now == resumes {
				_ = r.SetHealth(now, worker1(0), Healthy)
			}
		}
		t.Logf("watched %v: clients at the stopped worker by second: %v, answers: %v", watch, held, answers)
		for s := 5; s < 20; s++ {
			if watch > 0 && (held[s] > 0 || answers[s] < answers[0]) {
				t.Errorf("watched %v: in second %d %d of %d clients wait at the stopped worker, and %d answers come of %d", watch, s, held[s], clients, answers[s], answers[0])
			}
		}
		if watch == 0 && held[19] == 0 {
			t.Error("without Stall no request is left at a stopped worker")
		}
		if loadOf(t, r, worker1(0)).Requests == 0 {
			t.Errorf("watched %v: nothing goes to the worker that resumed", watch)
		}
	}
}
