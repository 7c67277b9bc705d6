// Command avo writes the assembly of engine/cpu: the inner loops of a
// transformer for AVX2, AVX-VNNI and AVX-512, from one description each. It owns no
// arithmetic of its own: package internal/f32 and the portable code beside the
// kernels define every bit, and the tests of engine/cpu hold the two together.
//
// It is a module of its own, so that nobody who imports Coppice downloads the
// generator. `go generate ./engine/cpu` from the main module runs it:
//
//	go run . -isa avx512 -pkg cpu -out kernel_avx512_amd64.s -stubs kernel_avx512_amd64.go
package main
