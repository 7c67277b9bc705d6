package scheduler

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// TestBindsCarrySampling checks that a bind carries the request's sampling, and for
// penalties the tokens that they count, including the output so far when a preempted
// request comes back.
func TestBindsCarrySampling(t *testing.T) {
	b := newLogitsBed(t, Config{DisableCache: true}, 15)
	b.add(1, seq(0, 10), 40)
	sampling := engine.SamplingParams{Temperature: 0.5, Seed: 7, RepetitionPenalty: 1.5}
	if err := b.s.Add(b.now, Request{ID: 2, Prompt: seq(50, 10), MaxTokens: 40, Sampling: sampling}); err != nil {
		t.Fatal(err)
	}
	binds, got := 0, 0
	for b.s.Open() > 0 {
		p := b.s.Next(b.now)
		for i, bind := range p.Batch.Binds {
			if bind.Sampling.Seed != 7 {
				if bind.Prompt != nil {
					t.Errorf("bind %d counts tokens without a penalty", i)
				}
				continue
			}
			binds++
			want := b.sim.Expect(seq(50, 10), sampling, got, nil)
			if bind.Sampling.Temperature != 0.5 || !slices.Equal(bind.Prompt, seq(50, 10)) || !slices.Equal(bind.Output, want) {
				t.Errorf("bind %+v after output %v", bind, want)
			}
		}
		res, err := b.sim.run(&p.Batch)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range b.s.Complete(b.now, p, res, nil) {
			if o.Request == 2 && o.Sampled {
				got++
			}
		}
	}
	if binds < 2 || got != 40 {
		t.Errorf("%d binds, %d tokens", binds, got)
	}
}

// TestAdmissionLeavesRoomToGrow checks that a newcomer waits if it would take the page that
// a running sequence will need; otherwise it would be preempted at once.
func TestAdmissionLeavesRoomToGrow(t *testing.T) {
	b := newBed(t, Config{DisableCache: true}, 1, 10)
	b.add(1, seq(0, 5), 4)
	b.add(2, seq(50, 5), 1)
	b.wantRows("1[0,5)")
	b.run()
	if m := b.s.Metrics(); m.Preemptions != 0 {
		t.Errorf("%d preemptions", m.Preemptions)
	}
}

// TestBypassOfUnfitIsBounded checks that a request that does not fit is bypassed by
// smaller ones MaxBypass times, and that all pages are kept for it after that.
func TestBypassOfUnfitIsBounded(t *testing.T) {
	b := newBed(t, Config{DisableCache: true, MaxBypass: 2}, 1, 10)
	b.add(1, seq(0, 5), 5)
	b.add(2, seq(50, 8), 1)
	for id := RequestID(3); id < 6; id++ {
		b.add(id, seq(70, 1), 1)
	}
	b.wantRows("3[0,1) 4[0,1) 1[0,5)")
	if w := b.s.Why(2); len(w) != 1 || w[0].Cause != AwaitsPages || w[0].NeedPages != 8 || w[0].Bypassed != 2 {
		t.Errorf("why: %v", w)
	}
	b.wantRows("1[5,6)") // 5 would fit
	b.wantRows("1[6,7)")
	if w := b.s.Why(5); w[0].Cause != AwaitsReserved || w[0].Behind != 2 {
		t.Errorf("why: %v", w)
	}
	b.wantRows("1[7,8)")
	b.wantRows("1[8,9)")
	b.wantRows("5[0,1) 2[0,8)")
}

// TestFollowerIsPassedOver checks that a follower does not hold up those after it, and
// finds the prefix of its leader while that one decodes.
func TestFollowerIsPassedOver(t *testing.T) {
	b := newBed(t, Config{StepTokens: 100, ShareTokens: 4}, 4, 60)
	b.add(1, seq(0, 20), 3)
	b.add(2, append(seq(0, 20), 90, 91), 1)
	b.add(3, seq(60, 5), 1)
	b.wantRows("3[0,5) 1[0,20)")
	b.wantRows("1[20,21) 2[20,22)")
}

// TestFollowersHaveOneNamespace checks that requests of different namespaces do not share
// prompts in flight.
func TestFollowersHaveOneNamespace(t *testing.T) {
	b := newBed(t, Config{StepTokens: 100, ShareTokens: 4}, 4, 60)
	b.add(1, seq(0, 20), 3)
	if err := b.s.Add(b.now, Request{ID: 2, Prompt: seq(0, 20), MaxTokens: 1, Namespace: kv.Namespace{Salt: "other"}}); err != nil {
		t.Fatal(err)
	}
	b.wantRows("1[0,20) 2[0,20)")
}

// TestOutputsCarryLogprobAndDigest checks that the log-probability of a token reaches the
// caller, and that digests are asked for only where the request wants them.
func TestOutputsCarryLogprobAndDigest(t *testing.T) {
	b := newBed(t, Config{}, 4, 40)
	b.add(1, seq(0, 5), 1)
	if err := b.s.Add(b.now, Request{ID: 2, Prompt: seq(50, 5), MaxTokens: 1, Digest: true}); err != nil {
		t.Fatal(err)
	}
	p := b.s.Next(b.now)
	if p.Batch.Rows[0].Digest || !p.Batch.Rows[1].Digest {
		t.Errorf("rows %+v", p.Batch.Rows)
	}
	res, err := b.sim.run(&p.Batch)
	if err != nil {
		t.Fatal(err)
	}
	res.Out[1].Logprob, res.Out[1].Digest = -1.5, 99
	out := b.s.Complete(b.now, p, res, nil)
	if len(out) != 2 || out[1].Logprob != -1.5 || out[1].Digest != 99 || out[0].Digest != 0 {
		t.Errorf("outputs %+v", out)
	}
}

// TestEndingTimes checks the times and reasons of endings, and that the first of two aborts
// counts.
func TestEndingTimes(t *testing.T) {
	b := newBed(t, Config{MaxRunning: 1}, 4, 40)
	b.add(1, seq(0, 5), 2)  // at 1 ms
	b.add(2, seq(50, 5), 3) // at 2 ms
	endings := b.run()      // 1 runs at 3 and 4 ms, 2 at 5, 6 and 7
	const ms = time.Millisecond
	if e := endings[2]; e.Queued != 3*ms || e.FirstToken != 3*ms || e.Total != 5*ms || e.Reason != Length {
		t.Errorf("bill %+v", e)
	}
	stop := b.sim.expect(seq(0, 5), 2)[1]
	if err := b.s.Add(b.now, Request{ID: 3, Prompt: seq(0, 5), MaxTokens: 2, StopTokens: seq(int(stop), 1)}); err != nil {
		t.Fatal(err)
	}
	if e := b.run()[3]; e.Reason != Stop { // at its limit too, but the stop token counts
		t.Errorf("bill %+v", e)
	}
	b.add(4, seq(0, 5), 9)
	p := b.s.Next(b.now)
	first := errors.New("first")
	b.s.Abort(b.now, 4, first, nil)
	b.s.Abort(b.now, 4, errors.New("second"), nil)
	res, err := b.sim.run(&p.Batch)
	if err != nil {
		t.Fatal(err)
	}
	if out := b.s.Complete(b.now, p, res, nil); len(out) != 1 || out[0].Ending.Err != first {
		t.Errorf("outputs %+v", out)
	}
}

// TestPreemptedResumesFromCache checks that a preempted request resumes from its cached
// KV.
func TestPreemptedResumesFromCache(t *testing.T) {
	b := newBed(t, Config{}, 4, 10)
	b.add(1, seq(0, 8), 12)
	b.add(2, seq(50, 10), 16) // gives way to itself at 20 tokens, and 1 needs no more
	endings := b.run()
	m := b.s.Metrics()
	if endings[2].Preemptions == 0 || m.RecomputedTokens > 0 || m.PromptTokens != 18 || m.CachedTokens != 0 {
		t.Errorf("endings %+v\n%v", endings, m)
	}
}

// TestLimitsAtTheEdge checks that the last output token, which is never run, needs neither
// position nor page.
func TestLimitsAtTheEdge(t *testing.T) {
	for _, tc := range []struct{ pages, positions, prompt, out int }{{50, 40, 30, 11}, {40, 200, 30, 11}, {50, 40, 40, 1}} {
		for _, more := range []int{0, 1} {
			sim := newSim(t, 1, tc.pages, 2, tc.positions)
			s, err := New(Config{}, sim.info)
			if err != nil {
				t.Fatal(err)
			}
			err = s.Add(0, Request{ID: 1, Prompt: seq(0, tc.prompt), MaxTokens: tc.out + more})
			if (err != nil) != (more > 0) {
				t.Errorf("%+v and %d more: %v", tc, more, err)
			}
		}
	}
}

// TestOldestIsAdmittedAtOnce checks that each OldestEvery-th admission goes to the oldest, whatever
// others have cached.
func TestOldestIsAdmittedAtOnce(t *testing.T) {
	b := newBed(t, Config{Policy: LPM, MaxRunning: 1, OldestEvery: 4}, 4, 60)
	b.add(1, seq(0, 20), 1)
	b.run()
	b.add(2, seq(60, 9), 1) // nothing cached
	b.add(3, seq(0, 17), 1)
	b.wantRows("3[16,17)")
	b.add(4, seq(0, 17), 1)
	b.wantRows("4[16,17)")
	b.add(5, seq(0, 17), 1)
	b.wantRows("2[0,9)")
	b.wantRows("5[16,17)")
}

// TestOpenPageIsShared checks that whole pages of a prompt in flight are found in the tree
// and the open page is copied from its owner: of identical prompts, all but the first
// compute one token.
func TestOpenPageIsShared(t *testing.T) {
	for _, pageTokens := range []int{1, 4, 16} {
		b := newBed(t, Config{StepTokens: 100, ShareTokens: 1}, pageTokens, 200/pageTokens)
		b.add(1, seq(0, 19), 8)
		b.add(2, seq(0, 19), 1)
		b.add(3, append(seq(0, 18), 90), 1)
		b.wantRows("1[0,19)")
		b.wantRows("1[19,20) 2[18,19) 3[18,19)")
	}
}

// TestSamplesForkFromOnePrompt checks that samples of a request fork from one computed
// prompt, however short it is.
func TestSamplesForkFromOnePrompt(t *testing.T) {
	b := newBed(t, Config{StepTokens: 100}, 16, 30)
	if err := b.s.Add(b.now, Request{ID: 1, Prompt: seq(0, 21), MaxTokens: 4, Samples: 3, Sampling: engine.SamplingParams{Seed: 5}}); err != nil {
		t.Fatal(err)
	}
	var out []Output
	seeds := map[uint64]bool{}
	for b.s.Open() > 0 {
		p := b.s.Next(b.now)
		for i := range p.Batch.Binds {
			seeds[p.Batch.Binds[i].Sampling.Seed] = true
		}
		res, err := b.sim.run(&p.Batch)
		if err != nil {
			t.Fatal(err)
		}
		out = b.s.Complete(b.now, p, res, out)
		if err := b.s.Check(); err != nil {
			t.Fatal(err)
		}
	}
	if b.sim.given != 21+1+1 || len(seeds) != 3 || !seeds[5] {
		t.Errorf("%d tokens given, seeds %v", b.sim.given, seeds)
	}
	endings, finals := map[int]int{}, 0
	for _, o := range out {
		if o.Ending.Reason == Length {
			endings[o.Sample]++
		}
		if o.Final {
			finals++
		}
	}
	if len(endings) != 3 || finals != 1 || !out[len(out)-1].Final {
		t.Errorf("endings %v, %d final", endings, finals)
	}
}

// TestContinuesAfterFailAndDrain checks that requests are served after Fail with a plan in
// flight, and after Drain.
func TestContinuesAfterFailAndDrain(t *testing.T) {
	b := newBed(t, Config{}, 4, 40)
	b.add(1, seq(0, 10), 3)
	b.s.Next(b.now)
	b.s.Fail(b.now, errRow, nil)
	b.add(2, seq(0, 10), 1)
	b.wantRows("2[0,10)")
	pages := b.s.Drain(nil)
	if len(pages) != 40 {
		t.Errorf("%d pages came back", len(pages))
	}
	b.add(3, seq(0, 10), 1)
	if b.s.Next(b.now) != nil {
		t.Fatal("a plan without pages")
	}
	b.s.Grant(pages[:b.s.Want()], 0)
	b.wantRows("3[0,10)")
}
