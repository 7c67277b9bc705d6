package splitmix_test

import (
	"testing"

	"github.com/coppice-llm/coppice/internal/splitmix"
)

// TestMix compares the first outputs of SplitMix64 from state 0 with the published ones (Vigna,
// splitmix64.c).
func TestMix(t *testing.T) {
	for i, want := range []uint64{0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f} {
		if got := splitmix.Mix(uint64(i+1) * splitmix.Golden); got != want {
			t.Errorf("output %d: %#x, want %#x", i, got, want)
		}
	}
}
