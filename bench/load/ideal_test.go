package load

import (
	"math/rand/v2"
	"testing"
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
	}{{share{0, 40}, 10, 0}, {share{20, 40}, 10, 5}, {share{40, 40}, 10, 9}, {share{0, 0}, 10, 0}, {share{4, 4}, 0, 0}} {
		if got := tc.s.tokens(tc.n); got != tc.want {
			t.Errorf("%+v of %d tokens: %d, want %d", tc.s, tc.n, got, tc.want)
		}
	}
}
