package scheduler

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/engine/model"
	randommodel "github.com/coppice-llm/coppice/engine/model/random"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler/internal/planted"
)

// variant is a way to schedule the same requests.
type variant struct {
	cfg          Config
	pageTokens   int
	kvTokens     int
	preemptEvery int // steps; 0: only when room is short
}

func (v variant) String() string {
	return fmt.Sprintf("policy=%v chunk=%d page=%d inflight=%d cache=%v kv=%d preempt-every=%d",
		v.cfg.Policy, v.cfg.StepTokens, v.pageTokens, v.cfg.MaxInflight, !v.cfg.DisableCache, v.kvTokens, v.preemptEvery)
}

// sampledToken is a token and the digest of the logits that it came from.
type sampledToken struct {
	token  kv.Token
	digest uint64
}

type sampleKey struct {
	id     RequestID
	sample int
}

// play runs requests on the CPU backend and returns what each sample got.
func (v variant) play(t *testing.T, dir string, requests []Request) (map[sampleKey][]sampledToken, Metrics) {
	t.Helper()
	weights, err := model.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer weights.Close()
	backend, err := cpu.Open(weights, cpu.Config{KVTokens: v.kvTokens, PageTokens: v.pageTokens, MaxSlots: 8, MaxRows: 8, MaxTokens: 512, Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Close()
	s, err := New(v.cfg, backend.Info())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range requests {
		if err := s.Add(0, r); err != nil {
			t.Fatal(err)
		}
	}
	p := player{t: t, variant: v, s: s, backend: backend, got: map[sampleKey][]sampledToken{}}
	for i := range backend.Info().NumPages {
		p.free = append(p.free, kv.PageID(i))
	}
	for p.steps < 20_000 && (s.Open() > 0 || len(p.flying) > 0) {
		p.steps++
		p.submit()
		p.complete()
	}
	m := s.Metrics()
	if s.Open() > 0 || m.LeakedPages != 0 {
		t.Fatalf("%v: %d requests are open, %d pages leaked:\n%v", v, s.Open(), m.LeakedPages, m)
	}
	return p.got, m
}

// player is a scheduler on a backend.
type player struct {
	variant
	t       *testing.T
	s       *Scheduler
	backend engine.Backend
	flying  []flight // oldest first
	free    []kv.PageID
	steps   int
	got     map[sampleKey][]sampledToken
}

// flight is a plan that runs.
type flight struct {
	p *Plan
	t engine.Ticket
}

func (p *player) now() time.Duration { return time.Duration(p.steps) * time.Millisecond }

// submit grants pages, preempts a sequence every preemptEvery steps, and submits all
// plans.
func (p *player) submit() {
	s := p.s
	if n := s.Want(); n > 0 {
		s.Grant(p.free[:n], len(p.free)-n)
		p.free = p.free[n:]
	}
	if every := p.preemptEvery; every > 0 && p.steps%every == 0 && len(s.running.all) > 1 {
		if q := s.running.all[p.steps/every%len(s.running.all)]; q.preemptable(planted.None) {
			s.preempt(p.now(), q)
		}
	}
	for {
		plan := s.Next(p.now())
		if plan == nil {
			return
		}
		ticket, err := p.backend.Submit(&plan.Batch)
		if err != nil {
			p.t.Fatalf("%v: %v", p.variant, err)
		}
		p.flying = append(p.flying, flight{plan, ticket})
	}
}

// complete waits for the oldest plan.
func (p *player) complete() {
	if len(p.flying) == 0 {
		return
	}
	f := p.flying[0]
	p.flying = p.flying[1:]
	<-f.t.Done()
	res, err := f.t.Result()
	if err != nil {
		p.t.Fatalf("%v: %v", p.variant, err)
	}
	for _, o := range p.s.Complete(p.now(), f.p, res, nil) {
		if key := (sampleKey{o.Request, o.Sample}); o.Sampled {
			p.got[key] = append(p.got[key], sampledToken{o.Token, o.Digest})
		}
		if o.Ending.Reason == Failed {
			p.t.Fatalf("%v: %v", p.variant, o.Ending.Err)
		}
	}
	if err := p.s.Check(); err != nil {
		p.t.Fatalf("%v: %v", p.variant, err)
	}
}

// identityRequests returns requests that share prefixes in all ways; some sample at
// random, one has several samples.
func identityRequests(rng *rand.Rand, vocab int) []Request {
	tokens := func(n int) []kv.Token {
		t := make([]kv.Token, n)
		for i := range t {
			t[i] = kv.Token(rng.IntN(vocab))
		}
		return t
	}
	stem := tokens(45)
	var all []Request
	for i := range 9 {
		prompt := slices.Clone(stem[:[]int{0, 7, 16, 31, 45, 45}[i%6]])
		r := Request{ID: RequestID(i + 1), Prompt: append(prompt, tokens(1+rng.IntN(30))...), MaxTokens: 6 + rng.IntN(12), Digest: true,
			Priority: int32(i % 3), Tenant: []string{"a", "b"}[i%2]}
		if i%2 == 1 {
			r.Sampling = engine.SamplingParams{Temperature: 1.5, TopP: 0.9, Seed: uint64(i), RepetitionPenalty: 1.1}
		}
		all = append(all, r)
	}
	all[5].Samples = 3
	all = append(all, all[4]) // the same again
	all[9].ID = 10
	return all
}

// TestSameBitsHoweverScheduled checks that overlap, chunking, page size, preemption,
// policy and cache change when something is computed, and never a bit of the result.
func TestSameBitsHoweverScheduled(t *testing.T) {
	dir := t.TempDir()
	if err := randommodel.Generate(dir, randommodel.Spec{Preset: randommodel.Nano, Seed: 1}); err != nil {
		t.Fatal(err)
	}
	m, err := model.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	requests := identityRequests(rand.New(rand.NewPCG(1, 2)), m.Config().Vocab)
	m.Close()
	want := map[sampleKey][]sampledToken{}
	for _, r := range requests { // each alone, in whole steps, uncached
		alone, _ := variant{Config{DisableCache: true, StepTokens: 512}, 16, 2048, 0}.play(t, dir, []Request{r})
		maps.Copy(want, alone)
	}
	if len(want) != len(requests)+2 {
		t.Fatalf("%d outputs of %d requests", len(want), len(requests))
	}
	n, forced := 0, 0
	var preempted, cached uint64
	for _, policy := range Policies() {
		for _, inflight := range []int{1, 2, 1, 2} {
			n++
			v := variant{
				cfg: Config{
					Policy: policy, MaxInflight: inflight, StepTokens: []int{1, 5, 17, 512}[n%4], ShareTokens: 1 + n%7*5,
					DisableCache: n%6 == 5, OldestEvery: 1 + n%3, MaxPrefilling: 1 + n%4, Quantum: 16,
				},
				pageTokens: []int{1, 16}[n/2%2], kvTokens: []int{96, 160, 2048}[n%3], preemptEvery: []int{0, 3, 5}[n/3%3],
			}
			got, m := v.play(t, dir, requests)
			preempted, cached = preempted+m.Preemptions, cached+m.CachedTokens
			if v.preemptEvery > 0 && m.Preemptions > 5 {
				forced++
			}
			for key, w := range want {
				if !slices.Equal(got[key], w) {
					t.Errorf("%v: request %d, sample %d got other tokens or bits\n%v\n%v", v, key.id, key.sample, got[key], w)
				}
			}
		}
	}
	if preempted < 200 || forced < 12 || cached < 1000 {
		t.Errorf("%d preemptions, forced in %d variants, %d tokens cached: too easy", preempted, forced, cached)
	}
}
