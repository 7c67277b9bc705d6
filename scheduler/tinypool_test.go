package scheduler

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestTinyPool sends 500 requests at once to a pool of 1.2 times the largest of them.
// Under every policy each must get its whole output and no page be lost; a request larger
// than the pool is refused with the figures.
func TestTinyPool(t *testing.T) {
	const largest, pool = 150, 180
	for i, policy := range Policies() {
		for _, pageTokens := range []int{1, 4} {
			rng := rand.New(rand.NewPCG(uint64(i), uint64(pageTokens)))
			cfg := Config{Policy: policy, MaxQueued: 500, StepTokens: 32, MaxInflight: 1, DisableCache: i%3 == 2}
			b := newBed(t, cfg, pageTokens, pool/pageTokens)
			want := map[RequestID]int{}
			for id := RequestID(1); id <= 500; id++ {
				prompt := 1 + rng.IntN(largest-2)
				if rng.IntN(3) > 0 {
					prompt = min(prompt, 20)
				}
				out := 1 + rng.IntN(min(largest-prompt, 40))
				if id%100 == 0 {
					prompt, out = largest-30, 30 // the largest
				}
				want[id] = out
				b.request(Request{ID: id, Prompt: seq(rng.IntN(20), prompt), MaxTokens: out, Priority: int32(rng.IntN(3)), Tenant: []string{"a", "b"}[id%2]})
			}
			for id, e := range b.run() {
				if e.Reason != Length || e.OutputTokens != want[id] {
					t.Errorf("%v, pages of %d: request %d: %+v, want %d tokens", policy, pageTokens, id, e, want[id])
				}
				delete(want, id)
			}
			if m := b.s.Metrics(); len(want) > 0 || m.LeakedPages != 0 || m.HeldPages != 0 {
				t.Errorf("%v: %d requests have no ending\n%v", policy, len(want), m)
			}
			err := b.s.Add(0, Request{ID: 1000, Prompt: seq(0, 150), MaxTokens: 32})
			if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "150 prompt and 32 output tokens, the pool holds 180") {
				t.Errorf("one larger than the pool: %v", err)
			}
		}
	}
}
