package scheduler

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// plainWait returns what explain must return for q. It calls the functions that admission
// calls, and shares no answers with other samples.
func plainWait(s *Scheduler, q *sequence) Wait {
	m, last := s.queue.peek(q), s.cfg.lastLong(s.running.prefilling)
	w := Wait{Request: q.req.ID, Sample: q.sample, CachedTokens: m.Tokens}
	if q.wait.unfit {
		w.Bypassed = int(s.queue.admissions - q.wait.unfitAt)
	}
	switch b := s.queue.blocked; {
	case q.place == preempted:
		w.Cause, w.CachedTokens = AwaitsResult, 0
	case q.place == following:
		w.Cause, w.Behind, w.Tokens = AwaitsPrefix, q.wait.follow.leader.req.ID, q.wait.follow.until
	case q.group.tenant.AtLimit():
		w.Cause = AwaitsTenant
	case last != nil && s.cfg.isLong(m.Tokens, len(q.tokens)) && s.cfg.ranks(q, last) <= 0:
		w.Cause = AwaitsLong
	case len(s.room.slots) == 0:
		w.Cause = AwaitsSlot
	case b != nil && b != q && !s.queue.excluded(b) && s.queue.order.hasTurn(&s.queue, b):
		w.Cause, w.Behind = AwaitsReserved, b.req.ID
	default:
		s.running.reserved = -1
		d := s.room.startDemand(q, m, false, s.running.reserve(q))
		o := s.room.supply(&d)
		w.NeedPages, w.ExpectPages, w.FreePages = d.pages, d.reserve, o.free()
		switch {
		case o.fits(&d):
			w.Cause = AwaitsTurn
		case o.granting:
			w.Cause = AwaitsPool
		default:
			w.Cause = AwaitsPages
		}
	}
	return w
}

// TestWaitingEqualsWhyOfEach checks that Waiting, which shares answers among
// samples, gives the same as a look at each.
func TestWaitingEqualsWhyOfEach(t *testing.T) {
	seen := map[Cause]int{}
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 14))
		policies := Policies()
		cfg := Config{Policy: policies[seed%uint64(len(policies))], StepTokens: 16, ChunkTokens: 4, MaxBypass: 2, DisableCache: seed%7 == 3, Tenant: TenantConfig{MaxRunning: 3}}
		b := newBed(t, cfg, 4, 90)
		for id := RequestID(1); id < 40; id++ {
			b.now += time.Millisecond
			req := Request{
				ID: id, Prompt: long(kv.Token(10*rng.IntN(4)), 3+rng.IntN(150)), MaxTokens: 1 + rng.IntN(30), Samples: 1 + rng.IntN(2),
				Tenant: string(rune('a' + rng.IntN(3))), Priority: int32(rng.IntN(3)),
			}
			if err := b.s.Add(b.now, req); err != nil {
				t.Fatal(err)
			}
			if rng.IntN(3) > 0 {
				b.step()
			}
			for _, w := range b.s.Waiting(nil) {
				g := b.s.open[w.Request]
				q := g.samples[slices.IndexFunc(g.samples, func(q *sequence) bool { return q.sample == w.Sample })]
				if want := plainWait(b.s, q); w != want {
					t.Fatalf("seed %d: %+v, plainly %+v", seed, w, want)
				}
				seen[w.Cause]++
			}
		}
	}
	for _, c := range []Cause{AwaitsPrefix, AwaitsSlot, AwaitsPages, AwaitsReserved, AwaitsTenant, AwaitsLong, AwaitsTurn} {
		if seen[c] < 20 {
			t.Errorf("%v: seen %d times", c, seen[c])
		}
	}
}
