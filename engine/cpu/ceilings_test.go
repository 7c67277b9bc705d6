package cpu

import (
	"fmt"
	"testing"
)

// BenchmarkCeilings prints what prefill and decode are to be held against.
func BenchmarkCeilings(b *testing.B) {
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
			var c Ceilings
			for b.Loop() {
				c = MeasureCeilings(threads)
			}
			b.ReportMetric(c.GFlops, "GFLOP/s")
			b.ReportMetric(c.GBs, "GB/s")
		})
	}
}

// TestCeilingsAreMeasured holds no figure against a clock: it asks only whether
// something was measured, on the path that was asked for.
func TestCeilingsAreMeasured(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 256 MB")
	}
	isas := ISAs()
	t.Setenv(ISAVariable, isas[len(isas)-1].String())
	c := MeasureCeilings(0)
	if !(c.GFlops > 0) || !(c.GBs > 0) || c.ISA != isas[len(isas)-1].String() {
		t.Errorf("ceilings %+v", c)
	}
}
