package engine

import "testing"

func TestBranchSeeds(t *testing.T) {
	if BranchSeed(7, 0) != 7 {
		t.Error("the first sample does not have the request's own seed")
	}
	seen := map[uint64]bool{}
	for seed := range uint64(8) {
		for b := range 8 {
			if s := BranchSeed(seed, b); seen[s] {
				t.Errorf("seed %d, sample %d: %x twice", seed, b, s)
			} else {
				seen[s] = true
			}
		}
	}
}
