// Command avo generates the assembly of engine/cpu and internal/hashcopy. Each kernel, an inner loop
// of a transformer or of a checksum, is described once and generated for AVX2, AVX-VNNI and AVX-512.
// The command defines no arithmetic: package internal/f32 and the portable code next to the kernels
// define every bit, and the tests of those packages compare the two. A kernel with an instruction that
// its level of internal/isa lacks is refused, and then no file is written.
//
// It is a separate module, so that programs which import Coppice do not download the generator.
// `go generate ./engine/cpu ./internal/hashcopy` in the main module runs it:
//
//	go run . -isa avx512 -pkg cpu -out kernel_avx512_amd64.s -stubs kernel_avx512_amd64.go
package main
