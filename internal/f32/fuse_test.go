package f32

import "testing"

// TestFuses checks that the compiler fuses wherever it may. Otherwise all of FMA32 is slow there.
func TestFuses(t *testing.T) {
	if Fuses() != mayFuse {
		t.Errorf("a·b+c is fused: %v, want %v", Fuses(), mayFuse)
	}
}
