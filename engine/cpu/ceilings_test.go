package cpu

import (
	"fmt"
	"testing"
)

// BenchmarkCeilings prints the ceilings with which prefill and decode are compared.
func BenchmarkCeilings(b *testing.B) {
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
			var c Ceilings
			for b.Loop() {
				c = MeasureCeilings("", threads)
			}
			b.ReportMetric(c.GFlops, "GFLOP/s")
			b.ReportMetric(c.GBs, "GB/s")
		})
	}
}

// TestCeilingsAreMeasured checks that figures are positive and that the path is the requested
// one. It compares no figure with a clock.
func TestCeilingsAreMeasured(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 256 MB")
	}
	isas := ISAs()
	t.Setenv(ISAVariable, isas[len(isas)-1].String())
	c := MeasureCeilings("", 0)
	if !(c.GFlops > 0) || !(c.GBs > 0) || c.ISA != isas[len(isas)-1].String() {
		t.Errorf("ceilings %+v", c)
	}
}
