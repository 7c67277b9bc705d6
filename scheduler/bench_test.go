package scheduler

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// loaded is a scheduler with decoding sequences and more requests that wait, on a backend
// that answers at once.
type loaded struct {
	s    *Scheduler
	res  engine.Result
	out  []Output
	next RequestID
}

func newLoaded(tb testing.TB, cfg Config, rows, queued, prompt int) *loaded {
	const pageTokens = 16
	pages := (rows + 1) * (prompt + 8192) / pageTokens
	var cost engine.StepCost
	if cfg.Speculate == SpeculateAuto { // guesses are never worth it, so each row gives one token
		cost = engine.StepCost{Step: 1e-2, Token: 1e-4, Draft: 1}
	}
	info := engine.Info{Name: "null", Vocab: 1 << 30, MaxPositions: 1 << 20, PageTokens: pageTokens, NumPages: pages,
		MaxSlots: rows, MaxRows: rows, MaxTokens: 1 << 20, MaxInflight: 2, MaxDrafts: 16, Cost: cost}
	cfg.MaxQueued, cfg.StepTokens, cfg.MaxPrefilling = rows+queued+1, 1<<20, 1<<20
	cfg.LeaseLowPages, cfg.LeaseBulkPages, cfg.LeaseHighPages = pages, pages, pages
	s, err := New(cfg, info)
	if err != nil {
		tb.Fatal(err)
	}
	l := &loaded{s: s}
	all := make([]kv.PageID, s.Want())
	for i := range all {
		all[i] = kv.PageID(i)
	}
	s.Grant(all, 0)
	for i := range rows + queued {
		tokens := make([]kv.Token, prompt)
		for j := range tokens {
			tokens[j] = kv.Token(j)
			if j > prompt/2 {
				tokens[j] = kv.Token(i*prompt + j) // half of each prompt is shared
			}
		}
		if err := s.Add(0, Request{ID: RequestID(i), Prompt: tokens, MaxTokens: 8000}); err != nil {
			tb.Fatal(err)
		}
	}
	for len(s.running.all) < rows || len(s.running.prefilling) > 0 {
		l.complete(s.Next(0))
	}
	return l
}

// complete answers every sampled row with a token.
func (l *loaded) complete(p *Plan) {
	l.res.Seq, l.res.Out = p.Batch.Seq, l.res.Out[:0]
	for i := range p.Batch.Rows {
		if p.Batch.Rows[i].Sample {
			out := engine.RowOut{Row: i, Token: 7}
			for r := &p.Batch.Rows[i]; int(out.Confirmed) < len(r.Drafts) && r.Drafts[out.Confirmed] == 7; {
				out.Confirmed++
			}
			l.res.Out = append(l.res.Out, out)
		}
	}
	l.out = l.s.Complete(0, p, &l.res, l.out[:0])
}

func BenchmarkDecodeStep(b *testing.B) {
	for _, c := range []struct {
		policy    Policy
		queued    int
		speculate Speculate
	}{{FCFS, 0, SpeculateOff}, {FCFS, 0, SpeculateAuto}, {LPM, 0, SpeculateOff}, {LPM, 10_000, SpeculateOff}, {DLPM, 10_000, SpeculateOff}, {HRRN, 10_000, SpeculateOff}, {DFSWeight, 10_000, SpeculateOff}} {
		b.Run(fmt.Sprintf("rows=256/policy=%v/queued=%d/speculate=%v", c.policy, c.queued, c.speculate), func(b *testing.B) {
			cfg := Config{Policy: c.policy, Speculate: c.speculate}
			l := newLoaded(b, cfg, 256, c.queued, 1024)
			n := 0
			for b.Loop() {
				p := l.s.Next(0)
				b.StopTimer()
				l.complete(p)
				if n++; n == 7000 { // before the outputs end
					l, n = newLoaded(b, cfg, 256, c.queued, 1024), 0
				}
				b.StartTimer()
			}
		})
	}
}

// BenchmarkChurn measures steps in which as many requests arrive as end; prompts of 64
// groups share half. It reports the median and the 99th percentile of Next.
func BenchmarkChurn(b *testing.B) {
	for _, policy := range Policies() {
		for _, queued := range []int{100, 10_000} {
			b.Run(fmt.Sprintf("rows=256/policy=%v/queued=%d", policy, queued), func(b *testing.B) {
				churn(b, policy, queued)
			})
		}
	}
}

func churn(b *testing.B, policy Policy, queued int) {
	const rows, prompt, output = 256, 1024, 64
	rng := rand.New(rand.NewPCG(1, 1))
	const pageTokens = 16
	pages := rows * (prompt + 3*output) / pageTokens
	info := engine.Info{Name: "null", Vocab: 1 << 30, MaxPositions: 1 << 20, PageTokens: pageTokens, NumPages: pages,
		MaxSlots: rows, MaxRows: rows, MaxTokens: 1 << 20, MaxInflight: 2}
	cfg := Config{Policy: policy, MaxQueued: rows + queued + 1, StepTokens: 8192, LeaseLowPages: pages, LeaseBulkPages: pages, LeaseHighPages: pages}
	s, err := New(cfg, info)
	if err != nil {
		b.Fatal(err)
	}
	l := &loaded{s: s}
	all := make([]kv.PageID, s.Want())
	for i := range all {
		all[i] = kv.PageID(i)
	}
	s.Grant(all, 0)
	add := func() {
		l.next++
		tokens := make([]kv.Token, prompt)
		group := rng.IntN(64)
		for j := range tokens {
			tokens[j] = kv.Token(group*prompt + j)
			if j > prompt/2 {
				tokens[j] = kv.Token(int(l.next)*prompt+j) & (1<<30 - 1)
			}
		}
		if err := s.Add(0, Request{ID: l.next, Prompt: tokens, MaxTokens: output/2 + rng.IntN(output)}); err != nil {
			b.Fatal(err)
		}
	}
	top := func() {
		for s.queue.size < queued {
			add()
		}
	}
	top()
	for range 1000 {
		l.complete(s.Next(0))
		top()
	}
	var spent, after []time.Duration
	admitted := s.queue.admissions
	for b.Loop() {
		t := time.Now()
		p := s.Next(0)
		spent = append(spent, time.Since(t))
		t = time.Now()
		l.complete(p)
		after = append(after, time.Since(t))
		top()
	}
	slices.Sort(spent)
	slices.Sort(after)
	b.ReportMetric(float64(spent[len(spent)/2].Nanoseconds()), "next-p50-ns")
	b.ReportMetric(float64(spent[len(spent)*99/100].Nanoseconds()), "next-p99-ns")
	b.ReportMetric(float64(after[len(after)/2].Nanoseconds()), "complete-p50-ns")
	b.ReportMetric(float64(s.queue.admissions-admitted)/float64(len(spent)), "admitted/step")
	b.ReportMetric(s.Metrics().HitRate()*100, "hit-%")
}

// BenchmarkWaiting measures Waiting as a live page calls it in each frame, between two
// steps.
func BenchmarkWaiting(b *testing.B) {
	for _, cfg := range []Config{{Policy: FCFS, DisableCache: true}, {Policy: Priority, DisableCache: true}, {Policy: FCFS}} {
		b.Run(fmt.Sprintf("policy=%v/cache=%v/running=256/waiting=1024", cfg.Policy, !cfg.DisableCache), func(b *testing.B) {
			l := newLoaded(b, cfg, 256, 1024, 256)
			var waits []Wait
			b.ReportAllocs()
			for b.Loop() {
				l.s.room.slots = append(l.s.room.slots, 0) // otherwise the lack of slots would answer for all
				waits = l.s.Waiting(waits[:0])
				l.s.room.slots = l.s.room.slots[:len(l.s.room.slots)-1]
			}
		})
	}
}

// BenchmarkFollowers measures publishing a chunk of a prompt for which many requests wait.
func BenchmarkFollowers(b *testing.B) {
	w, r := &queue{}, &sequence{}
	for range 10_000 {
		q := &sequence{wait: queueing{follow: followState{leader: r, until: 1000, at: len(r.wait.follow.followers)}}}
		r.wait.follow.followers = append(r.wait.follow.followers, follower{q, q.wait.follow.until})
	}
	for b.Loop() {
		w.release(r, 0, false)
	}
}
