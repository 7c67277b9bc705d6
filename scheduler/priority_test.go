package scheduler

import (
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// learnt returns a bed that expects outputs of one token, so that no pages are kept free
// for running requests.
func learnt(t *testing.T, cfg Config, pageTokens, pages int) *bed {
	t.Helper()
	b := newBed(t, cfg, pageTokens, pages)
	b.add(1000, seq(90, 1), 1)
	b.run()
	b.s.FlushCache()
	return b
}

// running returns the requests with a slot, as a set.
func (b *bed) running() map[RequestID]bool {
	set := map[RequestID]bool{}
	for _, r := range b.s.Running(b.now, nil) {
		set[r.Request] = true
	}
	return set
}

// TestPreemptedWaitsForHigherPriority: with two plans in flight, a sequence that was preempted
// needs a page before it has sampled again. It must wait rather than take one from a
// higher priority.
func TestPreemptedWaitsForHigherPriority(t *testing.T) {
	b := learnt(t, Config{MaxInflight: 2, ShareTokens: 1000}, 2, 8)
	b.request(Request{ID: 1, Prompt: seq(0, 4), MaxTokens: 3, Priority: 9})
	b.request(Request{ID: 2, Prompt: seq(20, 4), MaxTokens: 3, Priority: 5})
	b.request(Request{ID: 3, Prompt: seq(40, 3), MaxTokens: 3})
	b.wantRows("3[0,3) 1[0,4) 2[0,4)")
	b.s.preempt(b.now, b.s.running.all[2])
	b.s.Next(b.now) // 1 and 2 take their third pages, 3 resumes on the rest
	b.s.Next(b.now) // 3 lacks a page for its next token, and there is none
	if got := b.running(); !got[1] || !got[2] || !got[3] || b.s.metrics.Preemptions != 1 {
		t.Errorf("%v run, %d preemptions, want 1, 2 and 3 and the one that the test did", got, b.s.metrics.Preemptions)
	}
}

// TestPriorityInTheBudget checks that a prompt of high priority gets the budget of a step
// before MaxPrefilling prompts of lower priority. Only the quarter of the prompt that was
// admitted first is not given to it.
func TestPriorityInTheBudget(t *testing.T) {
	b := newBed(t, Config{Policy: Priority, StepTokens: 64, ChunkTokens: 64, MaxPrefilling: 4, AttentionTokens: -1}, 16, 400)
	for id := RequestID(1); id <= 6; id++ {
		b.request(Request{ID: id, Prompt: long(kv.Token(id), 60), MaxTokens: 1})
	}
	b.step()
	b.request(Request{ID: 9, Prompt: long(9, 190), MaxTokens: 1, Priority: 9})
	b.wantRows("9[0,48) 2[4,20)")
	if n := b.steps(9); n != 3 {
		t.Errorf("%d steps more, want 3: 190 tokens at 48 a step", n)
	}
}

// TestRefusedAdmissionLeavesTheCacheAlone checks that a refused admission counts no lookup
// in the cache and makes no prefix recent.
func TestRefusedAdmissionLeavesTheCacheAlone(t *testing.T) {
	b := learnt(t, Config{ShareTokens: 1000}, 4, 14)
	b.add(1, seq(0, 20), 1)
	b.run() // 5 pages stay cached
	b.add(2, seq(50, 20), 20)
	b.step() // 5 pages are held, more later
	b.add(3, append(seq(0, 20), seq(60, 30)...), 1)
	before := b.s.cache.Stats()
	for range 3 {
		b.step()
	}
	after := b.s.cache.Stats()
	if b.running()[3] {
		t.Fatal("3 runs: it should not fit")
	}
	if before.Lookups != after.Lookups || before.HitTokens != after.HitTokens {
		t.Errorf("%d look-ups with %d hit tokens became %d with %d", before.Lookups, before.HitTokens, after.Lookups, after.HitTokens)
	}
}

// TestSharedPagesAreNotFreed checks that no sequence is preempted for pages that others
// share with it, since that would not free them.
func TestSharedPagesAreNotFreed(t *testing.T) {
	b := learnt(t, Config{Policy: Priority}, 4, 16)
	b.request(Request{ID: 1, Prompt: seq(0, 40), MaxTokens: 20})
	b.step() // computes 10 pages
	b.request(Request{ID: 2, Prompt: append(seq(0, 40), 90), MaxTokens: 20, Priority: 5})
	b.step() // shares them
	b.request(Request{ID: 3, Prompt: seq(60, 24), MaxTokens: 1, Priority: 3})
	for range 3 {
		b.step()
	}
	if got := b.running(); !got[1] || !got[2] || got[3] || b.s.metrics.Preemptions > 0 {
		t.Errorf("%v run after %d preemptions, want 1 and 2 after none", got, b.s.metrics.Preemptions)
	}
}

// TestWhyCountsNoMatchedPagesAsFree checks that Why does not count the pages of a request's
// own cached prefix as free.
func TestWhyCountsNoMatchedPagesAsFree(t *testing.T) {
	b := learnt(t, Config{ShareTokens: 1000}, 4, 14)
	b.add(1, seq(0, 20), 1)
	b.run() // 5 pages stay cached
	b.add(2, seq(50, 20), 20)
	b.step() // 5 pages and 1 for the output
	b.add(3, append(seq(0, 20), seq(60, 30)...), 1)
	b.step()
	w := b.s.Why(3)[0]
	if w.Cause != AwaitsPages || w.CachedTokens != 20 || w.NeedPages != 8 || w.FreePages != 3 {
		t.Errorf("%+v: want 8 pages needed and 3 free", w)
	}
}

// TestSeveralTakePlacesInOneStep checks that several waiting requests of high priority can
// preempt running ones in one step, and that a difference of priority below the threshold
// preempts none.
func TestSeveralTakePlacesInOneStep(t *testing.T) {
	b := newBed(t, Config{Policy: Priority, MaxRunning: 3, PreemptThreshold: 3}, 4, 60)
	for id := RequestID(1); id <= 3; id++ {
		b.request(Request{ID: id, Prompt: long(kv.Token(id), 8), MaxTokens: 20, Priority: int32(id)})
	}
	b.step()
	b.request(Request{ID: 11, Prompt: long(11, 8), MaxTokens: 20, Priority: 5})
	b.request(Request{ID: 12, Prompt: long(12, 8), MaxTokens: 20, Priority: 5})
	b.request(Request{ID: 13, Prompt: long(13, 8), MaxTokens: 20, Priority: 5})
	b.step()
	if got := b.running(); !got[11] || !got[12] || !got[3] || len(got) != 3 {
		t.Errorf("%v run, want 11 and 12 in the places of 1 and 2, and 3", got)
	}
}
