package scheduler

import (
	"runtime"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/internal/invariants"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

// long returns n tokens that no other request has.
func long(first kv.Token, n int) []kv.Token {
	tokens := make([]kv.Token, n)
	for i := range tokens {
		tokens[i] = (first + kv.Token(i*i)) % 97
	}
	tokens[0] = first
	return tokens
}

// steps runs until a request has its first token and returns the number of steps.
func (b *bed) steps(id RequestID) int {
	b.t.Helper()
	for n := 1; n < 1000; n++ {
		for _, o := range b.step() {
			if o.Request == id {
				return n
			}
		}
	}
	b.t.Fatalf("%d waits: %v", id, b.s.Why(id))
	return 0
}

// TestLongPromptsDoNotBlockShortOnes checks that a short prompt begins next to any number of
// long ones.
func TestLongPromptsDoNotBlockShortOnes(t *testing.T) {
	b := newBed(t, Config{StepTokens: 16, ChunkTokens: 8}, 4, 400)
	b.add(1, seq(0, 4), 50) // decodes
	b.step()
	for id := RequestID(2); id < 6; id++ {
		b.add(id, long(kv.Token(10*id), 190), 1)
	}
	b.step()
	b.add(9, seq(60, 5), 1)
	if n := b.steps(9); n > 1 {
		t.Errorf("%d steps", n)
	}
	if w := b.s.Why(4); w[0].Cause != AwaitsLong {
		t.Errorf("why: %v", w)
	}
}

// TestCachedPromptIsNotLong checks that a long prompt that is nearly all cached does not count
// as long, even under a policy that does not rank by cached tokens.
func TestCachedPromptIsNotLong(t *testing.T) {
	b := newBed(t, Config{StepTokens: 16, ChunkTokens: 8}, 4, 400)
	b.add(1, long(50, 180), 1)
	b.run()
	b.add(2, long(10, 190), 1)
	b.add(3, long(20, 190), 1)
	b.step()
	b.add(4, append(long(50, 180), 1, 2), 1)
	if n := b.steps(4); n > 1 {
		t.Errorf("%d steps", n)
	}
}

// TestPriorityTakesASlotWithAFullPool checks that a sequence is preempted for its slot
// even while the pool has pages left.
func TestPriorityTakesASlotWithAFullPool(t *testing.T) {
	m := newSim(t, 4, 100, 4, 200)
	s, err := New(Config{Policy: Priority, MaxRunning: 1, LeaseBulkPages: 10}, m.info)
	if err != nil {
		t.Fatal(err)
	}
	pool, _ := mempool.NewPool(100)
	pump := func() {
		if n := s.Want(); n > 0 {
			pages, _ := pool.Grant(n, nil)
			s.Grant(pages, pool.FreePages())
		}
	}
	step := func() (out []Output) {
		pump()
		if p := s.Next(0); p != nil {
			res, err := m.run(&p.Batch)
			if err != nil {
				t.Fatal(err)
			}
			out = s.Complete(0, p, res, nil)
		}
		return out
	}
	if err := s.Add(0, Request{ID: 1, Prompt: seq(0, 10), MaxTokens: 50}); err != nil {
		t.Fatal(err)
	}
	step()
	step()
	if err := s.Add(0, Request{ID: 2, Prompt: seq(50, 10), MaxTokens: 1, Priority: 9}); err != nil {
		t.Fatal(err)
	}
	if out := step(); len(out) != 1 || out[0].Request != 2 || pool.FreePages() == 0 {
		t.Errorf("outputs %+v, %d pages left in the pool", out, pool.FreePages())
	}
}

// TestPriorityPassesTheBlocked checks that a higher priority goes before a lower one for
// which pages are being kept.
func TestPriorityPassesTheBlocked(t *testing.T) {
	b := newBed(t, Config{Policy: Priority, MaxBypass: 1, DisableCache: true, OldestEvery: 1 << 20}, 1, 20)
	b.request(Request{ID: 1, Prompt: seq(0, 10), MaxTokens: 9, Priority: 1})
	b.request(Request{ID: 2, Prompt: seq(20, 15), MaxTokens: 1})
	b.request(Request{ID: 3, Prompt: seq(40, 1)})
	b.step()
	if b.s.queue.blocked == nil {
		t.Fatal("2 does not block")
	}
	b.request(Request{ID: 4, Prompt: seq(60, 1), Priority: 2})
	if n := b.steps(4); n > 1 {
		t.Errorf("%d steps", n)
	}
}

// TestOldestAfterABlockedTenant checks that the oldest request is found after any
// number that can't be taken.
func TestOldestAfterABlockedTenant(t *testing.T) {
	cfg := Config{
		Policy: Priority, MaxRunning: 2, OldestEvery: 2, Tenants: map[string]TenantConfig{"a": {MaxRunning: 1}},
		PreemptThreshold: 100, // only the order matters here
	}
	b := newBed(t, cfg, 4, 100)
	for id := RequestID(1); id <= 40; id++ {
		b.request(Request{ID: id, Tenant: "a", Prompt: seq(int(id), 5), MaxTokens: 90})
	}
	b.request(Request{ID: 50, Prompt: seq(80, 5)})
	for id := RequestID(60); id < 70; id++ {
		b.request(Request{ID: id, Prompt: long(kv.Token(id), 5), Priority: 9})
	}
	if n := b.steps(50); n > 6 {
		t.Errorf("%d steps", n)
	}
}

// TestWaitingTakesLittleMemory checks that waiting samples share their prompt and reserve
// no memory for outputs.
func TestWaitingTakesLittleMemory(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the walks of the tag allocate")
	}
	b := newBed(t, Config{MaxSamples: 64}, 16, 1<<16)
	b.s.info.MaxPositions = 1 << 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for id := range RequestID(4) {
		if err := b.s.Add(0, Request{ID: id, Prompt: long(1, 10_000), MaxTokens: 1 << 19, Samples: 64}); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 4<<20 {
		t.Errorf("%d bytes", took)
	}
}

// TestEndedRequestsAreFreed checks that plans kept for reuse do not keep ended sequences alive.
func TestEndedRequestsAreFreed(t *testing.T) {
	b := newBed(t, Config{}, 4, 400)
	for id := range RequestID(6) {
		b.add(id+1, long(kv.Token(id), 100), 1)
	}
	freed := make(chan RequestID, 8)
	for id := range RequestID(6) {
		runtime.AddCleanup(b.s.open[id+1], func(id RequestID) { freed <- id }, id+1)
	}
	b.run()
	b.add(9, seq(0, 3), 2)
	b.run()
	for n := range 6 {
		runtime.GC()
		select {
		case <-freed:
		case <-time.After(time.Minute):
			t.Fatalf("%d of 6 are freed", n)
		}
	}
}

// TestAbortBeforeDeadline checks that a deadline that passes after an abort changes
// nothing.
func TestAbortBeforeDeadline(t *testing.T) {
	b := newBed(t, Config{}, 4, 40)
	b.request(Request{ID: 1, Prompt: seq(0, 5), MaxTokens: 9, Deadline: time.Second})
	p := b.s.Next(b.now)
	b.s.Abort(b.now, 1, nil, nil)
	b.s.Expire(2*time.Second, nil)
	res, err := b.sim.run(&p.Batch)
	if err != nil {
		t.Fatal(err)
	}
	if out := b.s.Complete(b.now, p, res, nil); len(out) != 1 || out[0].Ending.Err != ErrAborted || b.s.metrics.Expired != 0 {
		t.Errorf("%+v, %d expired", out, b.s.metrics.Expired)
	}
}
