package kernels_test

import "testing"

// BenchmarkInterpreter reports the thread instructions per second of the interpreter, with all its
// checks.
func BenchmarkInterpreter(b *testing.B) {
	for _, g := range fits(64) {
		b.Run("kernel="+g.Name, func(b *testing.B) {
			p := newProduct(1, 64, 128, 512)
			r := newRig(b, "gemm")
			c, a, w, bias := r.room(4*p.rows*p.columns), put(r, p.a), put(r, p.w), put(r, p.bias)
			before := r.m.Stats(g.Name).Instructions
			for b.Loop() {
				r.product(g, c, a, w, bias, p.rows, p.columns, p.inner, toF32, pointer(0))
			}
			b.ReportMetric(float64(r.m.Stats(g.Name).Instructions-before)/1e6/b.Elapsed().Seconds(), "Minstr/s")
		})
	}
}
