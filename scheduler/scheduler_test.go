package scheduler

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/internal/invariants"
	"github.com/coppice-llm/coppice/kv"
)

// bed is a scheduler on a sim that holds the whole pool from the start.
type bed struct {
	t   *testing.T
	sim *sim
	s   *Scheduler
	now time.Duration
	log []string // rows of the last step: "id[start,end)"

	completed int // plans
}

func newBed(t *testing.T, cfg Config, pageTokens, pages int) *bed {
	t.Helper()
	b := &bed{t: t, sim: newSim(t, pageTokens, pages, 8, 200)}
	cfg.LeaseLowPages, cfg.LeaseBulkPages, cfg.LeaseHighPages = pages, pages, pages
	var err error
	if b.s, err = New(cfg, b.sim.info); err != nil {
		t.Fatal(err)
	}
	all := make([]kv.PageID, b.s.Want())
	for i := range all {
		all[i] = kv.PageID(i)
	}
	b.s.Grant(all, 0)
	return b
}

// seq returns n tokens that count up from a start value: equal starts share prefixes.
func seq(from, n int) []kv.Token {
	tokens := make([]kv.Token, n)
	for i := range tokens {
		tokens[i] = kv.Token((from + i) % 97)
	}
	return tokens
}

func (b *bed) add(id RequestID, prompt []kv.Token, maxTokens int) {
	b.t.Helper()
	b.now += time.Millisecond
	if err := b.s.Add(b.now, Request{ID: id, Prompt: prompt, MaxTokens: maxTokens}); err != nil {
		b.t.Fatal(err)
	}
}

// step runs one plan and returns its outputs; the log is empty if there was none.
func (b *bed) step() []Output {
	b.t.Helper()
	b.now += time.Millisecond
	b.log = b.log[:0]
	p := b.s.Next(b.now)
	if p == nil {
		return nil
	}
	for i := range p.Batch.Rows {
		r := &p.Batch.Rows[i]
		b.log = append(b.log, fmt.Sprintf("%d[%d,%d)", p.rows[i].q.req.ID, r.Start, int(r.Start)+r.Len()))
	}
	res, err := b.sim.run(&p.Batch)
	if err != nil {
		b.t.Fatal(err)
	}
	out := b.s.Complete(b.now, p, res, nil)
	// A walk takes longer than a step. Of many steps some have one; with -tags invariants each mutation has its own.
	if b.completed++; b.completed < 300 || b.completed%8 == 0 || b.s.Open() == 0 {
		if err := b.s.Check(); err != nil {
			b.t.Fatal(err)
		}
	}
	return out
}

func (b *bed) wantRows(rows string) []Output {
	b.t.Helper()
	out := b.step()
	if got := strings.Join(b.log, " "); got != rows {
		b.t.Fatalf("step ran %q, want %q", got, rows)
	}
	return out
}

// run steps to the end and returns the endings by request.
func (b *bed) run() map[RequestID]Ending {
	b.t.Helper()
	endings := map[RequestID]Ending{}
	for i := 0; b.s.Open() > 0; i++ {
		if i > 10_000 {
			b.t.Fatal("requests wait for ever")
		}
		for _, o := range b.step() {
			if o.Ending.Reason != NotEnded {
				endings[o.Request] = o.Ending
			}
		}
	}
	return endings
}

func TestChunkedPrefillWithDecode(t *testing.T) {
	b := newBed(t, Config{StepTokens: 8, ShareTokens: 1000}, 4, 40)
	b.add(1, seq(0, 3), 4)
	b.add(2, seq(50, 20), 2)
	b.wantRows("1[0,3) 2[0,5)")
	b.wantRows("1[3,4) 2[5,12)") // the decode row first, the rest of the budget to the prompt
	b.wantRows("1[4,5) 2[12,19)")
	out := b.wantRows("1[5,6) 2[19,20)")
	if len(out) != 2 || out[0].Ending.Reason != Length || !out[1].Sampled {
		t.Errorf("outputs %+v", out)
	}
	b.wantRows("2[20,21)")
	if b.s.Open() != 0 {
		t.Error("requests are open")
	}
}

func TestMatchIsCappedAndTheBoundaryPageCopied(t *testing.T) {
	b := newBed(t, Config{}, 4, 40)
	b.add(1, seq(0, 10), 3)
	b.run() // 12 tokens computed: 3 whole pages
	b.add(2, seq(0, 8), 1)
	b.wantRows("2[7,8)") // whole pages [0,4), and 3 tokens of the copied page [4,8)
	b.add(3, append(seq(0, 6), 90), 1)
	e := func() Ending {
		out := b.wantRows("3[6,7)")
		return out[0].Ending
	}()
	if e.CachedTokens != 6 || e.PromptTokens != 7 {
		t.Errorf("ending %+v", e)
	}
	if m := b.s.Metrics(); m.CachedTokens != 13 || b.sim.given != 10+1+1 {
		t.Errorf("%d cached, %d given", m.CachedTokens, b.sim.given)
	}
}

// TestTailOfAFinishedRequestIsCached checks that the partial last page of a finished
// request is found again, to the token.
func TestTailOfAFinishedRequestIsCached(t *testing.T) {
	b := newBed(t, Config{}, 16, 20)
	b.add(1, seq(0, 21), 5) // 25 tokens get computed
	b.run()
	past := append(seq(0, 21), b.sim.expect(seq(0, 21), 5)...)
	b.add(2, append(past, 1, 2, 3), 1)
	b.wantRows("2[25,29)")
}

func TestFollowersWaitForAPrefixInFlight(t *testing.T) {
	b := newBed(t, Config{StepTokens: 16, ShareTokens: 4}, 4, 60)
	b.add(1, seq(0, 40), 1)
	b.add(2, append(seq(0, 30), 95, 96), 1) // shares 30 with 1
	b.add(3, seq(60, 5), 1)                 // shares nothing
	b.wantRows("3[0,5) 1[0,11)")            // 2 may not start
	b.wantRows("1[11,27)")
	b.wantRows("1[27,40)")
	b.wantRows("2[30,32)")
	if b.sim.given != 40+2+5 {
		t.Errorf("%d tokens computed, the union has 47", b.sim.given)
	}
}

// TestFollowersWaitForTheLastChunkToo: of two equal prompts that arrive together, the
// first fits into one step. The second waits for that step rather than start on the rest
// of the budget.
func TestFollowersWaitForTheLastChunkToo(t *testing.T) {
	b := newBed(t, Config{StepTokens: 64, ShareTokens: 4}, 4, 60)
	b.add(1, seq(0, 40), 2)
	b.add(2, append(seq(0, 30), 95), 1)
	b.wantRows("1[0,40)")
	b.wantRows("1[40,41) 2[30,31)")
}

func TestNamespacesShareNothing(t *testing.T) {
	b := newBed(t, Config{}, 4, 40)
	b.add(1, seq(0, 10), 1)
	b.run()
	if err := b.s.Add(0, Request{ID: 2, Prompt: seq(0, 10), MaxTokens: 1, Namespace: kv.Namespace{Salt: "other"}}); err != nil {
		t.Fatal(err)
	}
	b.wantRows("2[0,10)")
}

func TestLongestPrefixFirstWithinItsBound(t *testing.T) {
	b := newBed(t, Config{Policy: LPM, MaxRunning: 1, OldestEvery: 4}, 4, 60)
	b.add(1, seq(0, 20), 1)
	b.run()
	b.add(2, seq(60, 9), 1) // nothing cached
	b.add(3, seq(0, 9), 1)
	b.add(4, seq(0, 17), 1)
	b.add(5, seq(0, 18), 1)
	b.wantRows("5[17,18)")
	b.wantRows("4[16,17)")
	b.wantRows("2[0,9)") // the fourth admission
	b.wantRows("3[8,9)")

	b = newBed(t, Config{Policy: FCFS, MaxRunning: 1}, 4, 60)
	b.add(1, seq(0, 20), 1)
	b.run()
	b.add(2, seq(60, 9), 1)
	b.add(3, seq(0, 9), 1)
	b.wantRows("2[0,9)")
	b.wantRows("3[8,9)")
}

// TestPreemptionTakesTheYoungest: the pool has room for one and a half requests. The
// younger is preempted and resumes from the cache or computes again; both get their exact
// tokens.
func TestPreemptionTakesTheYoungest(t *testing.T) {
	for _, disable := range []bool{false, true} {
		b := newBed(t, Config{DisableCache: disable}, 4, 15)
		b.add(1, seq(0, 10), 40)
		b.add(2, seq(50, 10), 40)
		got := map[RequestID][]kv.Token{}
		endings := map[RequestID]Ending{}
		for b.s.Open() > 0 {
			for _, o := range b.step() {
				got[o.Request] = append(got[o.Request], o.Token)
				if o.Ending.Reason != NotEnded {
					endings[o.Request] = o.Ending
				}
			}
		}
		if endings[1].Preemptions != 0 || endings[2].Preemptions == 0 {
			t.Errorf("preemptions: %d of the older, %d of the younger", endings[1].Preemptions, endings[2].Preemptions)
		}
		for id, from := range map[RequestID]int{1: 0, 2: 50} {
			if want := b.sim.expect(seq(from, 10), 40); !slices.Equal(got[id], want) {
				t.Errorf("request %d: %v, want %v", id, got[id], want)
			}
		}
		if m := b.s.Metrics(); m.RecomputedTokens == 0 || m.PromptTokens != 20 {
			t.Errorf("metrics:\n%v", m)
		}
	}
}

func TestRefusals(t *testing.T) {
	b := newBed(t, Config{MaxQueued: 2}, 4, 20) // 80 tokens, 200 positions
	nan := float32(math.NaN())
	for _, tc := range []struct {
		name string
		req  Request
		want error
	}{
		{"empty prompt", Request{}, ErrEmptyPrompt},
		{"prompt beyond the model", Request{Prompt: seq(0, 201)}, ErrPromptTooLong},
		{"prompt beyond the pool", Request{Prompt: seq(0, 81)}, ErrTooLarge},
		{"output beyond the pool", Request{Prompt: seq(0, 60), MaxTokens: 22}, ErrTooLarge},
		{"output beyond the model", Request{Prompt: seq(0, 60), MaxTokens: 142}, ErrPromptTooLong},
		{"negative output", Request{Prompt: seq(0, 3), MaxTokens: -1}, ErrInvalid},
		{"unknown token", Request{Prompt: []kv.Token{97}}, ErrInvalid},
		{"NaN temperature", Request{Prompt: seq(0, 3), Sampling: engine.SamplingParams{Temperature: nan}}, ErrInvalid},
		{"negative penalty", Request{Prompt: seq(0, 3), Sampling: engine.SamplingParams{RepetitionPenalty: -1}}, ErrInvalid},
		{"bias of an unknown token", Request{Prompt: seq(0, 3), Sampling: engine.SamplingParams{Bias: []engine.TokenBias{{Token: 97}}}}, ErrInvalid},
	} {
		if err := b.s.Add(0, tc.req); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
	b.add(1, seq(0, 80), 1) // as large as the pool is fine
	b.add(2, seq(0, 3), 0)
	if err := b.s.Add(0, Request{ID: 3, Prompt: seq(0, 3)}); !errors.Is(err, ErrQueueFull) {
		t.Errorf("a third one in a queue of two: %v", err)
	}
	endings := b.run()
	if endings[1].OutputTokens != 1 || endings[2].OutputTokens != 80-3+1 {
		t.Errorf("endings %+v", endings)
	}
	b.add(4, seq(0, 3), 1)
	if err := b.s.Add(0, Request{ID: 4, Prompt: seq(0, 3)}); !errors.Is(err, ErrInvalid) {
		t.Errorf("an ID twice: %v", err)
	}
}

func TestAbortInEveryPhase(t *testing.T) {
	cause := errors.New("gone")
	for _, phase := range []string{"waiting", "prefill", "prefill in plan", "decode", "decode in plan"} {
		t.Run(phase, func(t *testing.T) {
			b := newBed(t, Config{StepTokens: 8}, 4, 40)
			b.add(1, seq(0, 20), 10)
			steps := map[string]int{"waiting": 0, "prefill": 1, "prefill in plan": 1, "decode": 4, "decode in plan": 4}[phase]
			for range steps {
				b.step()
			}
			var out []Output
			if strings.HasSuffix(phase, "in plan") {
				p := b.s.Next(b.now)
				if out = b.s.Abort(b.now, 1, cause, nil); len(out) != 0 {
					t.Fatalf("ended while its row runs: %+v", out)
				}
				res, err := b.sim.run(&p.Batch)
				if err != nil {
					t.Fatal(err)
				}
				out = b.s.Complete(b.now, p, res, nil)
			} else {
				out = b.s.Abort(b.now, 1, cause, nil)
			}
			if len(out) != 1 || out[0].Sampled || out[0].Ending.Reason != Abort || out[0].Ending.Err != cause {
				t.Errorf("outputs %+v", out)
			}
			if again := b.s.Abort(b.now, 1, cause, nil); len(again) != 0 {
				t.Errorf("a second ending: %+v", again)
			}
			if m := b.s.Metrics(); m.HeldPages != 0 || m.LeakedPages != 0 || (steps > 0) != (m.CachedPages > 0) {
				t.Errorf("metrics:\n%v", m)
			}
		})
	}
}

// TestFailedRowIsNotCached checks that no KV of a failed request is found, not even that
// of its earlier rows.
func TestFailedRowIsNotCached(t *testing.T) {
	b := newBed(t, Config{StepTokens: 8}, 4, 40)
	b.add(1, seq(0, 20), 10)
	b.step()
	b.sim.fail = errRow
	out := b.step()
	if len(out) != 1 || !errors.Is(out[0].Ending.Err, errRow) {
		t.Fatalf("outputs %+v", out)
	}
	b.sim.fail = nil
	b.add(2, seq(0, 20), 1)
	b.wantRows("2[0,8)")
}

func TestFailEndsEverything(t *testing.T) {
	b := newBed(t, Config{MaxRunning: 2}, 4, 40)
	for id := range RequestID(4) {
		b.add(id, seq(int(id)*20, 10), 10)
	}
	b.step()
	b.s.Next(b.now) // in flight
	cause := errors.New("device lost")
	out := b.s.Fail(b.now, cause, nil)
	if len(out) != 4 || b.s.Open() != 0 {
		t.Fatalf("%d endings, %d open", len(out), b.s.Open())
	}
	for _, o := range out {
		if o.Ending.Reason != Failed || o.Ending.Err != cause {
			t.Errorf("ending %+v", o.Ending)
		}
	}
	if pages := b.s.Drain(nil); len(pages) != 40 {
		t.Errorf("%d of 40 pages come back", len(pages))
	}
}

func TestStopToken(t *testing.T) {
	b := newBed(t, Config{}, 4, 40)
	want := b.sim.expect(seq(0, 5), 10)
	if err := b.s.Add(0, Request{ID: 1, Prompt: seq(0, 5), MaxTokens: 10, StopTokens: want[3:4]}); err != nil {
		t.Fatal(err)
	}
	at := slices.Index(want, want[3])
	if e := b.run()[1]; e.Reason != Stop || e.OutputTokens != at+1 {
		t.Errorf("ending %+v, want a stop after %d", e, at+1)
	}
}

// TestDecodeStepDoesNotAllocate checks that planning and completing a decode step
// allocates nothing once buffers have grown.
func TestDecodeStepDoesNotAllocate(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the full walks allocate")
	}
	b := newBed(t, Config{}, 16, 400)
	for id := range RequestID(8) {
		b.add(id, seq(int(id)*11, 20), 150)
	}
	for range 5 {
		b.step()
	}
	res := &engine.Result{}
	out := make([]Output, 0, 16)
	n := testing.AllocsPerRun(50, func() {
		p := b.s.Next(b.now)
		res.Seq, res.Out = p.Batch.Seq, res.Out[:0]
		for i := range p.Batch.Rows {
			res.Out = append(res.Out, engine.RowOut{Row: i, Token: 5})
		}
		out = b.s.Complete(b.now, p, res, out[:0])
	})
	// A row's page list grows by doubling, once in a while.
	if n >= 1 {
		t.Errorf("%v allocations per step", n)
	}
}

func TestConfigRefusals(t *testing.T) {
	info := newSim(t, 4, 10, 8, 100).info
	bad := Config{Policy: 9, StepTokens: -1, MaxRunning: 99, LeaseHighPages: 11, BlockTokens: 3}
	_, err := New(bad, info)
	for _, want := range []string{"Policy", "StepTokens is -1", "MaxRunning is 99", "LeaseHighPages is 11", "BlockTokens"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not name %s", err, want)
		}
	}
	var p Policy
	if err := p.UnmarshalText([]byte("lpm")); err != nil || p != LPM || p.String() != "lpm" {
		t.Errorf("policy %v, %v", p, err)
	}
	if err := p.UnmarshalText([]byte("best")); err == nil || !strings.Contains(err.Error(), "fcfs") {
		t.Errorf("unknown policy: %v", err)
	}
}

func TestMetricsOfALife(t *testing.T) {
	b := newBed(t, Config{}, 4, 40)
	b.add(1, seq(0, 10), 3)
	b.run()
	b.add(2, seq(0, 10), 3)
	b.step()
	m := b.s.Metrics()
	if m.Requests != 2 || m.Running != 1 || m.Steps != 4 || m.PromptTokens != 20 || m.CachedTokens != 9 || m.OutputTokens != 4 ||
		m.IdlePages != 36 || m.HeldPages != 1 || m.CachedPages != 3 || m.LeakedPages != 0 {
		t.Errorf("metrics\n%v", m)
	}
}
