package scheduler

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// unionConfig draws a config, and the tokens of a page, under which no request is preempted for another.
func unionConfig(rng *rand.Rand, seed uint64) (cfg Config, pageTokens int) {
	pageTokens = []int{1, 4, 16}[rng.IntN(3)]
	return Config{
		Policy: Policies()[seed%uint64(len(Policies()))], MaxInflight: 1 + rng.IntN(2), ShareTokens: 1,
		StepTokens: []int{3, 16, 50, 512}[rng.IntN(4)], MaxRunning: 1 + rng.IntN(8), MaxPrefilling: 1 + rng.IntN(8), Seed: seed,
		PreemptThreshold: 3,
	}, pageTokens
}

// asText returns a key of a map for tokens.
func asText(salt string, tokens []kv.Token) string {
	r := make([]rune, len(tokens))
	for i, t := range tokens {
		r[i] = rune(t)
	}
	return salt + string(r)
}

// TestNothingIsComputedTwice checks that requests that arrive together compute, in total,
// as many tokens as the union of their prefixes has, whatever the policy, page size,
// chunks and overlap. Each prompt ends with a token of its own, since a last token is
// always computed. No request is preempted: it would compute its output again.
func TestNothingIsComputedTwice(t *testing.T) {
	for seed := range uint64(160) {
		rng := rand.New(rand.NewPCG(seed, 5))
		cfg, pageTokens := unionConfig(rng, seed)
		b := newBed(t, cfg, pageTokens, 4096/pageTokens)
		stems := [][]kv.Token{nil}
		union := map[string]bool{}
		for id := range RequestID(20) {
			stem := slices.Clone(stems[rng.IntN(len(stems))])
			if len(stem) > 150 {
				stem = nil
			}
			for range rng.IntN(40) {
				stem = append(stem, kv.Token(rng.IntN(3)))
			}
			stems = append(stems, stem)
			prompt := append(stem, kv.Token(10+id))
			b.request(Request{ID: id + 1, Prompt: prompt, Tenant: []string{"a", "b", "c"}[id%3], MaxTokens: 1 + rng.IntN(3), Priority: int32(rng.IntN(3))})
			for n := range prompt {
				union[asText("", prompt[:n+1])] = true
			}
		}
		b.run()
		if m := b.s.Metrics(); b.sim.given != len(union) {
			t.Errorf("seed %d, %v: %d tokens computed, the union has %d:\n%v", seed, cfg.Policy, b.sim.given, len(union), m)
		}
	}
}

// TestPublicPrefixesOnce checks that requests with different salts that arrive together compute
// their common public prefixes once, in whole pages, and share nothing else.
func TestPublicPrefixesOnce(t *testing.T) {
	for seed := range uint64(160) {
		rng := rand.New(rand.NewPCG(seed, 6))
		cfg, pageTokens := unionConfig(rng, seed)
		b := newBed(t, cfg, pageTokens, 4096/pageTokens)
		union := map[string]bool{}
		for id := range RequestID(20) {
			stem := kv.Token(rng.IntN(3))
			public := 10 + 30*int(stem)
			prompt := slices.Repeat([]kv.Token{stem}, public)
			for range pageTokens + rng.IntN(30) {
				prompt = append(prompt, kv.Token(rng.IntN(2)))
			}
			prompt = append(prompt, kv.Token(10+id)) // a last token is always computed
			salt := []string{"", "x", "y", "z"}[rng.IntN(4)]
			b.request(Request{
				ID: id + 1, Namespace: kv.Namespace{Salt: salt}, PublicTokens: public, Prompt: prompt,
				Tenant: salt, MaxTokens: 1 + rng.IntN(3), Priority: int32(rng.IntN(3)),
			})
			shared := public - public%pageTokens
			for n := range prompt {
				if n < shared {
					union[asText("", prompt[:n+1])] = true
				} else {
					union[asText(salt+"/", prompt[:n+1])] = true
				}
			}
		}
		b.run()
		if m := b.s.Metrics(); b.sim.given != len(union) {
			t.Errorf("seed %d, %v: %d tokens computed, the union has %d:\n%v", seed, cfg.Policy, b.sim.given, len(union), m)
		}
	}
}
