package coppice

import (
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// bill returns the bill of samples whose cached tokens all came from disk, but for one token.
func bill(prompt, cached, computed, output int) Bill {
	b := Bill{PromptTokens: prompt, CachedTokens: cached, ComputedTokens: computed, OutputTokens: output}
	b.CachedByTier[kv.TierDisk], b.CachedByTier[kv.TierDevice] = max(cached-1, 0), min(cached, 1)
	return b
}

// A bill is the same in whatever order its samples end.
func TestBillInAnyOrder(t *testing.T) {
	whole := func(cached int) Ending {
		return Ending{PromptTokens: 50, CachedTokens: cached, CachedByTier: bill(0, cached, 0, 0).CachedByTier, ComputedTokens: 50 - cached, OutputTokens: 4}
	}
	waited := Ending{PromptTokens: 50}
	begun := Ending{PromptTokens: 50, CachedTokens: 16, CachedByTier: bill(0, 16, 0, 0).CachedByTier, ComputedTokens: 8} // aborted early
	failed := whole(16)
	failed.OutputTokens = 0
	for name, tc := range map[string]struct {
		endings []Ending
		want    Bill
	}{
		"all":                 {[]Ending{whole(16), whole(49), whole(49)}, bill(50, 16, 36, 12)},
		"one only waited":     {[]Ending{whole(0), waited, whole(49)}, bill(50, 0, 51, 8)},
		"all only waited":     {[]Ending{waited, waited}, Bill{}},
		"one was given up":    {[]Ending{begun, whole(24), whole(49)}, bill(50, 16, 35, 8)},
		"the first failed":    {[]Ending{failed, whole(49), whole(49)}, bill(50, 16, 36, 8)},
		"nothing was found":   {[]Ending{whole(0), whole(0)}, bill(50, 0, 100, 8)},
		"given up, and alone": {[]Ending{begun}, bill(50, 16, 8, 0)},
	} {
		n := 0
		permute(tc.endings, func(order []Ending) {
			var got Bill
			for i := range order {
				got.Add(&order[i])
			}
			if n++; got != tc.want {
				t.Errorf("%s, order %d: %+v, want %+v", name, n, got, tc.want)
			}
		})
	}
}

// permute calls f with each order of the endings.
func permute(rest []Ending, f func([]Ending), chosen ...Ending) {
	if len(rest) == 0 {
		f(chosen)
	}
	for i := range rest {
		others := append(append([]Ending(nil), rest[:i]...), rest[i+1:]...)
		permute(others, f, append(chosen[:len(chosen):len(chosen)], rest[i])...)
	}
}
