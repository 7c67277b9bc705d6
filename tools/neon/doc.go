// Command neon generates the arm64 assembly of engine/cpu. It defines no arithmetic: package
// internal/f32 and the portable code next to the kernels define every bit, and the tests of
// engine/cpu compare the two. It uses Go's standard library alone.
//
// A generator is shorter than plain files with macros: Go's assembler has no loops, and a product
// with float weights exists for six numbers of rows and three types, attention for several numbers
// of heads and positions. avo, which tools/avo builds on, knows x86 only. So a kernel is a Go function
// that writes lines of text. Registers are handed out in order and all come back at a kernel's end.
//
// Go's assembler lacks most of NEON's arithmetic. Such an instruction is written as a WORD, with its
// mnemonic in the comment. A test disassembles all of them and compares the mnemonics.
//
// `go generate ./engine/cpu` in the main module runs the command:
//
//	go run . -set floats -isa neon -out kernel_neon_arm64.s -stubs kernel_neon_arm64.go
package main
