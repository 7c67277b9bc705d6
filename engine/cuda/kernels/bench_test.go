package kernels_test

import (
	"testing"

	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
)

// BenchmarkInterpreter reports how many instructions of threads the interpreter
// executes a second, with all its checks.
func BenchmarkInterpreter(b *testing.B) {
	for _, kernel := range []string{"gemm64", "gemm128"} {
		b.Run("kernel="+kernel, func(b *testing.B) {
			p := newProduct(1, 64, 128, 512)
			r := newRig(b, "gemm")
			c, grid := r.room(4*p.rows*p.columns), ptxvm.Dim{X: p.columns / 32}
			if kernel == "gemm128" {
				grid = ptxvm.Dim{X: 1, Y: 1}
			}
			args := []any{c, put(r, p.a), put(r, p.w), put(r, p.bias), int32(p.rows), int32(p.columns), int32(p.inner), toF32, pointer(0)}
			before := r.m.Stats(kernel).Instructions
			for b.Loop() {
				r.launch("gemm", kernel, grid, 256, 0, args...)
			}
			b.ReportMetric(float64(r.m.Stats(kernel).Instructions-before)/1e6/b.Elapsed().Seconds(), "Minstr/s")
		})
	}
}
