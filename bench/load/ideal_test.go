package load

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
)

// TestSeen compares the trie with a search through all keys.
func TestSeen(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		s := seen{limit: 1 << 20}
		var keys [][]byte
		for range 40 {
			key := make([]byte, rng.IntN(8))
			for i := range key {
				key[i] = byte(rng.IntN(2))
			}
			if len(keys) > 0 && rng.IntN(2) == 0 { // continue an earlier one
				key = append(append([]byte(nil), keys[rng.IntN(len(keys))]...), key...)
			}
			want := 0
			for _, k := range keys {
				want = max(want, common(k, key))
			}
			if got, ok := s.add(key); got != want || !ok {
				t.Fatalf("%v after %v: %d, %v, want %d", key, keys, got, ok, want)
			}
			keys = append(keys, key)
		}
	}
}

// TestSeenIsBounded: at the limit the ideal is known, beyond it never again.
func TestSeenIsBounded(t *testing.T) {
	s := seen{limit: 6}
	for _, tc := range []struct {
		key   string
		known int
		ok    bool
	}{{"abcd", 0, true}, {"abxy", 2, true}, {"abx", 3, true}, {"abcde", 4, false}, {"abcd", 4, false}, {"q", 0, false}} {
		if known, ok := s.add([]byte(tc.key)); known != tc.known || ok != tc.ok {
			t.Errorf("%q: %d, %v, want %+v", tc.key, known, ok, tc)
		}
	}
}

func TestShares(t *testing.T) {
	for _, tc := range []struct {
		s    share
		n    int
		want int
	}{
		{share{0, 40, mark{}}, 10, 0}, {share{20, 40, mark{}}, 10, 5}, {share{40, 40, mark{}}, 10, 9}, {share{0, 0, mark{}}, 10, 0}, {share{4, 4, mark{}}, 0, 0},
		{share{20, 40, mark{20, 8}}, 10, 8}, {share{30, 40, mark{20, 8}}, 10, 9}, {share{19, 40, mark{20, 8}}, 10, 4}, {share{20, 40, mark{20, 8}}, 7, 3}, {share{40, 40, mark{40, 8}}, 10, 9},
	} {
		if got := tc.s.tokens(tc.n); got != tc.want {
			t.Errorf("%+v of %d tokens: %d, want %d", tc.s, tc.n, got, tc.want)
		}
	}
}

// TestIdealOfText: for text, the ideal counts from the tokens of the request before, which the
// server has counted, whatever the lengths of its words.
func TestIdealOfText(t *testing.T) {
	for name, cfg := range map[string]ClientConfig{"chat": {Endpoint: Chat}, "text": {}} {
		synctest.Test(t, func(t *testing.T) {
			prompts := []int{100, 150, 900}
			f := &fake{answer: func(w *writer, n int, q query) {
				w.event(`{"choices":[{"text":"Yes.","delta":{"content":"Yes."}}]}`)
				w.end(prompts[n], 3, `,"prompt_tokens_details":{"cached_tokens":90}`)
			}}
			d := &MultiTurn{TurnCount: 3, SystemTokens: 6, InputTokens: 5, OutputTokens: 3, Seed: 2}
			r, err := Run(t.Context(), dialFake(t, f, cfg), d, Config{Concurrency: 1, Requests: 3}, nil)
			ideal := 0 + (100 + 2) + (150 + 2)
			if name == "text" { // the next prompt has a line feed before the answer, so only the prompt is found again
				ideal = 0 + 100 + 150
			}
			if err != nil || r.IdealTokens != ideal || r.NewTokens != 1150-ideal || r.RecomputedTokens != ideal-180 {
				t.Errorf("%s: %v, ideal %d, want %d; %d recomputed", name, err, r.IdealTokens, ideal, r.RecomputedTokens)
			}
		})
	}
}
