// Package f32 owns the canonical single-precision functions of the project: the
// fused multiply-add, exp, log, sine and cosine, and the sums in a fixed order.
// Every function gives the same bits on every target, so a backend built from
// them can promise that a row's logits depend only on its tokens. It never
// allocates, holds no state and imports no other package of the module.
//
// Why not package math: math.Exp has assembly with fused steps on some targets
// and none on others, and the compiler may fuse x*y+z on arm64, ppc64, riscv64
// and s390x. Here each product that must be rounded is written float32(x*y), an
// explicit conversion, which the language forbids to fuse (Go specification,
// "Floating-point operators").
//
// Notation: fma(a,b,c) is a·b+c rounded once. A sum in lanes puts element i into
// lane i mod 16 and adds the 16 lanes by the tree of [Tree16], so its value does
// not depend on how it is split, vectorised or threaded.
//
// All functions are pure and may be called from any goroutine.
//
//	s := f32.Dot(q, k)          // 16 lanes, fma, tree
//	e := f32.Exp32(s - max)     // polynomial, the same bits everywhere
//	acc = f32.FMA32(e, v, acc)  // one rounding
package f32
