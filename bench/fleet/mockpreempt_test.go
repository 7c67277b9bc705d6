package fleet

import (
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

func TestNewestIsPreempted(t *testing.T) {
	w := mockOf(mockSizes{Blocks: 10, BlockTokens: 4})
	w.limit = 10
	for id := range 3 { // 3 blocks each; the 13th token needs a 4th
		submit(t, w, 0, request(id, tokensFrom(id+1, 12), 4, 4))
	}
	rep := drain(t, w, 30)
	if !slices.Equal(rep.Preempted, []int{2}) || !slices.Equal(rep.Ended, []int{0, 1, 2}) || len(rep.Tokens) != 12 || rep.Computed != 36 {
		t.Errorf("%+v", rep)
	}
	// It had 13 tokens, 12 with KV; its last block may still be cached.
	if rep.Recomputed > 12 {
		t.Errorf("%d tokens computed again", rep.Recomputed)
	}
}

// TestPreemptedAreFirstInTheQueue: a preempted sequence is admitted first, once its blocks
// fit. A block taken for a decoding sequence goes to no other one.
func TestPreemptedAreFirstInTheQueue(t *testing.T) {
	w := mockOf(mockSizes{Blocks: 10, BlockTokens: 4, MaxSeqs: 3})
	w.limit = 10
	for id := range 3 {
		submit(t, w, 0, request(id, tokensFrom(id+1, 12), 4, 4))
	}
	submit(t, w, 0, request(3, tokensFrom(4, 3), 9, 4)) // a block, which there is after the preemption
	step(t, w)
	step(t, w) // the first tokens; 9 of 10 blocks are held, so the second finds none
	if u := w.Usage(); u != (Usage{UsedBlocks: 8, Waiting: 2, Running: 2}) {
		t.Fatalf("%+v", u)
	}
	if first := w.waiting[0].req.ID; first != 2 {
		t.Fatalf("request %d is the next", first)
	}
	rep := drain(t, w, 30)
	if !slices.Equal(rep.Preempted, []int{2}) || !slices.Equal(rep.Ended, []int{0, 1, 2, 3}) {
		t.Fatalf("%+v", rep)
	}
}

// TestResumedFindsItsBlocks: a preempted request finds its cached blocks again, including
// those of its output.
func TestResumedFindsItsBlocks(t *testing.T) {
	w := mockOf(mockSizes{Blocks: 20, BlockTokens: 4})
	submit(t, w, 0, request(1, tokensFrom(1, 10), 30, 4))
	for tokens := 0; tokens < 20; {
		tokens += len(step(t, w).Tokens)
	}
	// 30 tokens, of which 28 fill 7 blocks; the current pass computes the 30th.
	w.preempt()
	rep := drain(t, w, 20)
	if rep.Recomputed != 1 || rep.Computed != 0 || rep.Cached != 0 || len(rep.Tokens) != 10 {
		t.Fatalf("%+v", rep)
	}
}

func TestPromptsGetTheRestOfTheBudget(t *testing.T) {
	w := mockOf(mockSizes{Blocks: 100, BlockTokens: 4, MaxSeqs: 4, BatchTokens: 12})
	for id := range 3 {
		submit(t, w, 0, request(id, tokensFrom(id+1, 4), 9, 4))
	}
	step(t, w)
	submit(t, w, w.until, request(3, tokensFrom(4, 20), 1, 4))
	computed := []int{step(t, w).Computed}
	for range 3 {
		computed = append(computed, step(t, w).Computed)
	}
	if want := []int{12, 9, 9, 2}; !slices.Equal(computed, want) {
		t.Fatalf("computed %v, want %v", computed, want)
	}
}

// TestEventsStayUntilTheNextPass: the events of a report stay valid while the next pass is
// composed.
func TestEventsStayUntilTheNextPass(t *testing.T) {
	w := mockOf(mockSizes{Blocks: 100, BlockTokens: 4, MaxSeqs: 1})
	first, second := request(1, tokensFrom(1, 12), 1, 4), request(2, tokensFrom(2, 16), 1, 4)
	submit(t, w, 0, first)
	submit(t, w, 0, second)
	step(t, w)
	rep := step(t, w)
	if w.found(second.Hashes) != 4 {
		t.Fatal("the second has not begun")
	}
	for i, b := range rep.Events[0].Blocks {
		if b.Hash != first.Hashes[i] || b.Local != first.Locals[i] || len(rep.Events[0].Blocks) != 3 {
			t.Fatalf("block %d is %#x, want %#x", i, b.Hash, first.Hashes[i])
		}
	}
	if rep = step(t, w); len(rep.Events) != 1 || rep.Events[0].Blocks[3].Hash != second.Hashes[3] {
		t.Fatalf("%+v", rep.Events)
	}
}

func TestEventsAreOfOneRun(t *testing.T) {
	var l eventLog
	stored := func(parent kv.BlockHash, hasParent bool, hash kv.BlockHash) {
		l.stored(parent, hasParent, kv.Block{Hash: hash, Local: kv.LocalHash(hash)})
	}
	stored(0, false, 1)
	stored(1, true, 2)
	stored(9, true, 3)
	stored(9, true, 4)
	l.removed(9)
	l.removed(8)
	stored(4, true, 5)
	sizes := []int{}
	for _, e := range l {
		sizes = append(sizes, len(e.Blocks)+10*len(e.Hashes))
	}
	if !slices.Equal(sizes, []int{2, 1, 1, 20, 1}) {
		t.Fatalf("%v: %+v", sizes, l)
	}
}
