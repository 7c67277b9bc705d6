package kernels

// Instructions exports Form.instructions to external tests.
func Instructions(f *Form, g *GEMM, k int) int64 { return f.instructions(g, k) }
