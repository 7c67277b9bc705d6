package scheduler

import (
	"slices"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

// desk is a pool with a mailbox, like the pool actor: it handles questions and returns in
// the order in which they were sent.
type desk struct {
	pool  *mempool.Pool
	queue []func() // messages not handled yet
}

func newDesk(t *testing.T, pages int) *desk {
	t.Helper()
	pool, err := mempool.NewPool(pages)
	if err != nil {
		t.Fatal(err)
	}
	return &desk{pool: pool}
}

// pump puts the scheduler's question and its surplus pages into the pool's mailbox, as a
// shell does after each input. It returns the number of messages that it sent.
func (d *desk) pump(s *Scheduler) (sent int) {
	if n := s.Want(); n > 0 {
		sent++
		d.queue = append(d.queue, func() {
			pages, _ := d.pool.Grant(min(n, d.pool.FreePages()), nil)
			s.Grant(pages, d.pool.FreePages())
		})
	}
	if pages := s.Surplus(nil); len(pages) > 0 {
		sent++
		d.queue = append(d.queue, func() { d.pool.Return(pages) })
	}
	return sent
}

func (d *desk) handle() {
	for len(d.queue) > 0 {
		f := d.queue[0]
		d.queue = d.queue[1:]
		f()
	}
}

// run steps until nothing runs, with the pool answering at once.
func (d *desk) run(t *testing.T, s *Scheduler, m *sim) (out []Output) {
	t.Helper()
	for range 1000 {
		p := s.Next(time.Millisecond)
		if p == nil {
			if d.pump(s) == 0 {
				return out
			}
			d.handle()
			continue
		}
		res, err := m.run(&p.Batch)
		if err != nil {
			t.Fatal(err)
		}
		out = s.Complete(time.Millisecond, p, res, out)
		d.pump(s)
		d.handle()
	}
	t.Fatal("no end")
	return nil
}

func ones(n int) []kv.Token { return slices.Repeat([]kv.Token{1}, n) }

// TestSurplusWhileAsked: pages are returned while the pool has not answered Want yet, so
// its answer describes the pool before the return. The scheduler must not believe that the
// pool stays empty.
func TestSurplusWhileAsked(t *testing.T) {
	m := newSim(t, 1, 16, 4, 64)
	s, err := New(Config{DisableCache: true, LeaseLowPages: 1, LeaseBulkPages: 12, LeaseHighPages: 4}, m.info)
	if err != nil {
		t.Fatal(err)
	}
	d := newDesk(t, m.info.NumPages)
	if err := s.Add(0, Request{ID: 1, Prompt: ones(12), MaxTokens: 1}); err != nil {
		t.Fatal(err)
	}
	s.Next(0)
	d.pump(s)
	d.handle() // 12 pages
	p := s.Next(0)
	d.pump(s) // none is idle: asks for the other 4; the pool is busy
	res, err := m.run(&p.Batch)
	if err != nil {
		t.Fatal(err)
	}
	s.Complete(0, p, res, nil) // 12 are idle
	d.pump(s)                  // 8 go back, after the question
	if err := s.Add(0, Request{ID: 2, Prompt: ones(14), MaxTokens: 1}); err != nil {
		t.Fatal(err)
	}
	d.handle()
	if out := d.run(t, s, m); len(out) != 1 || out[0].Ending.Reason != Length {
		t.Errorf("outputs %+v, %d pages idle, %d free in the pool: the request waits for ever", out, s.Metrics().IdlePages, d.pool.FreePages())
	}
}

// TestAbortEndsDemand checks that a request that waited for pages and was aborted leaves
// no demand.
func TestAbortEndsDemand(t *testing.T) {
	m := newSim(t, 1, 64, 4, 64)
	s, err := New(Config{}, m.info)
	if err != nil {
		t.Fatal(err)
	}
	d := newDesk(t, m.info.NumPages)
	if err := s.Add(0, Request{ID: 1, Prompt: ones(20), MaxTokens: 1}); err != nil {
		t.Fatal(err)
	}
	s.Next(0)
	d.pump(s)
	s.Abort(0, 1, nil, nil)
	for range 100 {
		d.handle()
		if p := s.Next(0); p != nil {
			t.Fatal("a plan of nothing")
		}
		if d.pump(s) == 0 {
			return
		}
	}
	t.Error("nothing is open, yet pages go to and fro for ever")
}

// TestGrantEndsDemand checks that a demand that was met while a plan runs is not repeated.
func TestGrantEndsDemand(t *testing.T) {
	m := newSim(t, 1, 64, 4, 64)
	s, err := New(Config{DisableCache: true, LeaseLowPages: 1, LeaseBulkPages: 4, LeaseHighPages: 8}, m.info)
	if err != nil {
		t.Fatal(err)
	}
	d := newDesk(t, m.info.NumPages)
	for id := range RequestID(3) {
		if err := s.Add(0, Request{ID: id, Prompt: ones(2), MaxTokens: 10}); err != nil {
			t.Fatal(err)
		}
	}
	steps := 0
	for s.Open() > 0 {
		p := s.Next(0)
		if p == nil {
			d.pump(s)
			d.handle()
			continue
		}
		steps++
		for i := 0; d.pump(s) > 0; i++ { // while the plan runs
			d.handle()
			if i == 20 {
				t.Fatalf("step %d: pages go to and fro while the plan runs", steps)
			}
		}
		res, err := m.run(&p.Batch)
		if err != nil {
			t.Fatal(err)
		}
		s.Complete(0, p, res, nil)
	}
	if n := s.Metrics().Preemptions; n > 0 {
		t.Errorf("%d preemptions, though the pool has pages", n)
	}
}

// TestTwinsShareOneStep checks that of two equal prompts that arrive together and fit into
// one step, the second waits for the first.
func TestTwinsShareOneStep(t *testing.T) {
	m := newSim(t, 4, 64, 4, 200)
	s, err := New(Config{StepTokens: 512, LeaseBulkPages: 64, LeaseHighPages: 64}, m.info)
	if err != nil {
		t.Fatal(err)
	}
	d := newDesk(t, m.info.NumPages)
	for id := range RequestID(3) {
		if err := s.Add(0, Request{ID: id, Prompt: ones(81), MaxTokens: 2}); err != nil {
			t.Fatal(err)
		}
	}
	s.Next(0)
	d.pump(s)
	d.handle()
	d.run(t, s, m)
	if m.given != 81+1+1 {
		t.Errorf("%d prompt tokens were run for three equal prompts of 81, want 83", m.given)
	}
}

// TestRecomputedCountsOnlyRepeats checks that only tokens that had run before count as
// recomputed.
func TestRecomputedCountsOnlyRepeats(t *testing.T) {
	m := newSim(t, 1, 20, 4, 64)
	s, err := New(Config{DisableCache: true, LeaseBulkPages: 20, LeaseHighPages: 20}, m.info)
	if err != nil {
		t.Fatal(err)
	}
	d := newDesk(t, m.info.NumPages)
	for id := range RequestID(2) {
		if err := s.Add(0, Request{ID: id, Prompt: ones(5), MaxTokens: 12}); err != nil {
			t.Fatal(err)
		}
	}
	s.Next(0)
	d.pump(s)
	d.handle()
	d.run(t, s, m)
	mt := s.Metrics()
	if mt.Preemptions == 0 {
		t.Fatal("no preemption")
	}
	// Each position of both requests runs once, but for the repeats.
	ran := m.ran()
	once := 2 * (5 + 12 - 1)
	if int(mt.RecomputedTokens) != ran-once {
		t.Errorf("%d tokens recomputed by the metrics, %d in truth (%d preemptions)", mt.RecomputedTokens, ran-once, mt.Preemptions)
	}
}

// TestPlacedRequestDemandsNoMore checks that a demand for pages ends with the step in which
// a request did not fit, if the pages that are left suffice after that.
func TestPlacedRequestDemandsNoMore(t *testing.T) {
	m := newSim(t, 1, 64, 4, 64)
	s, err := New(Config{LeaseLowPages: 4, LeaseBulkPages: 24, LeaseHighPages: 30}, m.info)
	if err != nil {
		t.Fatal(err)
	}
	d := newDesk(t, m.info.NumPages)
	if err := s.Add(0, Request{ID: 1, Prompt: ones(20), MaxTokens: 3}); err != nil {
		t.Fatal(err)
	}
	s.Next(0)
	d.pump(s)
	d.handle()
	p := s.Next(0)
	if p == nil || s.Metrics().IdlePages != 4 {
		t.Fatalf("plan %v, %d pages idle", p, s.Metrics().IdlePages)
	}
	if n := s.Want(); n != 0 {
		t.Errorf("%d pages are wanted, and no request waits for them", n)
	}
	res, err := m.run(&p.Batch)
	if err != nil {
		t.Fatal(err)
	}
	s.Complete(0, p, res, nil)
	s.Next(0) // takes one of the four
	if n := s.Want(); n != 24 {
		t.Errorf("%d pages wanted below the low-water mark", n)
	}
}

// TestSurplusGoesAndComes checks that pages above the high-water mark go back and can be
// granted again.
func TestSurplusGoesAndComes(t *testing.T) {
	m := newSim(t, 1, 32, 4, 64)
	s, err := New(Config{DisableCache: true, LeaseLowPages: 1, LeaseBulkPages: 32, LeaseHighPages: 4}, m.info)
	if err != nil {
		t.Fatal(err)
	}
	d := newDesk(t, m.info.NumPages)
	for id := range RequestID(3) {
		if err := s.Add(0, Request{ID: id, Prompt: ones(30), MaxTokens: 1}); err != nil {
			t.Fatal(err)
		}
		if out := d.run(t, s, m); len(out) != 1 {
			t.Fatalf("request %d: %+v", id, out)
		}
		if idle := s.Metrics().IdlePages; idle != 4 || d.pool.FreePages() != 28 {
			t.Errorf("%d pages idle, %d free in the pool", idle, d.pool.FreePages())
		}
	}
}
