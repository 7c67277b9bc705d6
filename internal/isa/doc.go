// Package isa names the levels of x86 and arm64 instruction sets that the module's assembly is written for,
// and the features of the processor that each level promises. It owns these lists and never chooses
// a kernel: a dispatcher takes a kernel only where the kernel's level runs. Any goroutine may call it.
//
//	if isa.AVX2.Runs() {
//		sum = sumAVX2
//	}
//
// The name of an assembly function ends in its level in capitals, as sumAVX2 does. Package isatest
// decodes the machine code of these functions and compares it with the features of the level.
package isa
