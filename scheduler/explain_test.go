package scheduler

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool/tiering"
)

// TestExplainForetells checks that Explain foretells what a request computes, copies and fetches
// that enters next, alone, by tier.
func TestExplainForetells(t *testing.T) {
	kinds := [4]int{} // explained requests with fetched, copied, unworthy and no cached tokens
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 29))
		tiers := tiering.Config{TokenGuess: 1}
		tiers.Tiers[kv.TierHost].Bytes, tiers.Tiers[kv.TierDisk].Bytes = 400, 400 // nothing is dropped to make room for a read
		if seed%3 == 2 {
			tiers.TokenGuess, tiers.Tiers[kv.TierHost].Bandwidth, tiers.Tiers[kv.TierDisk].Bandwidth = 1e-9, 1, 1
		}
		h := newTierRig(t, tiers, 24, 2) // room for a prompt and a page to copy with all pages before it
		var before Metrics
		for id := RequestID(1); id < 60; id++ {
			prompt := seq(0, 1+rng.IntN(130))
			if at := rng.IntN(len(prompt)); rng.IntN(3) > 0 {
				prompt[at] = kv.Token(rng.IntN(3))
			}
			req := Request{ID: id, Prompt: prompt, MaxTokens: 1}
			e, err := h.s.Explain(h.now, &req)
			if err != nil {
				t.Fatal(err)
			}
			h.add(id, prompt, 1)
			h.run()
			m := h.s.Metrics()
			computed := int(m.PromptTokens - before.PromptTokens - (m.CachedTokens - before.CachedTokens))
			fetched := 0
			for tier := kv.TierHost; int(tier) < kv.Tiers; tier++ {
				fetched += int(m.Tiers[tier].HitTokens - before.Tiers[tier].HitTokens)
			}
			if computed != e.ComputedTokens || fetched != e.FetchedTokens || e.Cached[kv.TierDevice]+e.CopiedTokens+e.FetchedTokens+e.ComputedTokens != len(prompt) {
				t.Fatalf("seed %d: request %d of %d tokens computed %d and fetched %d: %+v", seed, id, len(prompt), computed, fetched, e)
			}
			below := e.Cached[kv.TierHost] + e.Cached[kv.TierDisk]
			for i, is := range [...]bool{fetched > 0, e.CopiedTokens > 0, below > fetched, below+e.Cached[kv.TierDevice] == 0} {
				if is {
					kinds[i]++
				}
			}
			before = m
		}
	}
	for i, n := range kinds {
		if n < 5 {
			t.Errorf("kind %d was explained %d times only", i, n)
		}
	}
}

// TestExplanation checks the words.
func TestExplanation(t *testing.T) {
	explain := func(h *tierRig, want string, req Request) {
		t.Helper()
		e, err := h.s.Explain(h.now, &req)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.String(); got != want {
			t.Errorf("%q\nwant %q", got, want)
		}
	}
	tiers := tiering.Config{TokenGuess: 1}
	tiers.Tiers[kv.TierHost].Bytes = 3
	h := newTierRig(t, tiers, 8, 1)
	h.s.info.Capabilities.PromptLogprobs = true
	explain(h, "None of the 40 prompt tokens is cached. The match on the device ends at token 0: the next page was never stored, or so long ago that its removal is forgotten. "+
		"A request would compute 40 of its 40 tokens.", Request{Prompt: seq(0, 40)})
	h.add(1, seq(0, 97), 1)
	h.run()
	explain(h, "96 of 97 prompt tokens are cached: 96 on the device. The device has all whole pages of the prompt. A request would compute 1 of its 97 tokens (the last one always is).",
		Request{Prompt: seq(0, 97)})
	other := seq(0, 97)
	other[37] = 0
	explain(h, "32 of 97 prompt tokens are cached: 32 on the device. The match on the device ends at token 32: the next page equals a cached page only in its first 5 tokens. "+
		"A request would copy 5 tokens of a cached page, and compute 60 of its 97 tokens.", Request{Prompt: other})
	explain(h, "96 of 97 prompt tokens are cached: 96 on the device. The device has all whole pages of the prompt. "+
		"The request asks for log-probabilities of its prompt, so it would compute all 97 tokens.", Request{Prompt: seq(0, 97), PromptLogprobs: true})
	// Another prompt takes the pages of the last 80 tokens. Host memory has room for three pages,
	// and holds the prompt's first three.
	h.add(2, seq(1, 112), 1)
	h.run()
	explain(h, "48 of 97 prompt tokens are cached: 16 on the device, 32 in host memory. The match on the device ends at token 16: "+
		"the next page was removed to make room (policy lru), 1 access of the cache ago, after 0 accesses without use. "+
		"A request would fetch 32 tokens from lower tiers, and compute 49 of its 97 tokens.", Request{Prompt: seq(0, 97)})
	h.s.FlushCache()
	explain(h, "None of the 97 prompt tokens is cached. The match on the device ends at token 0: the next page was not stored since the latest flush of the cache. "+
		"A request would compute 97 of its 97 tokens.", Request{Prompt: seq(0, 97)})
}

// TestExplainRefuses checks that Explain refuses the prompts that Add refuses, and works on no
// cache.
func TestExplainRefuses(t *testing.T) {
	h := newTierRig(t, tiering.Config{}, 8, 1)
	for _, req := range []Request{{}, {Prompt: seq(0, 5000)}, {Prompt: []kv.Token{1 << 30}}, {Prompt: seq(0, 4), PublicTokens: -1}, {Prompt: seq(0, 4), Media: []kv.Media{{At: 3, Tokens: 2}}}} {
		_, err := h.s.Explain(0, &req)
		if added := h.s.Add(0, req); err == nil || added == nil || err.Error() != added.Error() {
			t.Errorf("%v, want %v", err, added)
		}
	}
	s, err := New(Config{DisableCache: true}, engine.Info{Name: "null", Vocab: 128, MaxPositions: 64, PageTokens: 16, NumPages: 8, MaxSlots: 4, MaxRows: 4, MaxTokens: 64, MaxInflight: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Explain(time.Second, &Request{Prompt: seq(0, 4)}); !errors.Is(err, ErrNoCache) {
		t.Error(err)
	}
}
