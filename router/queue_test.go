package router

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// waitAll queues requests, identified by their PromptTokens, and returns the order in
// which they are taken when the only worker is free.
func waitAll(t *testing.T, cfg Config, arrivals []time.Duration, reqs []Request) (order []int) {
	t.Helper()
	r := newRouter(t, cfg, WorkerSpec{MaxRequests: 1})
	d := selected(t, r, 0, Request{PromptTokens: 1})
	for i := range reqs {
		if _, err := r.Select(arrivals[i], &reqs[i]); !errors.Is(err, ErrBusy) {
			t.Fatalf("request %d: %v", i, err)
		}
		if _, err := r.Wait(arrivals[i], &reqs[i]); err != nil {
			t.Fatal(err)
		}
	}
	for r.Queued() > 0 {
		if _, _, ok := r.Next(r.now); ok {
			t.Fatal("one goes while the worker is busy")
		}
		r.Release(r.now, d.Reservation)
		ticket, req, ok := r.Next(r.now)
		if !ok {
			t.Fatal("none goes")
		}
		order = append(order, req.PromptTokens)
		var err error
		if d, err = r.Take(r.now, ticket, req.Overlaps); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Take(r.now, ticket, nil); !errors.Is(err, ErrTicket) || r.Cancel(ticket) {
			t.Errorf("a ticket is taken twice: %v", err)
		}
	}
	return order
}

func TestOrders(t *testing.T) {
	at := func(s ...int) (all []time.Duration) {
		for _, x := range s {
			all = append(all, time.Duration(x)*second)
		}
		return all
	}
	cached := func(blocks int) []Overlap { return []Overlap{{Worker: worker1(0), Device: blocks}} }
	for _, tc := range []struct {
		name     string
		order    Order
		arrivals []time.Duration
		reqs     []Request
		want     []int
	}{
		{"fcfs", FCFS, at(0, 1, 2), []Request{{PromptTokens: 10}, {PromptTokens: 20}, {PromptTokens: 30}}, []int{10, 20, 30}},
		{"fcfs, ties", FCFS, at(0, 0, 0), []Request{{PromptTokens: 10}, {PromptTokens: 20}, {PromptTokens: 30}}, []int{10, 20, 30}},
		{"lcfs", LCFS, at(0, 1, 2), []Request{{PromptTokens: 10}, {PromptTokens: 20}, {PromptTokens: 30}}, []int{30, 20, 10}},
		{"wspt", WSPT, at(0, 0, 0), []Request{{PromptTokens: 300}, {PromptTokens: 200}, {PromptTokens: 512, Overlaps: cached(64)}}, []int{512, 200, 300}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := waitAll(t, Config{Order: tc.order}, tc.arrivals, tc.reqs); !slices.Equal(got, tc.want) {
				t.Errorf("went %v, want %v", got, tc.want)
			}
		})
	}
	r := newRouter(t, Config{Order: WSPT}, WorkerSpec{})
	if got := r.queue.turnOf(&Request{PromptTokens: 512, Overlaps: cached(64)}, r.now.Seconds()).rank; got != 1 {
		t.Errorf("all is cached, rank %v, want 1", got)
	}
}

func TestBusyIsAllBusy(t *testing.T) {
	r := newRouter(t, Config{Policy: CostLeastLoaded, BusyFactor: 2}, WorkerSpec{BatchTokens: 100}, WorkerSpec{BatchTokens: 100})
	req := Request{PromptTokens: 200}
	a, b := selected(t, r, 0, req), selected(t, r, 0, req) // 200 is not above 2·100
	selected(t, r, 0, Request{PromptTokens: 1, Pinned: &a.Worker})
	selected(t, r, 0, Request{PromptTokens: 1, Pinned: &b.Worker})
	if _, err := r.Select(0, &req); !errors.Is(err, ErrBusy) {
		t.Fatalf("all have more than 200: %v", err)
	}
	if !r.Progress(0, b.Reservation, 0, 1) { // its first token
		t.Fatal()
	}
	selected(t, r, 0, req) // one that is not busy is enough
	// A worker with an unknown budget is never busy by its tokens.
	r = newRouter(t, Config{BusyFactor: 1}, WorkerSpec{})
	for range 5 {
		selected(t, r, 0, Request{PromptTokens: 1 << 20})
	}
}

func TestQueueLimitsAndRefusals(t *testing.T) {
	r := newRouter(t, Config{MaxQueued: 2}, WorkerSpec{MaxRequests: 1})
	d := selected(t, r, 0, Request{PromptTokens: 1})
	req := Request{PromptTokens: 1}
	var tickets []Ticket
	for range 2 {
		ticket, err := r.Wait(0, &req)
		if err != nil {
			t.Fatal(err)
		}
		tickets = append(tickets, ticket)
	}
	var full *QueueFullError
	if _, err := r.Wait(0, &req); !errors.As(err, &full) || *full != (QueueFullError{2, 2}) {
		t.Errorf("a third of two: %v", err)
	}
	if !r.Cancel(tickets[0]) || r.Cancel(tickets[0]) || r.Queued() != 1 {
		t.Error("a cancel is not true exactly once")
	}
	if _, err := r.Wait(0, &Request{PromptTokens: 1, Pinned: &kv.Rank{Worker: 9}}); !errors.Is(err, ErrNoWorkers) {
		t.Errorf("pinned to an unknown worker: %v", err)
	}
	if _, err := r.Take(5*second, tickets[1], nil); !errors.Is(err, ErrBusy) || r.Queued() != 1 {
		t.Errorf("taken while all are busy: %v", err)
	}
	// No new request overtakes a waiting one.
	r.Release(5*second, d.Reservation)
	if _, err := r.Select(5*second, &req); !errors.Is(err, ErrBusy) {
		t.Errorf("a newcomer: %v", err)
	}
	if _, err := r.Take(5*second, tickets[1], []Overlap{{Disk: -1}}); !errors.Is(err, ErrRequest) || r.Queued() != 0 {
		t.Errorf("bad overlaps: %v, %d wait", err, r.Queued())
	}
	if _, err := r.Take(5*second, Ticket{}, nil); !errors.Is(err, ErrTicket) {
		t.Errorf("no ticket: %v", err)
	}
}

// TestPinnedBlockNoOthers: other requests pass one that waits for a busy pinned worker.
func TestPinnedBlockNoOthers(t *testing.T) {
	r := newRouter(t, Config{Policy: CostLeastLoaded}, WorkerSpec{MaxRequests: 1}, WorkerSpec{MaxRequests: 1})
	a, b := worker1(0), worker1(1)
	da := selected(t, r, 0, Request{PromptTokens: 1, Pinned: &a})
	db := selected(t, r, 0, Request{PromptTokens: 1, Pinned: &b})
	pinned, _ := r.Wait(0, &Request{PromptTokens: 2, Pinned: &a})
	avoiding, _ := r.Wait(0, &Request{PromptTokens: 3, Avoid: []kv.Rank{b}})
	free, _ := r.Wait(0, &Request{PromptTokens: 4})
	r.Release(0, db.Reservation)
	ticket, _, ok := r.Next(0)
	if !ok || ticket != free {
		t.Fatalf("%v goes, want %v", ticket, free)
	}
	if d, err := r.Take(0, ticket, nil); err != nil || d.Worker != b {
		t.Fatalf("%+v, %v", d, err)
	}
	r.Release(0, da.Reservation)
	if ticket, _, ok = r.Next(0); !ok || ticket != pinned {
		t.Fatalf("%v goes, want %v", ticket, pinned)
	}
	r.Cancel(ticket)
	if ticket, _, ok = r.Next(0); !ok || ticket != avoiding {
		t.Fatalf("%v goes, want %v", ticket, avoiding)
	}
	if d, err := r.Take(0, ticket, nil); err != nil || d.Worker != a {
		t.Fatalf("%+v, %v", d, err)
	}
	// A waiting request whose pinned worker has left ends with an error.
	gone, err := r.Wait(0, &Request{PromptTokens: 2, Pinned: &a})
	if err != nil {
		t.Fatal(err)
	}
	r.Leave(0, a, nil)
	if ticket, _, ok = r.Next(0); !ok || ticket != gone {
		t.Fatalf("%v goes, want %v", ticket, gone)
	}
	if _, err := r.Take(0, ticket, nil); !errors.Is(err, ErrNoWorkers) || r.Queued() != 0 {
		t.Errorf("%v, %d wait", err, r.Queued())
	}
}

// TestPriorityFirst checks that waiting requests of higher priority go first, whatever the order.
func TestPriorityFirst(t *testing.T) {
	for _, order := range orderNames.Values() {
		r := newRouter(t, Config{Order: order}, WorkerSpec{MaxRequests: 1})
		d := selected(t, r, 0, Request{PromptTokens: 1})
		var tickets []Ticket
		for i, priority := range []int32{0, -5, 7, 7} {
			ticket, err := r.Wait(time.Duration(i)*second, &Request{PromptTokens: 10, Priority: priority, Tenant: uint64(i)})
			if err != nil {
				t.Fatal(err)
			}
			tickets = append(tickets, ticket)
		}
		r.Release(5*second, d.Reservation)
		want := []Ticket{tickets[2], tickets[3], tickets[0], tickets[1]}
		if order == LCFS {
			want[0], want[1] = want[1], want[0]
		}
		for i := range want {
			ticket, _, ok := r.Next(5 * second)
			if !ok || ticket != want[i] {
				t.Fatalf("%v: number %d is %v, want %v", order, i, ticket, want[i])
			}
			if i == 0 { // a new request of lower priority does not pass it
				if _, err := r.Select(5*second, &Request{PromptTokens: 1, Priority: 6}); !errors.Is(err, ErrBusy) {
					t.Errorf("%v: a new request passes one of higher priority: %v", order, err)
				}
			}
			taken, err := r.Take(5*second, ticket, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Release(5*second, taken.Reservation)
		}
	}
}

// TestFair checks that under Fair a tenant with many waiting requests does not hold up one with few, that tokens count and not requests, and that
// the memory for tenants is bounded.
func TestFair(t *testing.T) {
	r := newRouter(t, Config{Order: Fair, MaxQueued: 64, ExpectedOutput: 1}, WorkerSpec{MaxRequests: 1})
	run := func(waiting ...Request) (order []uint64) {
		d := selected(t, r, 0, Request{PromptTokens: 1})
		for i := range waiting {
			if _, err := r.Wait(0, &waiting[i]); err != nil {
				t.Fatal(err)
			}
		}
		for {
			r.Release(0, d.Reservation)
			ticket, req, ok := r.Next(0)
			if !ok {
				return order
			}
			order = append(order, req.Tenant)
			var err error
			if d, err = r.Take(0, ticket, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	one := func(tenant uint64, tokens int) Request { return Request{PromptTokens: tokens - 1, Tenant: tenant} }
	if got := run(one(1, 100), one(1, 100), one(1, 100), one(1, 100), one(2, 100), one(2, 100)); !slices.Equal(got, []uint64{1, 2, 1, 2, 1, 1}) {
		t.Errorf("equal requests: %v", got)
	}
	if got := run(one(3, 300), one(3, 300), one(4, 100), one(4, 100), one(4, 100), one(4, 100)); !slices.Equal(got, []uint64{3, 4, 4, 4, 3, 4}) {
		t.Errorf("requests of three times the length: %v", got)
	}
	// A tenant that was away has saved nothing: it does not get all the turns now.
	if got := run(one(1, 100), one(1, 100), one(5, 100), one(5, 100)); !slices.Equal(got, []uint64{1, 5, 1, 5}) {
		t.Errorf("a tenant that was away: %v", got)
	}
	for i := range 1000 {
		run(one(uint64(100+i), 50))
	}
	if n := len(r.queue.shares.finishes); n > 2*64 {
		t.Errorf("%d tenants are kept", n)
	}
}
