package model

import (
	"math"
	"testing"
)

func TestFrequencies(t *testing.T) {
	for _, theta := range []float64{1e4, 5e5, 1e6} {
		for _, half := range []int{8, 32, 40, 64} {
			for i, got := range inversePowers(theta, half) {
				want := math.Pow(theta, -float64(i)/float64(half))
				if math.Abs(got-want) > 2e-15*want { // math.Pow errs by several ulp
					t.Fatalf("θ %v, %d of %d: %v, want %v", theta, i, half, got, want)
				}
			}
		}
	}
}

// TestStretch covers the three ranges of Llama 3.1's scaling and their boundaries.
func TestStretch(t *testing.T) {
	s := &RopeScaling{Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxPositions: 8192}
	freq := func(wave float64) float64 { return 2 * math.Pi / wave }
	for _, c := range []struct{ wave, want float64 }{
		{100, 1}, {2047, 1}, {8193, 1.0 / 8}, {1e6, 1.0 / 8},
		{4096, (1-1.0/3)/8 + 1.0/3}, // (8192/4096 - 1)/(4 - 1) = 1/3
	} {
		if got := s.Stretch(freq(c.wave)) / freq(c.wave); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("wavelength %v: factor %v, want %v", c.wave, got, c.want)
		}
	}
}
