package f32

import (
	"math"
	"testing"
)

// TestExpTry compares the fast path of Exp32 with the plain one, over every sign and exponent and a
// sample of fractions.
func TestExpTry(t *testing.T) {
	gaveUp, tried := 0, 0
	for b := uint64(0); b < 1<<32; b += 1009 { // odd, so the low bits vary
		x := math.Float32frombits(uint32(b))
		if !(x >= -87 && x <= 88.72283) {
			continue
		}
		n := float32(float32(x*log2e)+round) - round
		got, ok := expTry(n, x)
		tried++
		if !ok {
			gaveUp++
			continue
		}
		if want := expPoly(n, x); math.Float32bits(got) != math.Float32bits(want) {
			t.Fatalf("x = %g: %x, want %x", x, got, want)
		}
	}
	if gaveUp > tried/1000 {
		t.Errorf("gave up on %d of %d", gaveUp, tried)
	}
}
