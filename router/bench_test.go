package router

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/internal/invariants"
	"github.com/coppice-llm/coppice/kv"
)

// loaded is a fleet under load: 64 system prompts of 64 blocks, conversations of 512 blocks (8k
// tokens) that continue them turn by turn, overlaps at some workers, 8 active requests per
// worker.
type loaded struct {
	r        *Router
	requests []Request
	active   []Reservation
	next     int
	now      time.Duration
}

func newLoaded(t testing.TB, policy Policy, workers int) *loaded {
	if invariants.Enabled {
		t.Skip("the walks allocate, and take long")
	}
	l := &loaded{r: newRouter(t, Config{Policy: policy}, make([]WorkerSpec, workers)...)}
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 2048 {
		req := Request{PromptTokens: 512 * 16, ExpectedOutput: 200}
		for b := range 512 {
			h := mix(uint64(i%64), uint64(b))
			if b >= 64 {
				h = mix(uint64(i/2), uint64(1000+b)) // the system prompt, then one of two turns
			}
			req.Hashes = append(req.Hashes, kv.BlockHash(h))
		}
		for w := range workers {
			if n := rng.IntN(128); w%4 == i%4 {
				req.Overlaps = append(req.Overlaps, Overlap{Worker: worker1(w), Device: n, Host: n / 4})
			}
		}
		l.requests = append(l.requests, req)
	}
	for range 8 * workers {
		l.add(t)
	}
	return l
}

func (l *loaded) add(t testing.TB) {
	l.now += time.Millisecond
	d, err := l.r.Select(l.now, &l.requests[l.next%len(l.requests)])
	if err != nil {
		t.Fatal(err)
	}
	l.next++
	l.active = append(l.active, d.Reservation)
}

// turn selects a worker for a request, reports its first token, and releases the oldest
// request.
func (l *loaded) turn(t testing.TB) {
	l.add(t)
	n := len(l.active)
	l.r.Progress(l.now, l.active[n/2], 0, 1)
	if !l.r.Release(l.now, l.active[0]) {
		t.Fatal("it has ended")
	}
	copy(l.active, l.active[1:])
	l.active = l.active[:n-1]
}

func TestSelectAllocatesNothing(t *testing.T) {
	for _, policy := range Policies() {
		l := newLoaded(t, policy, 64)
		for range 6000 {
			l.turn(t)
		}
		if allocs := testing.AllocsPerRun(2000, func() { l.turn(t) }); allocs != 0 {
			t.Errorf("%v: %v allocations for Select, Progress and Release", policy, allocs)
		}
	}
}

func TestSelectForReplicasAllocatesNothing(t *testing.T) {
	l := newLoaded(t, CostLatency, 64)
	l.r.cfg.Replica = 1
	var events []Event
	turn := func() {
		l.turn(t)
		events = l.r.Drain(events[:0])
	}
	for range 6000 {
		turn()
	}
	if allocs := testing.AllocsPerRun(2000, turn); allocs != 0 {
		t.Errorf("%v allocations with a journal", allocs)
	}
}

func BenchmarkSelect(b *testing.B) {
	for _, policy := range []Policy{CostLatency, Cost2025, Cost2026, CostCredits} {
		for _, workers := range []int{8, 64, 512} {
			b.Run(fmt.Sprintf("policy=%v/workers=%d/blocks=512", policy, workers), func(b *testing.B) {
				l := newLoaded(b, policy, workers)
				for b.Loop() {
					d, err := l.r.Select(l.now, &l.requests[l.next%len(l.requests)])
					if err != nil {
						b.Fatal(err)
					}
					l.next++
					l.r.Release(l.now, d.Reservation)
				}
			})
		}
	}
}

// newBusy returns a fleet with 16 active requests per worker, two of them before their
// first token. There are 256 prompts, used in turns; the first half of each is one of 8
// common prefixes. Some workers hold that half, one in 64 of them three quarters. Overlaps
// are in an index's order.
func newBusy(t testing.TB, workers, overlapping, blocks int) *loaded {
	if invariants.Enabled {
		t.Skip("the walks allocate, and take long")
	}
	l := &loaded{r: newRouter(t, Config{Policy: CostLatency}, make([]WorkerSpec, workers)...)}
	lists := make([][]Overlap, 8)
	for i := range lists {
		for _, more := range []bool{false, true} {
			for w := range overlapping {
				if at := (w + i*workers/8) % workers; (w%64 == 63) == more {
					o := Overlap{Worker: worker1(at), Device: blocks / 2}
					if more {
						o.Device = blocks * 3 / 4
					}
					lists[i] = append(lists[i], o)
				}
			}
		}
	}
	for i := range 256 {
		req := Request{PromptTokens: blocks*16 + 5, Overlaps: lists[i%len(lists)]}
		for b := range blocks {
			of := i
			if b < blocks/2 {
				of = -1 - i%8
			}
			req.Hashes = append(req.Hashes, kv.BlockHash(mix(uint64(of), uint64(b))))
		}
		l.requests = append(l.requests, req)
	}
	for range 16 * workers {
		l.add(t)
		if n := len(l.active); n > 2*workers {
			l.r.Progress(l.now, l.active[n-2*workers], 0, 1)
		}
	}
	return l
}

// life selects a worker for a request, reports its first token some requests later, and
// releases the oldest request, so that the load stays constant.
func (l *loaded) life(t testing.TB) {
	const apart = 20 * time.Microsecond
	workers := len(l.r.workers)
	at := l.next % len(l.active)
	if !l.r.Release(l.now, l.active[at]) {
		t.Fatal("it has ended")
	}
	l.now += apart
	d, err := l.r.Select(l.now, &l.requests[l.next%len(l.requests)])
	if err != nil {
		t.Fatal(err)
	}
	l.active[at] = d.Reservation
	l.next++
	l.r.Progress(l.now, l.active[(at+len(l.active)-2*workers)%len(l.active)], 0, 1)
}

// BenchmarkRequest measures the whole cost of a request: Select, one Progress, Release.
func BenchmarkRequest(b *testing.B) {
	for _, workers := range []int{8, 64, 512} {
		for _, overlapping := range slices.Compact([]int{0, 8, workers}) {
			for _, blocks := range []int{16, 200, 2000} {
				b.Run(fmt.Sprintf("workers=%d/overlapping=%d/blocks=%d", workers, overlapping, blocks), func(b *testing.B) {
					l := newBusy(b, workers, overlapping, blocks)
					for b.Loop() {
						l.life(b)
					}
				})
			}
		}
	}
}

func TestRequestAllocatesNothing(t *testing.T) {
	for _, overlapping := range []int{0, 8, 64} {
		l := newBusy(t, 64, overlapping, 200)
		for range 3000 {
			l.life(t)
		}
		if allocs := testing.AllocsPerRun(2000, func() { l.life(t) }); allocs != 0 {
			t.Errorf("%v allocations for a request that %d workers have something of", allocs, overlapping)
		}
	}
}

// besideQueue returns a fleet of two models with half of the workers each: those of the
// first are busy and have waiting requests, those of the second are idle.
func besideQueue(t testing.TB, workers, waiting int) (r *Router, idle Request) {
	if invariants.Enabled {
		t.Skip("the walks allocate, and take long")
	}
	r = newRouter(t, Config{MaxQueued: max(1, waiting)})
	for i := range workers {
		spec := WorkerSpec{BlockTokens: 16, Models: []ModelID{ModelID(1 + i%2)}}
		if i%2 == 0 {
			spec.MaxRequests = 1
		}
		if err := r.Join(0, worker1(i), spec); err != nil {
			t.Fatal(err)
		}
	}
	for range workers / 2 {
		selected(t, r, 0, Request{PromptTokens: 64, Model: 1})
	}
	for i := range waiting {
		req := Request{PromptTokens: 64, Model: 1}
		if i%100 == 0 {
			req.Avoid = []kv.Rank{worker1(2 * i % workers)}
		}
		if _, err := r.Wait(time.Duration(i), &req); err != nil {
			t.Fatal(err)
		}
	}
	return r, Request{PromptTokens: 64, Model: 2}
}

// turnBesideQueue serves one request for the idle model, and calls Next as every caller
// must.
func turnBesideQueue(t testing.TB, r *Router, idle *Request) {
	d, err := r.Select(r.now, idle)
	if err != nil {
		t.Fatal(err)
	}
	r.Release(r.now, d.Reservation)
	if _, _, ok := r.Next(r.now); ok {
		t.Fatal("one goes while its workers are busy")
	}
}

func TestSelectBesideQueueAllocatesNothing(t *testing.T) {
	r, idle := besideQueue(t, 64, 300)
	if allocs := testing.AllocsPerRun(1000, func() { turnBesideQueue(t, r, &idle) }); allocs != 0 {
		t.Errorf("%v allocations beside a queue", allocs)
	}
	// Neither does a queue entry that is reused.
	req := Request{PromptTokens: 64, Model: 1}
	r.cfg.MaxQueued++
	turn := func() {
		ticket, err := r.Wait(r.now, &req)
		if err != nil || !r.Cancel(ticket) {
			t.Fatal(err)
		}
	}
	turn()
	if allocs := testing.AllocsPerRun(1000, turn); allocs != 0 {
		t.Errorf("%v allocations for Wait and Cancel", allocs)
	}
}

func BenchmarkSelectBesideQueue(b *testing.B) {
	for _, waiting := range []int{0, 1000, 100_000} {
		b.Run(fmt.Sprintf("workers=512/models=2/waiting=%d", waiting), func(b *testing.B) {
			r, idle := besideQueue(b, 512, waiting)
			for b.Loop() {
				turnBesideQueue(b, r, &idle)
			}
		})
	}
}
